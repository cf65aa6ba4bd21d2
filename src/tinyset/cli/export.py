"""Write a condensed set as ordinary files: decoded images of 8 bit with their labels and names."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import tyro

from tinyset.cli.common import Common

if TYPE_CHECKING:
    from tinyset.cli.console import Console


@dataclass(kw_only=True)
class Args(Common):
    artifact: tyro.conf.Positional[str]
    """A condensed set's folder, or the name of a shipped one."""
    dest: tyro.conf.Positional[str]
    """The folder (imagefolder) or file (npz, parquet, pt) to write."""
    format: Literal["imagefolder", "npz", "parquet", "pt"]
    """imagefolder: CLASS/0.png; npz: arrays; parquet: as Hugging Face reads it; pt: a plain dict of tensors."""
    overwrite: bool = False
    """Replace what is there."""


def run(args: Args, console: "Console") -> int:
    from tinyset.condensed import load
    from tinyset.exchange import export

    condensed = load(args.artifact)
    target = export(condensed, args.dest, args.format, overwrite=args.overwrite)
    files = [path for path in target.rglob("*") if path.is_file()] if target.is_dir() else [target]
    size = sum(path.stat().st_size for path in files)
    console.json(
        {
            "path": str(target),
            "format": args.format,
            "images": len(condensed),
            "classes": len(condensed.class_names),
            "bytes": size,
        }
    )
    console.print(
        f"{target}: {len(condensed):,} images of {len(condensed.class_names)} classes, {size:,} bytes "
        f"({condensed.bytes:,} as a condensed set)"
    )
    return 0
