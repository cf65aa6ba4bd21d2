"""Take condensed images of other tools (the public .pt files of DC, DSA, DM, CAFE, MTT, IDC) into a pixel artifact."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import tyro

from tinyset.cli.common import Common, DataFlags, read_data
from tinyset.errors import UserError

if TYPE_CHECKING:
    from tinyset.cli.console import Console


@dataclass(kw_only=True)
class Args(Common, DataFlags):
    file: tyro.conf.Positional[str]
    """A .pt file of images and labels."""
    dest: tyro.conf.Positional[str]
    """The folder of the new condensed set."""
    labels: str | None = None
    """The .pt file of the labels, where they are in one of their own (MTT)."""
    experiment: int = 0
    """Which one, where the file holds several (DC, DM), counted from 0."""
    data: str | None = None
    """The dataset the images stand for: its statistics undo their normalisation, its class names name them."""
    mean: str | None = None
    """Instead of --data: the channel means the images were normalised with: 0.4914,0.4822,0.4465."""
    std: str | None = None
    """Instead of --data: the channel deviations."""
    class_names: str | None = None
    """Class names in label order, separated by commas."""
    no_mirror: bool = False
    """Mirror images are not images of the same class (digits, text)."""
    protocol: str = "kfs-aug"
    """The evaluation protocol the new set names as its own."""
    overwrite: bool = False
    """Replace what is in DEST."""


def run(args: Args, console: "Console") -> int:
    from tinyset.exchange import import_images
    from tinyset.protocols import protocol

    protocol(args.protocol)
    if (args.mean is None) != (args.std is None):
        raise UserError("--mean and --std belong together: give both.")
    stats = None
    if args.mean is not None and args.std is not None:
        stats = (numbers(args.mean, "--mean"), numbers(args.std, "--std"))
        if len(stats[0]) != len(stats[1]) or min(stats[1]) <= 0:
            raise UserError("--mean and --std need one number per channel, and those of --std must be above 0.")
    data = None if args.data is None else read_data(args.data, args, console, args.seed)
    condensed = import_images(
        args.file,
        labels=args.labels,
        experiment=args.experiment,
        stats=stats,
        class_names=None if args.class_names is None else [name.strip() for name in args.class_names.split(",")],
        real=None if data is None else data.train,
        source="" if data is None else data.name,
        mirror=not args.no_mirror and (data is None or data.mirror),
        protocol=args.protocol,
        progress=console.progress,
    )
    condensed.save(args.dest, overwrite=args.overwrite)
    console.json({"artifact": args.dest, **condensed.ledger()})
    console.print(f"{args.dest}: {len(condensed):,} images of {len(condensed.class_names)} classes")
    return 0


def numbers(text: str, flag: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise UserError(f"{flag} {text}: write numbers separated by commas.") from None
