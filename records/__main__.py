"""Write docs/results.md and the figures it shows."""

from pathlib import Path

from records.book import Book
from records.figures import draw
from records.page import page
from tinyset.files import write_atomic

ROOT = Path(__file__).parents[1]


def main() -> None:
    book = Book(ROOT / "records")
    for path in draw(book, ROOT / "docs" / "pictures"):
        print(path.relative_to(ROOT))
    write_atomic(ROOT / "docs" / "results.md", page(book))
    print("docs/results.md")


if __name__ == "__main__":
    main()
