"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009) from the official python pickles, extracted or as tar.gz."""

import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tinyset.data import pickles
from tinyset.data.cache import Facts, Writer, cached, file_facts
from tinyset.data.imageset import Splits
from tinyset.data.request import Request, not_here
from tinyset.errors import UserError

Read = Callable[[str], bytes]

STATS = {
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "cifar100": ((0.5071, 0.4866, 0.4409), (0.2673, 0.2564, 0.2762)),
}
FOLDERS = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}
ARCHIVES = {"cifar10": "cifar-10-python.tar.gz", "cifar100": "cifar-100-python.tar.gz"}
BATCHES = {
    "cifar10": {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]},
    "cifar100": {"train": ["train"], "test": ["test"]},
}
MAX_ARCHIVE = 4 * pickles.MAX_BYTES
META = {"cifar10": ("batches.meta", "label_names"), "cifar100": ("meta", "fine_label_names")}


def cifar10(request: Request) -> Splits:
    return _cifar("cifar10", request)


def cifar100(request: Request) -> Splits:
    return _cifar("cifar100", request)


def find(name: str, data_dir: Path) -> Path | None:
    """The extracted folder or the archive, whichever is there."""
    meta = META[name][0]
    for folder in (data_dir / FOLDERS[name], data_dir / name / FOLDERS[name], data_dir):
        if (folder / meta).is_file() and (folder / BATCHES[name]["test"][0]).is_file():
            return folder
    for archive in (data_dir / ARCHIVES[name], data_dir / name / ARCHIVES[name]):
        if archive.is_file():
            return archive
    return None


def _cifar(name: str, request: Request) -> Splits:
    place = find(name, request.data_dir)
    if place is None:
        raise not_here(name, request.data_dir)
    needed = [META[name][0], *BATCHES[name]["train"], *BATCHES[name]["test"]]
    if place.is_dir():
        if missing := [file for file in needed if not (place / file).is_file()]:
            raise UserError(f"{place / missing[0]} is missing.")
        facts = file_facts(place / file for file in needed)
    else:
        facts = file_facts([place])

    def build(writer: Writer) -> Facts:
        read = _folder_reader(place) if place.is_dir() else _archive_reader(place, set(needed))
        names = _class_names(read, place, *META[name])
        for split, batches in BATCHES[name].items():
            for batch in batches:
                images, labels = _batch(read(batch), place / batch, len(names))
                writer.add(split, images, labels)
        return Facts(name, names, STATS[name])

    return cached([name, facts], build, request.progress.note)


def _folder_reader(folder: Path) -> Read:
    return lambda name: (folder / name).read_bytes()


def _archive_reader(archive: Path, wanted: set[str]) -> Read:
    """The wanted members, read into memory: nothing is extracted, so nothing can land outside its destination."""
    found: dict[str, bytes] = {}
    passed = 0
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                passed += member.size
                if passed > MAX_ARCHIVE:
                    raise UserError(f"{archive} holds more than CIFAR: a decompression bomb.")
                name = member.name.rpartition("/")[2]
                if name in wanted and member.isfile() and member.size <= pickles.MAX_BYTES:
                    file = tar.extractfile(member)
                    found[name] = file.read() if file else b""
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise UserError(f"{archive} is not a readable tar.gz ({error}).") from error
    if missing := sorted(wanted - set(found)):
        raise UserError(f"{archive} holds no {missing[0]}.")
    return found.__getitem__


def _class_names(read: Read, place: Path, file: str, key: str) -> list[str]:
    names = _dictionary(read(file), place / file).get(key)
    if not isinstance(names, list) or not 2 <= len(names) <= 1000:
        raise UserError(f"{place / file} holds no {key}.")
    return [name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name) for name in names]


def _batch(data: bytes, path: Path, classes: int) -> tuple[np.ndarray, list[int]]:
    batch = _dictionary(data, path)
    pixels, labels = batch.get("data"), batch.get("labels", batch.get("fine_labels"))
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != 3072:
        raise UserError(f"{path} holds no N x 3072 array of bytes under 'data'.")
    if not isinstance(labels, list) or len(labels) != len(pixels):
        raise UserError(f"{path} does not hold one label for each image.")
    if not all(isinstance(label, int) and 0 <= label < classes for label in labels):
        raise UserError(f"{path} holds labels outside 0..{classes - 1}.")
    return pixels.reshape(-1, 3, 32, 32), labels


def _dictionary(data: bytes, path: Path) -> dict[str, Any]:
    try:
        content = pickles.loads(data)
    except pickles.Refused as error:
        raise UserError(f"{path} is refused: {error}.") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} holds no dict.")
    return {key.decode("latin-1") if isinstance(key, bytes) else str(key): value for key, value in content.items()}
