"""Make a recorded run again by its steps, evaluate it by its protocols, and say whether the numbers hold (exit code 0 or 1)."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from tinyset.cli.common import Common, DataFlags, read_data
from tinyset.errors import UserError

if TYPE_CHECKING:
    from tinyset.cli.console import Console
    from tinyset.records import Reproduction


@dataclass(kw_only=True)
class Args(Common, DataFlags):
    record: tyro.conf.Positional[str]
    """A folder of `tinyset record`; its own seeds and threads are used."""
    data: str | None = None
    """The real images (default: the source the record names); their fingerprint must be the recorded one."""
    out: str | None = None
    """The folder of the new run, which goes on where it was stopped (default: none is kept)."""
    only: Literal["condense", "evaluate"] | None = None
    """condense: compare the hash; evaluate: train on the record's own set."""
    network: str | None = None
    """Only these of the recorded networks, separated by commas."""
    repeats: int | None = None
    """Only the first so many of the recorded seeds."""


def run(args: Args, console: "Console") -> int:
    from tinyset.cli.evaluate import split_networks
    from tinyset.data.load import BENCHMARKS
    from tinyset.interrupts import Stop, signals_to
    from tinyset.records import read, reproduce

    if args.only == "evaluate" and args.out is not None:
        raise UserError("--out: no run is made with --only evaluate.")
    record = read(Path(args.record))
    source = args.data or record.artifact.source
    if args.data is None and source not in BENCHMARKS:  # a path inside a stranger's file is not followed
        raise UserError(f"--data: the record was made of {source or 'unnamed images'!r}; name the real images.")
    with signals_to(Stop()) as stop:
        data = read_data(source, args, console, record.artifact.seed)
        found = reproduce(
            record,
            data,
            out=None if args.out is None else Path(args.out),
            only=args.only,
            networks=None if args.network is None else split_networks(args.network),
            repeats=args.repeats,
            device=args.device,
            progress=console.progress,
            stop=stop,
            command=console.command,
        )
    console.json(found.to_dict())
    report(found, console)
    return 0 if found.holds else 1


def report(found: "Reproduction", console: "Console") -> None:
    if found.seconds is not None:
        same = "the recorded bytes" if found.identical else "other bytes than the recorded"
        why = f" ({'; '.join(found.differences)})" if found.differences else ", on the same machine and software"
        console.print(f"{found.record.artifact.steps:,} steps in {found.seconds:,.0f} s: {same}{why}.")
    for cell in found.cells:
        recorded, new = cell.recorded, cell.new
        console.print(
            f"{cell.network}, {cell.protocol}: recorded {recorded} % (n = {recorded.n}), here {new} % (n = {new.n}), "
            f"{new.mean - recorded.mean:+.2f} of ±{cell.allowed:.2f} allowed: {'holds' if cell.within_noise else 'does not hold'}"
        )
