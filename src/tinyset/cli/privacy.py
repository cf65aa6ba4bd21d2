"""What a condensed set gives away of its training images: membership inference and nearest neighbours; stated in its card."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from tinyset.cli.common import Common, DataFlags, read_data

if TYPE_CHECKING:
    from tinyset.cli.console import Console


@dataclass(kw_only=True)
class Args(Common, DataFlags):
    artifact: tyro.conf.Positional[str]
    """A condensed set's folder, or the name of a shipped one."""
    data: str
    """The real images: its training split are the members, its test split the others."""
    network: str = "convnet3"
    """The network that is trained on the set and attacked."""
    protocol: str | None = None
    """How it is trained (default: the set's own protocol)."""
    images: int = 2000
    """Training and test images, each, as many of every class."""
    repeats: int = 1
    """Networks that are attacked, from the seeds seed, seed+1, ..."""
    baselines: str | None = None
    """Rows at the bytes of the set, separated by commas: random, herding."""
    out: str | None = None
    """A folder for table.md, results.json and chart.png."""


def run(args: Args, console: "Console") -> int:
    import os

    from tinyset.condensed import load
    from tinyset.downstream.privacy import privacy
    from tinyset.machine import environment, set_threads
    from tinyset.report import tables

    condensed = load(args.artifact)
    set_threads(args.threads)
    reports = privacy(
        condensed,
        read_data(args.data, args, console, args.seed),
        network=args.network,
        protocol=args.protocol,
        images=args.images,
        repeats=args.repeats,
        seed=args.seed,
        device=args.device,
        baselines=[name.strip() for name in (args.baselines or "").split(",") if name.strip()],
        progress=console.progress,
    )
    if condensed.path is not None and os.access(condensed.path, os.W_OK):
        condensed.state_privacy(reports[0])
    else:
        console.note(f"{args.artifact} is read-only: its card stays as it is.")
    rows = [report.model_dump(mode="json") for report in reports]
    found = {"command": console.command, "environment": environment(), "rows": rows}
    shown = [words(row) for row in rows]
    if args.out is not None:
        write(found, shown, Path(args.out))
    console.json(found)
    console.print(tables.text(shown).rstrip("\n"))
    return 0


def write(found: dict[str, Any], shown: list[dict[str, str]], folder: Path) -> None:
    from tinyset.files import write_atomic, write_json
    from tinyset.report import tables
    from tinyset.report.charts import privacy_chart

    write_atomic(folder / "table.md", tables.markdown(shown))
    write_json(folder / "results.json", found)
    privacy_chart(found["rows"], folder / "chart", f"{found['rows'][0]['data']}, {found['rows'][0]['network']}")


def words(row: dict[str, Any]) -> dict[str, str]:
    """A line of the table."""
    return {
        "Set": row["name"],
        "Bytes": f"{row['bytes']:,}",
        "Images": f"{row['synthetic_images']:,}",
        "Attack %": f"{row['attack_percent']:.1f}",
        "95 % interval": f"{row['attack_interval'][0]:.1f} to {row['attack_interval'][1]:.1f}",
        "To training": f"{row['train_distance']:.4f}",
        "To held-out": f"{row['held_out_distance']:.4f}",
        "Smallest to training": f"{row['smallest_train_distance']:.4f}",
        "Nearer to training %": f"{row['nearer_to_train_percent']:.1f}",
    }
