"""One self-contained page about one or more runs: results, charts, and an explorer of codes and decoders."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from tinyset.cli.common import Common, DataFlags, read_data
from tinyset.errors import UserError

if TYPE_CHECKING:
    from tinyset.cli.console import Console
    from tinyset.report.explorer import Nearest
    from tinyset.report.gather import Subject


@dataclass(kw_only=True)
class Args(Common, DataFlags):
    runs: tyro.conf.Positional[tuple[str, ...]]
    """Folders of `condense` or `compare`, artifacts, or names of shipped sets."""
    out: str | None = None
    """Where the page goes (default: report.html in the first run's folder)."""
    data: str | None = None
    """The real images (default: the source the set names, where it is at hand)."""
    with_real: bool = False
    """Embed thumbnails of the nearest real training images; without it only their numbers are in the page."""
    no_nearest: bool = False
    """Do not look for the nearest real images."""
    charts: str | None = None
    """Also write the charts as PNG and SVG and the tables as Markdown and LaTeX into this folder."""
    track: bool = False
    """Also write TensorBoard files into the run's folder (extra `[track]`)."""


def run(args: Args, console: "Console") -> int:
    from tinyset.files import write_atomic
    from tinyset.report.gather import gather
    from tinyset.report.page import page

    if not args.runs:
        raise UserError("Name a run to report on.")
    subjects, compared = gather(args.runs)
    out = Path(args.out) if args.out is not None else _default(args.runs[0])
    near = [None if args.no_nearest else _nearest(subject, args, console) for subject in subjects]
    if args.with_real and not any(near):
        raise UserError("--with-real: the real images are not at hand; name them with --data.")
    html = page(subjects, compared, near, args.with_real)
    write_atomic(out, html)
    files = [str(out)]
    if args.charts is not None:
        from tinyset.report.figures import write_figures

        files += [str(path) for path in write_figures(subjects, compared, Path(args.charts))]
    if args.track:
        from tinyset.report.track import write_events

        files += [str(write_events(subject)) for subject in subjects if subject.folder is not None]
    rows = sum(len(subject.rows) for subject in subjects)
    console.json({"report": str(out), "bytes": len(html.encode()), "sets": len(subjects), "rows": rows, "files": files})
    console.print(*files)
    return 0


def _default(first: str) -> Path:
    """In the folder of the run, or of the comparison."""
    folder = Path(first)
    if not folder.is_dir():
        raise UserError(f"--out: {first} is not a folder of yours; say where the page goes.")
    of_run = folder.name == "artifact" and (folder.parent / "config.yaml").is_file()
    return (folder.parent if of_run else folder) / "report.html"


def _nearest(subject: "Subject", args: Args, console: "Console") -> "Nearest | None":
    """The nearest real images, where the set's own training images are at hand."""
    from tinyset.data.load import BENCHMARKS
    from tinyset.report.explorer import find_nearest

    config = subject.condensed.config
    source = args.data or config.source
    if args.data is None and source not in BENCHMARKS:  # a path inside a stranger's file is not followed
        return None
    try:
        data = read_data(source, args, console, args.seed)
    except UserError as error:
        if args.data is not None:
            raise
        console.note(f"Without the nearest real images: {error}")
        return None
    if data.train.fingerprint != config.source_fingerprint:
        if args.data is not None:
            raise UserError(f"--data {args.data}: these are not the images {subject.name} was condensed from.")
        console.note(f"Without the nearest real images: {source} is not the data {subject.name} was condensed from.")
        return None
    console.note(f"Looking for the nearest of {len(data.train):,} real images.")
    return find_nearest(subject.condensed, data.train)
