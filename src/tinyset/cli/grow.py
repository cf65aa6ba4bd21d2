"""Add a class to a condensed set: its codes are learned for the decoders that are there."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from tinyset.cli.common import Common, DataFlags, read_data
from tinyset.cli.newset import Matching, matching, new_place, save_new

if TYPE_CHECKING:
    from tinyset.cli.console import Console


@dataclass(kw_only=True)
class Args(Matching, Common, DataFlags):
    artifact: tyro.conf.Positional[str]
    """A condensed set's folder, or the name of a shipped one; it is left alone."""
    add: str
    """Where the new class's images are: a dataset's name or path, as for `condense`."""
    class_: Annotated[str, tyro.conf.arg(name="class")]
    """The class of that source to add."""
    out: str
    """The folder of the new set."""
    decoders: Literal["frozen", "tuned"] = "frozen"
    """frozen: only the new codes are learned; tuned: all codes and the decoders, the old classes held in place."""
    codes: int | None = None
    """Codes (stored images, for sets without codes) of the new class (default: as many as the others)."""


def run(args: Args, console: "Console") -> int:
    from tinyset.condensed import load
    from tinyset.downstream.living import grow

    new_place(args.out)
    condensed = load(args.artifact)
    data = read_data(args.add, args, console, args.seed)
    grown = grow(
        condensed,
        data,
        args.class_,
        decoders=args.decoders,
        units=args.codes,
        progress=console.progress,
        **matching(args),
    )
    save_new(grown, args.out, console)
    return 0
