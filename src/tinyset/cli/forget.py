"""Remove a class from a condensed set: its codes, its name and its labels are gone from the new file."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from tinyset.cli.common import Common
from tinyset.cli.newset import new_place, save_new

if TYPE_CHECKING:
    from tinyset.cli.console import Console


@dataclass(kw_only=True)
class Args(Common):
    artifact: tyro.conf.Positional[str]
    """A condensed set's folder, or the name of a shipped one; it is left alone."""
    class_: Annotated[str, tyro.conf.arg(name="class")]
    """The class to forget."""
    out: str
    """The folder of the new set."""


def run(args: Args, console: "Console") -> int:
    from tinyset.condensed import load
    from tinyset.downstream.living import forget

    new_place(args.out)
    save_new(forget(load(args.artifact), args.class_), args.out, console)
    return 0
