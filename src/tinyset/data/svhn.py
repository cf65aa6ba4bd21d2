"""SVHN (Netzer et al. 2011), format 2: `train_32x32.mat` and `test_32x32.mat`; the label 10 means the digit 0."""

import zlib
from pathlib import Path
from typing import Any

import numpy as np

from tinyset.data.cache import Facts, Writer, cached, file_facts
from tinyset.data.imageset import Splits
from tinyset.data.matcheck import Variable, check_mat
from tinyset.data.request import Request, not_here
from tinyset.errors import UserError, needs_extra

STATS = ((0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970))
FILES = {"train": "train_32x32.mat", "test": "test_32x32.mat"}
CHUNK = 4096


def svhn(request: Request) -> Splits:
    files = find(request.data_dir)
    if files is None:
        raise not_here("svhn", request.data_dir)

    def build(writer: Writer) -> Facts:
        for split, path in files.items():
            images, labels = read_mat(path)
            for start in range(0, len(labels), CHUNK):
                part = images[..., start : start + CHUNK].transpose(3, 2, 0, 1)
                writer.add(split, part, labels[start : start + CHUNK] % 10)
        return Facts("svhn", tuple("0123456789"), STATS, mirror=False)

    return cached(["svhn", file_facts(files.values())], build, request.progress.note)


def find(data_dir: Path) -> dict[str, Path] | None:
    for folder in (data_dir / "svhn", data_dir / "SVHN", data_dir):
        files = {split: folder / name for split, name in FILES.items()}
        if all(path.is_file() for path in files.values()):
            return files
    return None


def read_mat(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """X (32 x 32 x 3 x N, uint8) and y (N labels of 1..10)."""
    try:
        from scipy.io import loadmat, matlab
    except ImportError:
        raise needs_extra("scipy", "mat", "Reading SVHN's .mat files") from None
    _check_variables(path, check_mat(path))
    try:
        content = loadmat(path, variable_names=["X", "y"])
    except (matlab.MatReadError, zlib.error, OSError, MemoryError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path} is not a readable MATLAB file ({type(error).__name__}).") from error
    return _checked(path, content)


def _check_variables(path: Path, variables: dict[str, Variable]) -> None:
    images, labels = variables.get("X"), variables.get("y")
    if images is None or images.shape[:3] != (32, 32, 3) or len(images.shape) != 4 or images.kind != "uint8":
        raise UserError(f"{path} holds no X of 32 x 32 x 3 x N bytes.")
    count = images.shape[3]
    if labels is None or labels.shape not in ((count, 1), (1, count)) or not count:
        raise UserError(f"{path} does not hold one label for each of its {count} images.")


def _checked(path: Path, content: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    images, labels = content.get("X"), content.get("y")
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.ndim != 4:
        raise UserError(f"{path} holds no X of 32 x 32 x 3 x N bytes.")
    if not isinstance(labels, np.ndarray) or labels.dtype.kind not in "iuf" or labels.size != images.shape[3]:
        raise UserError(f"{path} does not hold one label for each of its {images.shape[3]} images.")
    flat = labels.reshape(-1)
    if not ((flat >= 1) & (flat <= 10) & (flat == np.floor(flat))).all():
        raise UserError(f"{path} holds labels outside 1..10.")
    return images, flat.astype(np.int64)
