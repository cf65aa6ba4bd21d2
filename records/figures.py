"""The figures of docs/results.md, drawn by the product's own commands."""

from pathlib import Path

from records.book import Book
from tinyset.cli.show import figure
from tinyset.condensed import load, shipped
from tinyset.report.charts import budget_chart


def draw(book: Book, folder: Path) -> list[Path]:
    """Everything there are records for; says which files were written."""
    written: list[Path] = []
    for name, cell in book.cells.budget.items():
        rows = [row for record in book.of(cell) for row in record.along(cell.network)]
        if rows:  # a set that was measured along two trainings is two lines
            several = len({(row.set, row.protocol) for row in rows}) > len({row.set for row in rows})
            named = [{**row.to_dict(), "set": f"{row.set}, {row.protocol}" if several else row.set} for row in rows]
            written += budget_chart(named, folder / f"budget-{name}", f"{name}, {cell.network}")
    for name in book.cells.pictures:
        if name in shipped():
            path = folder / f"shipped-{name}.png"
            figure(load(shipped()[name])).save(path)
            written.append(path)
    return written
