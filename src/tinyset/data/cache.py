"""Decoded images on disk, memory-mapped: the second start reads no JPEG, and data may be larger than memory.

An entry is a folder `<cache>/decoded/<key>` of raw uint8 pixels (`train.u8`, `test.u8`) and a checksummed `index` of
everything else. The key is a fingerprint of what was asked for and of every file behind it: path, size, time. The
folder is written beside its place and renamed into it, so that it is whole or absent; a damaged one is made again.
"""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from tinyset.data.checks import check
from tinyset.data.imageset import ImageSet, Splits
from tinyset.errors import RunError, TinysetError
from tinyset.files import cache_dir, load_tree, lock, save_tree

VERSION = 1
SAMPLES, BLOCK = 64, 1 << 16  # blocks hashed on every start: all of a small file, a spread of a large one
INDEX = "index.safetensors"


@dataclass(frozen=True)
class Facts:
    """What a source says about its images besides pixels and labels."""

    name: str
    class_names: Sequence[str]
    stats: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    mirror: bool = True
    notes: Sequence[str] = ()


Build = Callable[["Writer"], Facts]


class Writer:
    """Takes images as they are decoded and puts them straight on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shape: tuple[int, ...] | None = None
        self.labels: dict[str, list[int]] = {"train": [], "test": []}
        self._files: dict[str, IO[bytes]] = {}

    def add(self, split: str, images: np.ndarray, labels: Iterable[int]) -> None:
        """N x C x H x W uint8 and their N labels, at the end of `split`."""
        self.shape = self.shape or images.shape[1:]
        if images.shape[1:] != self.shape or images.dtype != np.uint8:
            raise ValueError(f"images of {images.shape[1:]} {images.dtype} beside {self.shape} uint8")
        if split not in self._files:
            self._files[split] = open(self.folder / f"{split}.u8", "wb")  # noqa: SIM115 - closed by `close`
        self._files[split].write(np.ascontiguousarray(images).data)
        self.labels[split] += [int(label) for label in labels]

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def splits(self, facts: Facts) -> Splits:
        """What was added, mapped from disk."""
        self.close()
        if self.shape is None:
            raise ValueError("nothing was added")
        train, test = (
            ImageSet(
                _mapped(self.folder, split, len(labels), self.shape),
                torch.tensor(labels, dtype=torch.int64),
                tuple(facts.class_names),
                facts.stats,
            )
            for split, labels in self.labels.items()
        )
        return Splits(facts.name, train, test if len(test) else None, facts.mirror, tuple(facts.notes))


def file_facts(paths: Iterable[Path]) -> list[tuple[str, int, int]]:
    """Path, size and time of every file: what the key of an entry is made of."""
    return [(str(path), *_size_and_time(path)) for path in paths]


def _size_and_time(path: Path) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError:  # a broken link: whoever reads it will say so
        return -1, 0
    return status.st_size, status.st_mtime_ns


def cached(asked: Any, build: Build, note: Callable[[str], None]) -> Splits:
    """The entry for `asked` (anything JSON can write), built by `build` where it is not there."""
    text = json.dumps([VERSION, asked], sort_keys=True, default=str)
    key = hashlib.sha256(text.encode()).hexdigest()[:32]
    place = cache_dir() / "decoded" / key
    if (found := _read(place, note)) is not None:
        return found
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(place, error) from error
    # a second process waits instead of decoding too; the lock file stays, removing it would let a third one in
    guard = lock(place.with_name(f".{key}.lock"), wait=True, busy="")
    try:
        if (found := _read(place, lambda _: None)) is not None:
            return found
        _write(place, build)
    finally:
        guard.release()
    if (found := _read(place, note)) is None:
        raise RunError(f"The cache {place} cannot be read back: is the disk healthy?")
    return found


def _write(place: Path, build: Build) -> None:
    folder = place.with_name(f".{place.name}.partial")
    writer = Writer(folder)
    try:
        shutil.rmtree(folder, ignore_errors=True)  # of a process that was killed: the lock is ours now
        folder.mkdir()
        splits = writer.splits(build(writer))
        check(splits)
        save_tree(folder / INDEX, _index(folder, splits))
        shutil.rmtree(place, ignore_errors=True)
        os.rename(folder, place)
    except OSError as error:
        raise _unwritable(place, error) from error
    finally:
        writer.close()
        shutil.rmtree(folder, ignore_errors=True)


def _unwritable(place: Path, error: OSError) -> RunError:
    return RunError(f"Cannot write the cache {place.parent}: {error.strerror or error}.")


def _index(folder: Path, splits: Splits) -> dict[str, Any]:
    parts = {"train": splits.train} | ({"test": splits.test} if splits.test is not None else {})
    return {
        "name": splits.name,
        "mirror": splits.mirror,
        "notes": list(splits.notes),
        "class_names": list(splits.class_names),
        "shape": list(splits.train.image_shape),
        "splits": {
            split: {
                "labels": part.labels,
                "stats": [list(values) for values in part.stats],
                "fingerprint": part.fingerprint,
                "sample": _sample(folder / f"{split}.u8"),
            }
            for split, part in parts.items()
        },
    }


def _read(place: Path, note: Callable[[str], None]) -> Splits | None:
    if not place.is_dir():
        return None
    try:
        index = load_tree(place / INDEX, "cache")
        parts = {split: _part(place, index, split) for split in index["splits"]}
    except (TinysetError, OSError, KeyError, TypeError, ValueError):
        note(f"The cache {place} is damaged and is made again.")
        return None
    with contextlib.suppress(OSError):
        os.utime(place)  # whoever cleans up can see what is in use
    notes = tuple(index["notes"])
    return Splits(index["name"], parts["train"], parts.get("test"), mirror=index["mirror"], notes=notes)


def _part(place: Path, index: dict[str, Any], split: str) -> ImageSet:
    facts = index["splits"][split]
    path, labels = place / f"{split}.u8", facts["labels"]
    images = _mapped(place, split, len(labels), tuple(index["shape"]))
    if _sample(path) != facts["sample"]:
        raise ValueError(f"{path} has changed")
    mean, std = (tuple(values) for values in facts["stats"])
    return ImageSet(images, labels, tuple(index["class_names"]), (mean, std), facts["fingerprint"])


def _mapped(folder: Path, split: str, count: int, shape: tuple[int, ...]) -> torch.Tensor:
    if not count:
        return torch.empty(0, *shape, dtype=torch.uint8)
    path = folder / f"{split}.u8"
    if path.stat().st_size != count * int(np.prod(shape)):
        raise ValueError(f"{path} has a wrong size")
    # copy-on-write: torch wants writable memory, and the file stays as it is
    return torch.from_numpy(np.memmap(path, np.uint8, "c", shape=(count, *shape)))


def _sample(path: Path) -> str:
    """A hash of SAMPLES blocks spread over the file, ends included: most damage shows, in milliseconds."""
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with open(path, "rb") as file:
        for i in range(SAMPLES):
            file.seek((size - min(size, BLOCK)) * i // (SAMPLES - 1))
            digest.update(file.read(BLOCK))
    return digest.hexdigest()
