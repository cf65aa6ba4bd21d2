"""Share condensed sets: push one to the Hugging Face hub, or pull one into a folder (extra `[hub]`)."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from tinyset.cli.common import Common

if TYPE_CHECKING:
    from tinyset.cli.console import Console


@dataclass(kw_only=True)
class Args(Common):
    action: tyro.conf.Positional[Literal["push", "pull"]]
    """push FOLDER user/name, or pull user/name FOLDER."""
    source: tyro.conf.Positional[str]
    """What to push (a condensed set's folder) or to pull (user/name)."""
    dest: tyro.conf.Positional[str]
    """Where to: user/name, or a folder."""
    private: bool = False
    """A new repository on the hub is private."""
    overwrite: bool = False
    """Replace what is in the folder."""


def run(args: Args, console: "Console") -> int:
    from tinyset import hub
    from tinyset.condensed import load
    from tinyset.errors import UserError

    if args.action == "push":
        condensed = load(args.source)  # refuses what is damaged before anything is sent
        assert condensed.path is not None
        place = hub.push(condensed.path, args.dest, private=args.private)
    else:
        target = Path(args.dest)
        if target.exists() and not args.overwrite and (not target.is_dir() or any(target.iterdir())):
            raise UserError(f"{target} exists and is not empty: choose another place or use --overwrite.")
        folder = hub.fetch(args.source)
        load(folder)
        place = str(hub.copy(folder, target))
    console.json({"action": args.action, "place": place})
    console.print(place)
    return 0
