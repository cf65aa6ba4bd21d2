"""Learn classes step by step with a replay memory of a fixed number of bytes: KFS, DM, herding and random side by side."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from tinyset.cli.common import Common, DataFlags, read_data
from tinyset.config import parse_bytes
from tinyset.errors import UserError

if TYPE_CHECKING:
    from tinyset.cli.console import Console


@dataclass(kw_only=True)
class Args(Common, DataFlags):
    source: tyro.conf.Positional[str]
    """A dataset's name or path, as for `condense`."""
    out: str
    """A folder: a file per finished cell (the same command goes on from there), table.md, results.json, chart.png."""
    steps: int = 5
    """Groups the classes come in."""
    memory: str = "kfs,dm,herding,random"
    """What fills the memory, separated by commas."""
    bytes: str = "33kB"
    """Bytes of the memory once all classes are there: each class has its equal share."""
    precision: Literal["float32", "float16", "int8"] = "int8"
    """How the memory's numbers are stored."""
    train_on: Literal["memory", "memory+real"] = "memory"
    """After each step train from scratch on the memory, or on the memory and the real images of that step."""
    network: str = "convnet3:width=32"
    """The network that learns, and whose features herding uses."""
    protocol: str = "steps:300"
    """How it is trained."""
    test_per_class: int | None = None
    """Test only on the first so many test images of each class (default: all)."""
    repeats: int = 1
    """Orders of the classes and networks, from the seeds seed, seed+1, ..."""
    condense_steps: int | None = None
    """Steps of KFS and DM for each group (default: the plain recipe's)."""
    match: str | None = None
    """The network KFS and DM match with (default: the plain recipe's)."""
    networks: int | None = None
    """Random networks in the embedding bank of KFS."""
    real_per_class: int | None = None
    """Real images of each class behind a mean of the bank."""
    pretrain_steps: int | None = None
    """Steps of the auto-encoder KFS starts from."""
    herding_steps: int = 300
    """Steps of the network whose features herding uses."""


def run(args: Args, console: "Console") -> int:
    from tinyset.downstream.continual import Stream, continual
    from tinyset.machine import environment, peak_memory_bytes
    from tinyset.report import tables

    memories = [name.strip() for name in args.memory.split(",") if name.strip()]
    if not memories:
        raise UserError("--memory: name one.")
    settings = {
        "steps": args.condense_steps,
        "network": args.match,
        "networks": args.networks,
        "real_per_class": args.real_per_class,
        "pretrain_steps": args.pretrain_steps,
        "herding_steps": args.herding_steps,
        "threads": args.threads,
    }
    stream = Stream(
        read_data(args.source, args, console, args.seed),
        args.steps,
        parse_bytes(args.bytes),
        args.precision,
        args.train_on,
        args.network,
        args.protocol,
        args.test_per_class,
        args.device,
    )
    rows = continual(
        stream,
        memories,
        repeats=args.repeats,
        seed=args.seed,
        settings={key: value for key, value in settings.items() if value is not None},
        out=Path(args.out),
        progress=console.progress,
    )
    told = {
        "command": console.command,
        "data": stream.data.name,
        "steps": args.steps,
        "bytes": stream.budget_bytes,
        "precision": args.precision,
        "train_on": args.train_on,
        "network": args.network,
        "protocol": args.protocol,
        "test_per_class": args.test_per_class,
        "condense": settings,
        "environment": environment() | {"peak_memory_bytes": peak_memory_bytes()},
        "rows": rows,
    }
    write(told, Path(args.out))
    console.json(told)
    console.print(tables.text([words(row) for row in rows]).rstrip("\n"))
    console.print(f"Trained from scratch after each step on: {args.train_on}. Files: {args.out}")
    return 0


def write(told: dict[str, Any], folder: Path) -> None:
    from tinyset.files import write_atomic, write_json
    from tinyset.report import tables
    from tinyset.report.charts import stream_chart

    write_atomic(folder / "table.md", tables.markdown([words(row) for row in told["rows"]]))
    write_json(folder / "results.json", told)
    title = f"{told['data']}, {told['steps']} steps, {told['bytes']:,} bytes, trained on {told['train_on']}"
    stream_chart(told["rows"], folder / "chart", title)


def words(row: dict[str, Any]) -> dict[str, str]:
    """A line of the table."""
    from tinyset.report.tables import spread

    return {
        "Memory": row["memory"],
        "Step": str(row["step"]),
        "Classes": str(row["classes"]),
        "Accuracy %": spread(row["accuracy"]),
        "n": str(row["accuracy"]["n"]),
        "Forgetting": "" if row["forgetting"] is None else spread(row["forgetting"]),
        "Bytes": f"{row['bytes']:,}",
        "Images": f"{row['images']:,}",
        "Memory s": f"{row['memory_seconds']:.0f}",
        "Train s": f"{row['train_seconds']:.0f}",
    }
