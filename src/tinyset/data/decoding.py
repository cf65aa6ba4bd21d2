"""Many image files -> a cache entry: two passes in parallel, with progress, in the order of the list.

The first pass reads headers (how many sizes, is everything grey?), the second decodes. Threads, not processes: Pillow
releases the interpreter while it decodes and resizes, and a process pool would run a user's script again.
"""

import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from tinyset.data import pictures
from tinyset.data.cache import Writer
from tinyset.data.request import Request
from tinyset.errors import UserError
from tinyset.progress import Progress

LISTED = 10  # unreadable files named in a message
DEFAULT_SIDE, LARGEST_SIDE = 32, 128
BATCH = 32  # files handed to a thread at a time: one by one, the bookkeeping costs more than a small JPEG

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Picture:
    """An encoded image, where it comes from and what it shows."""

    name: str
    encoded: pictures.Encoded
    label: int
    split: str = "train"


Pictures = Callable[[], Iterable[Picture]]  # called once per pass: encoded bytes need not all be in memory


@dataclass
class _Survey:
    sizes: Counter[tuple[int, int]] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)  # those that have to be converted whatever the rest is
    grey: int = 0  # all without colour
    plain_grey: int = 0  # those that are converted only because others have colour
    bad: dict[str, str] = field(default_factory=dict)


def write_pictures(writer: Writer, source: Pictures, count: int, request: Request) -> list[str]:
    """Decode everything into `writer`; returns the sentences the user should read."""
    with pictures.quiet():
        survey = _look_at_all(source, count, request.progress)
        size = request.image_size or _natural_size(survey)
        channels = 1 if survey.grey == sum(survey.sizes.values()) else 3
        _decode_all(writer, source, count, survey, size, channels, request.progress)
    if survey.bad and (not request.skip_bad or writer.shape is None):
        raise UserError(_unreadable(survey.bad, request.skip_bad))
    return _notes(survey, size, channels, request)


def _look_at_all(source: Pictures, count: int, progress: Progress) -> _Survey:
    survey = _Survey()
    progress.start("Reading headers", count)
    for done, (picture, seen) in enumerate(_parallel(_look, source()), 1):
        if isinstance(seen, str):
            survey.bad[picture.name] = seen
        else:
            survey.sizes[seen.height, seen.width] += 1
            survey.grey += seen.grey
            if seen.kind is not None:
                survey.kinds[seen.kind] += 1
            else:
                survey.plain_grey += seen.grey
        if done % 256 == 0 or done == count:
            progress.update(done)
    return survey


def _decode_all(
    writer: Writer,
    source: Pictures,
    count: int,
    survey: _Survey,
    size: tuple[int, int],
    channels: int,
    progress: Progress,
) -> None:
    def work(picture: Picture) -> np.ndarray | str:
        if reason := survey.bad.get(picture.name):
            return reason
        try:
            return pictures.decode(picture.encoded, size, channels)
        except pictures.Unreadable as error:
            return str(error)

    progress.start("Decoding images", count)
    for done, (picture, pixels) in enumerate(_parallel(work, source()), 1):
        if isinstance(pixels, str):
            survey.bad[picture.name] = pixels
        else:
            writer.add(picture.split, pixels[None], [picture.label])
        if done % 256 == 0 or done == count:
            progress.update(done)
    progress.finish()


def _look(picture: Picture) -> pictures.Look | str:
    try:
        return pictures.look(picture.encoded)
    except pictures.Unreadable as error:
        return str(error)


def _parallel(function: Callable[[Picture], R], items: Iterable[Picture]) -> Iterator[tuple[Picture, R]]:
    """`function` of every item, in order, on all cores, with few items in flight."""
    workers = os.cpu_count() or 1
    waiting: deque[Future[list[tuple[Picture, R]]]] = deque()

    def run(batch: list[Picture]) -> list[tuple[Picture, R]]:
        return [(item, function(item)) for item in batch]

    with ThreadPoolExecutor(workers) as pool:
        try:
            for batch in _batches(items):
                waiting.append(pool.submit(run, batch))
                if len(waiting) > 2 * workers:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # Ctrl-C stops now, not after the queue


def _batches(items: Iterable[T]) -> Iterator[list[T]]:
    batch: list[T] = []
    for item in items:
        batch.append(item)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _natural_size(survey: _Survey) -> tuple[int, int]:
    """The size of the images where they have one and it is modest; else a square of DEFAULT_SIDE."""
    if len(survey.sizes) == 1:
        (size,) = survey.sizes
        if max(size) <= LARGEST_SIDE and min(size) >= 4:
            return size
    return DEFAULT_SIDE, DEFAULT_SIDE


def _unreadable(bad: dict[str, str], skipped: bool) -> str:
    count = "1 file is no readable image" if len(bad) == 1 else f"{len(bad)} files are no readable images"
    listed = ", ".join(f"{name} ({reason})" for name, reason in list(bad.items())[:LISTED])
    more = f" and {len(bad) - LISTED} more" if len(bad) > LISTED else ""
    return f"{count}: {listed}{more}" + ("." if skipped else "; leave them out with --skip-bad.")


def _notes(survey: _Survey, size: tuple[int, int], channels: int, request: Request) -> list[str]:
    notes = []
    kinds = survey.kinds + (Counter(grey=survey.plain_grey) if channels == 3 else Counter())
    if kinds:
        counted = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        target = "grey" if channels == 1 else "RGB"
        notes.append(f"{sum(kinds.values())} files were converted to 8-bit {target}: {counted}.")
    if request.image_size is None and set(survey.sizes) != {size}:
        found = "images of one size" if len(survey.sizes) == 1 else f"images of {len(survey.sizes)} sizes"
        notes.append(f"The {found} were resized and centre-cropped to {size[0]}x{size[1]}: choose with --image-size.")
    if survey.bad:
        notes.append("Left out: " + _unreadable(survey.bad, skipped=True))
    return notes
