"""Every method at the same storage and the same wall-clock on your data: the paper's first table, resumable row by row."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from tinyset.cli.common import Common, DataFlags, read_data
from tinyset.config import parse_duration
from tinyset.errors import UserError

if TYPE_CHECKING:
    from tinyset.cli.console import Console

METHODS = "random,herding,dc,dsa,dm,kip,cafe,mtt,idc,kfs"


@dataclass(kw_only=True)
class Args(Common, DataFlags):
    source: tyro.conf.Positional[str]
    """A dataset's name or path, as for `condense`."""
    out: str
    """A folder: one run per method, table.md, table.json, env.json, time.png."""
    methods: str = METHODS
    """Methods, separated by commas; `kfs-0` (kfs before any step) and `full` are added."""
    images_per_class: int = 1
    """The storage of every method."""
    time_limit: str = "10m"
    """Wall-clock of each method's condensation, set-up included."""
    protocol: str = "steps:500"
    """How networks are trained for the accuracy."""
    network: str = "convnet3"
    """The network that is evaluated, and matched with unless --match says otherwise."""
    match: str | None = None
    """The network to match with, for example convnet3:width=64 (default: the recipe's)."""
    repeats: int = 3
    """Evaluations of each method."""
    real_per_class: int | None = None
    """Real images of each class behind a mean of the bank (default: the recipe's)."""
    recipe: str = "plain"
    """The recipe of every method."""
    compile: Literal["auto", "always", "never"] = "auto"
    """torch.compile for condensation; auto compiles, as a row is long enough."""


def run(args: Args, console: "Console") -> int:
    from tinyset.compare import compare
    from tinyset.interrupts import Stop, signals_to
    from tinyset.machine import set_threads

    methods = [name.strip() for name in args.methods.split(",") if name.strip()]
    if not methods:
        raise UserError("--methods: name one.")
    limit_s = parse_duration(args.time_limit)
    set_threads(args.threads)
    settings: dict[str, Any] = {
        "images_per_class": args.images_per_class,
        "seed": args.seed,
        "device": args.device,
        "threads": args.threads,
        "network": args.match,
        "real_per_class": args.real_per_class,
        "compile": None if args.compile == "auto" else args.compile,
    }
    with signals_to(Stop()) as stop:
        data = read_data(args.source, args, console, args.seed)
        if data.test is None:
            raise UserError(f"{args.source} has no test split: keep a part of it for testing with --holdout 0.1.")
        rows = compare(
            data,
            methods,
            Path(args.out),
            time_limit_s=limit_s,
            protocol=args.protocol,
            settings=settings,
            network=args.network,
            repeats=args.repeats,
            recipe=args.recipe,
            progress=console.progress,
            stop=stop,
        )
    report(rows, args, console)
    return 0


def report(rows: list[dict[str, Any]], args: Args, console: "Console") -> None:
    from tinyset.files import write_atomic, write_json
    from tinyset.machine import environment
    from tinyset.report import tables
    from tinyset.report.charts import time_chart

    folder = Path(args.out)
    found = {
        "data": args.source,
        "images_per_class": args.images_per_class,
        "time_limit": args.time_limit,
        "repeats": args.repeats,
        "protocol": args.protocol,
        "network": args.network,
        "rows": rows,
    }
    write_atomic(folder / "table.md", tables.markdown(rows))
    write_json(folder / "table.json", found)
    write_json(folder / "env.json", {**environment(), "command": console.command})
    time_chart(rows, folder / "time", f"{args.source}, {args.images_per_class} image(s) per class, {args.protocol}")
    console.json(found)
    console.print(tables.text(rows).rstrip("\n"))
    console.print(
        f"Every method: {args.images_per_class} image(s) per class, {args.time_limit} of condensation. Files: {folder}"
    )
