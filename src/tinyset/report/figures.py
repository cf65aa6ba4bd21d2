"""The report's charts and tables as files: PNG and SVG, Markdown and LaTeX."""

from collections.abc import Sequence
from pathlib import Path

from tinyset.files import write_atomic
from tinyset.report import tables
from tinyset.report.charts import budget_chart, loss_chart, network_chart, storage_chart, time_chart
from tinyset.report.gather import Row, Subject, merged, variant_kind
from tinyset.report.graphs import grouped, grouped_by, summary, thinned


def write_figures(subjects: Sequence[Subject], compared: Sequence[Row], folder: Path) -> list[Path]:
    """Everything there is data for; says which files were written."""
    rows = merged(row for subject in subjects for row in subject.rows)
    clean = [row for row in rows if row.get("corruption", "clean") == "clean"]
    ordinary = [row for row in clean if not variant_kind(row["set"])]
    losses = {s.name: thinned([(step, loss) for step, loss, _ in s.losses]) for s in subjects if len(s.losses) > 1}
    written: list[Path] = []
    if losses:
        written += loss_chart(losses, folder / "loss")
    for protocol, of in grouped(summary(ordinary), "protocol").items():
        written += network_chart(of, folder / f"networks-{_safe(protocol)}", f"protocol {protocol}")
    for network, of in grouped(ordinary, "network").items():
        along = [row for line in grouped_by(of, ("set", "protocol")).values() if len(line) > 1 for row in line]
        if along:
            written += budget_chart(along, folder / f"budget-{_safe(network)}", network)
    for (network, protocol), of in grouped_by(
        [r for r in clean if variant_kind(r["set"])], ("network", "protocol")
    ).items():
        stem = folder / f"storage-{_safe(network)}-{_safe(protocol)}"
        written += storage_chart(of, stem, f"{network}, {protocol}")
    if compared:
        written += time_chart(compared, folder / "time")
    for name, found in (("table", rows), ("comparison", compared)):
        if found:
            for suffix, form in ((".md", tables.markdown), (".tex", tables.latex)):
                path = folder / f"{name}{suffix}"
                write_atomic(path, form(found))
                written.append(path)
    return written


def _safe(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name)
