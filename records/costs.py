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
    if record.config.start is None:
        return minutes
    starts = record.config.start.split(",")
    begun = [start.removesuffix("/artifact").rpartition("/")[2] for start in starts]  # shipped, or of records
    if len(begun) == 1:
        return f"{minutes} after `{begun[0]}`"
    spent = [_core_minutes(book.results.get(name)) for name in begun]
    return f"{len(begun)} sets, " + ("?" if None in spent else f"{sum(filter(None, spent)):.0f} min of one core")


def _core_minutes(record: RunRecord | None) -> float | None:
    """As if its threads had come one after the other."""
    if record is None or record.seconds is None:
        return None
    return record.seconds / 60 * int(record.environment.get("threads") or 1)
