"""What the sets of a cell cost: their steps, their time and that of the sets they began with."""

from collections.abc import Sequence

from records.book import Book
from tinyset.records import RunRecord


def cost(book: Book, records: Sequence[RunRecord]) -> list[str]:
    """Steps, time and names, for a line of a table."""
    if not records:
        return ["", "", ""]
    steps = ", ".join(dict.fromkeys(f"{record.artifact.steps:,}" for record in records))
    links = ", ".join(f"`{record.name}`" for record in records)
    return [steps, ", ".join(dict.fromkeys(_spent(book, record) for record in records)), links]


def _spent(book: Book, record: RunRecord) -> str:
    """A set that others began needed the time of those too."""
    minutes = "?" if record.seconds is None else f"{record.seconds / 60:.0f} min"
    begun = _begun(record)
    if not begun:
        return minutes
    total = _core_minutes(book, record)
    if len(begun) > 1:
        return f"{len(begun)} sets, " + ("?" if total is None else f"{total:.0f} min of one core")
    return f"{minutes} after `{begun[0]}`" + ("" if total is None else f", {total:.0f} of one core in all")


def _begun(record: RunRecord) -> list[str]:
    """The sets it began with, shipped or of records."""
    starts = record.config.start.split(",") if record.config.start else []
    return [start.removesuffix("/artifact").rpartition("/")[2] for start in starts]


def _core_minutes(book: Book, record: RunRecord | None) -> float | None:
    """As if its threads had come one after the other, and the sets it began with before it."""
    if record is None or record.seconds is None:
        return None
    before = [_core_minutes(book, book.results.get(name)) for name in _begun(record)]
    own = record.seconds / 60 * int(record.environment.get("threads") or 1)
    return None if None in before else own + sum(filter(None, before))
