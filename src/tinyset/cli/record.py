"""Keep what a run was and what was measured of it: a small folder from which it can be made again."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from tinyset.cli.common import Common

if TYPE_CHECKING:
    from tinyset.cli.console import Console


@dataclass(kw_only=True)
class Args(Common):
    run: tyro.conf.Positional[str]
    """The folder of a finished run (`condense --out`), evaluated or not."""
    out: str
    """The folder of the record."""
    note: str = ""
    """A sentence for its README."""
    overwrite: bool = False
    """Replace the record in --out."""


def run(args: Args, console: "Console") -> int:
    from tinyset.records import keep

    record = keep(Path(args.run), Path(args.out), note=args.note, overwrite=args.overwrite)
    rows = [row.to_dict() for row in record.final_rows()]
    size = sum(path.stat().st_size for path in record.folder.rglob("*") if path.is_file())
    console.json({"record": args.out, "sha256": record.made.sha256, "bytes": size, "rows": rows})
    console.print((record.folder / "README.md").read_text(encoding="utf-8").rstrip("\n"))
    return 0
