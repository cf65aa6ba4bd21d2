"""Make one condensed set of two: classes of the same name are put together, the others stand side by side."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import tyro

from tinyset.cli.common import Common
from tinyset.cli.newset import Matching, matching, new_place, save_new

if TYPE_CHECKING:
    from tinyset.cli.console import Console


@dataclass(kw_only=True)
class Args(Matching, Common):
    first: tyro.conf.Positional[str]
    """A condensed set's folder, or the name of a shipped one; it is left alone."""
    second: tyro.conf.Positional[str]
    """Another one."""
    out: str
    """The folder of the new set."""
    recode: bool = False
    """Where the decoders differ: learn the second set's codes anew for the decoders of the first, from its own images."""


def run(args: Args, console: "Console") -> int:
    from tinyset.condensed import load
    from tinyset.downstream.merge import merge

    new_place(args.out)
    both = merge(load(args.first), load(args.second), recode=args.recode, progress=console.progress, **matching(args))
    save_new(both, args.out, console)
    return 0
