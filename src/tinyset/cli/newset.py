"""What the verbs share that make a new condensed set of an old one."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinyset.errors import UserError

if TYPE_CHECKING:
    from tinyset.cli.console import Console
    from tinyset.condensed import CondensedSet


@dataclass(kw_only=True)
class Matching:
    """Flags of the outer loop, for verbs that may learn codes."""

    steps: int | None = None
    """Steps of the outer loop, where codes are learned (default: the plain recipe's)."""
    network: str | None = None
    """The network they are matched with (default: the plain recipe's)."""
    networks: int | None = None
    """Random networks in the embedding bank."""
    real_per_class: int | None = None
    """Images behind a mean of the bank: real ones, or with --recode the second set's own."""


def new_place(out: str) -> None:
    """Refuse a taken `--out` before any work is done."""
    target = Path(out)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UserError(f"--out {out} exists and is not empty: choose another place.")


def save_new(condensed: "CondensedSet", out: str, console: "Console", more: dict[str, Any] | None = None) -> None:
    """Write the new set, and say what it holds."""
    path = condensed.save(out)
    ledger = condensed.ledger()
    console.json({"artifact": str(path), **ledger, **(more or {})})
    console.print(
        f"{path}: {len(condensed):,} synthetic images of {ledger['classes']} classes in {ledger['bytes']:,} bytes"
    )


def matching(args: Any) -> dict[str, Any]:
    """The flags of the outer loop that were given."""
    names = ("steps", "network", "networks", "real_per_class", "seed", "device", "threads")
    return {name: getattr(args, name) for name in names if getattr(args, name) is not None}
