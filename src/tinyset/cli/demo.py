"""Condense the embedded `streetdigits` at 1 image per class and compare: the whole product in a few minutes."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tinyset.cli.common import Common

if TYPE_CHECKING:
    from tinyset.cli.console import Console

NETWORK = "convnet3:width=32"  # a tenth of the usual network's cost, so that all four rows take a minute or two
PROTOCOL = "steps:300"


@dataclass(kw_only=True)
class Args(Common):
    out: str = "demo"
    """Where the run, the picture and the table go."""
    overwrite: bool = False
    """Replace an earlier demo."""


def run(args: Args, console: "Console") -> int:
    from tinyset.cli.condense import Args as CondenseArgs
    from tinyset.cli.condense import settings
    from tinyset.cli.show import figure
    from tinyset.condensation import run as condense
    from tinyset.data import load_images
    from tinyset.evaluation import evaluate
    from tinyset.files import write_atomic, write_json
    from tinyset.interrupts import Stop, signals_to
    from tinyset.methods import resolve
    from tinyset.report import tables

    out = Path(args.out)
    flags = settings(CondenseArgs(source="streetdigits", out=args.out, images_per_class="1", seed=args.seed))
    config = resolve("demo", {**flags, "device": args.device, "threads": args.threads})
    with signals_to(Stop()) as stop:
        data = load_images("streetdigits", progress=console.progress)
        outcome = condense(
            config,
            data,
            out=out,
            overwrite=args.overwrite,
            progress=console.progress,
            stop=stop,
            recipe="demo",
            command=console.command,
        )
        found = evaluate(
            outcome.condensed,
            data,
            [NETWORK],
            [PROTOCOL],
            baselines=["kfs-0", "random", "full"],
            seed=args.seed,
            device=args.device,
            progress=console.progress,
            stop=stop,
        )
    rows = [row.to_dict() for row in found.rows]
    figure(outcome.condensed).save(out / "show.png")
    write_atomic(out / "table.md", tables.markdown(rows))
    write_json(out / "results.json", {"data": data.name, "rows": rows})
    console.json({"artifact": str(outcome.condensed.path), "seconds": outcome.seconds, "rows": rows})
    console.print(tables.text(rows))
    console.print(
        f"Protocol {PROTOCOL} ({PROTOCOL.partition(':')[2]} training steps, the same for every row) on {NETWORK}.",
        f"Pictures: {out / 'show.png'}   artifact: {outcome.condensed.path}   table: {out / 'table.md'}",
    )
    return 0
