"""Put a condensed set into fewer bytes: codes, decoders and precision are dropped where it costs least."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import tyro

from tinyset.cli.common import Common, DataFlags, read_data
from tinyset.cli.newset import new_place, save_new
from tinyset.config import parse_bytes

if TYPE_CHECKING:
    from tinyset.cli.console import Console
    from tinyset.downstream.slim import Candidate


@dataclass(kw_only=True)
class Args(Common, DataFlags):
    artifact: tyro.conf.Positional[str]
    """A condensed set's folder, or the name of a shipped one; it is left alone."""
    data: str
    """The real images, as for `condense`; only the training split is used."""
    budget_bytes: str
    """The most the new file may take: 30kB."""
    out: str
    """The folder of the new set."""
    match: str = "convnet3:width=64"
    """The network whose bank ranks the candidates."""
    networks: int = 8
    """Random networks of that bank."""
    real_per_class: int = 500
    """Real images of each class behind a mean of the bank."""
    confirm: int = 3
    """How many of the best are confirmed by a training."""
    network: str = "convnet3:width=32"
    """The network of that training."""
    protocol: str = "steps:300"
    """How it is trained."""
    repeats: int = 1
    """Trainings of each, from the seeds seed, seed+1, ..."""
    validation: float = 0.1
    """The share of the training split they are tested on."""


def run(args: Args, console: "Console") -> int:
    from tinyset.condensed import load
    from tinyset.downstream.slim import slim
    from tinyset.machine import set_threads
    from tinyset.report import tables

    new_place(args.out)
    budget, condensed = parse_bytes(args.budget_bytes), load(args.artifact)
    set_threads(args.threads)
    found = slim(
        condensed,
        read_data(args.data, args, console, args.seed),
        budget,
        match_network=args.match,
        networks=args.networks,
        real_per_class=args.real_per_class,
        confirm=args.confirm,
        network=args.network,
        protocol=args.protocol,
        repeats=args.repeats,
        validation=args.validation,
        seed=args.seed,
        device=args.device,
        progress=console.progress,
    )
    more = {"before": found.before.to_dict(), "candidates": [candidate.to_dict() for candidate in found.candidates]}
    console.print(tables.text([words(candidate) for candidate in found.candidates[: 2 * args.confirm]]).rstrip("\n"))
    console.print(f"Before: {found.before} % in {condensed.bytes:,} bytes, on the same validation images.")
    save_new(found.condensed, args.out, console, more)
    return 0


def words(candidate: "Candidate") -> dict[str, str]:
    """A line of the table."""
    values = candidate.to_dict()
    return {
        "Precision": candidate.precision,
        "Decoders": str(values["decoders"]),
        "Codes per class": str(values["units_per_class"]),
        "Bytes": f"{candidate.bytes:,}",
        "Loss": f"{candidate.loss:.4g}",
        "Validation %": "" if candidate.accuracy is None else str(candidate.accuracy),
    }
