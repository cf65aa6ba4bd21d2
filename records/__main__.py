"""Write docs/results.md, the figures it shows, and what the records' own pages say was measured."""

from pathlib import Path

from records.book import Book
from records.figures import draw
from records.page import page
from tinyset.files import write_atomic
from tinyset.records import renew

ROOT = Path(__file__).parents[1]


def main() -> None:
    book = Book(ROOT / "records")
    for path in draw(book, ROOT / "docs" / "pictures"):
        print(path.relative_to(ROOT))
    write_atomic(ROOT / "docs" / "results.md", page(book))
    print("docs/results.md")
    for record in (*book.results.values(), *book.ablations.values()):
        if renew(record.folder):
            print((record.folder / "README.md").relative_to(ROOT))


if __name__ == "__main__":
    main()
