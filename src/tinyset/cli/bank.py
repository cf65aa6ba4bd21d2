"""Compute the mean embeddings of the real images under random networks, once; later runs find them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import tyro

from tinyset.cli.common import Common, DataFlags, read_data

if TYPE_CHECKING:
    from tinyset.cli.console import Console


@dataclass(kw_only=True)
class Args(Common, DataFlags):
    source: tyro.conf.Positional[str]
    """A dataset's name or path, as for `condense`."""
    networks: int = 100
    """Random networks in the bank; only those that are missing are computed."""
    network: str = "convnet3"
    """Their architecture."""
    real_per_class: int | None = None
    """Real images of each class behind a mean (default: all)."""


def run(args: Args, console: "Console") -> int:
    from tinyset.bank import open_bank
    from tinyset.errors import UserError
    from tinyset.interrupts import Interrupted, Stop, signals_to
    from tinyset.machine import pick_device, set_threads

    if args.networks < 1:
        raise UserError(f"--networks {args.networks}: a bank needs 1 network or more.")
    set_threads(args.threads)
    with signals_to(Stop()) as stop:
        data = read_data(args.source, args, console, args.seed)
        bank = open_bank(
            data.train,
            args.network,
            device=pick_device(args.device),
            networks=args.networks,
            real_per_class=args.real_per_class,
            progress=console.progress,
        )
        before = bank.size()
        have = bank.ensure(args.networks, stop)
        if stop.reason:
            raise Interrupted(
                f"Stopped with {have} of {args.networks} networks; the same command goes on.", stop.exit_code
            )
    size = sum(path.stat().st_size for path in bank.folder.glob("*.safetensors"))
    computed = max(0, have - before)
    console.json({"folder": str(bank.folder), "networks": have, "computed": computed, "bytes": size})
    console.print(f"{bank.folder}: {have} networks ({computed} computed now), {size:,} bytes")
    return 0
