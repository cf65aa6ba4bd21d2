"""`.npz` files: images and labels under the names people use, with a test split where there is one."""

import ast
import math
import re
import zipfile
import zlib
from pathlib import Path
from typing import IO

import numpy as np
import torch

from tinyset.data.arrays import as_labels, index_of, to_uint8
from tinyset.data.cache import Facts, Writer, cached, file_facts
from tinyset.data.checks import duplicates_note
from tinyset.data.imageset import Splits
from tinyset.data.limits import DEFLATE_RATIO, fits_memory
from tinyset.data.request import Request
from tinyset.errors import UserError

# (images, labels) as numpy, Keras, MedMNIST and our own users name them
TRAIN = [("train_images", "train_labels"), ("x_train", "y_train"), ("X_train", "y_train"), ("images", "labels"),
         ("x", "y"), ("X", "y"), ("data", "labels"), ("arr_0", "arr_1")]  # fmt: skip
TEST = [("test_images", "test_labels"), ("x_test", "y_test"), ("X_test", "y_test"), ("val_images", "val_labels"),
        ("x_val", "y_val"), ("arr_2", "arr_3")]  # fmt: skip
MAX_HEADER = 4096
# what zipfile, zlib, numpy and literal_eval raise on damaged bytes; a deep literal exhausts the parser's stack
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, OSError, EOFError, MemoryError, RecursionError, RuntimeError, NotImplementedError,
    ValueError, TypeError, KeyError, IndexError, SyntaxError, OverflowError,
)  # fmt: skip


class _Objects(Exception):
    """An array of Python objects: numpy would unpickle it."""


def load_npz(request: Request) -> Splits:
    path = Path(request.source)

    def build(writer: Writer) -> Facts:
        arrays = read_npz(path)
        images, labels = _pair(arrays, TRAIN, path)
        names_given = arrays["class_names"].tolist() if "class_names" in arrays else None
        values = as_labels(labels)
        known, names = _classes(values, names_given)
        train = to_uint8(images)
        _add(writer, "train", train.numpy(), index_of(values, known, f"The labels of {path}"), path)
        notes: tuple[str, ...] = ()
        if any(key in arrays for key, _ in TEST):
            images, labels = _pair(arrays, TEST, path)
            test = to_uint8(images)
            _add(writer, "test", test.numpy(), index_of(as_labels(labels), known, f"The test labels of {path}"), path)
            notes = duplicates_note(train, test)
        return Facts(path.name, names, notes=notes)

    return cached(["npz", file_facts([path])], build, request.progress.note)


def _add(writer: Writer, split: str, images: np.ndarray, labels: torch.Tensor, path: Path) -> None:
    if len(images) != len(labels):
        raise UserError(f"{path} holds {len(images)} {split} images and {len(labels)} labels.")
    if writer.shape is not None and writer.shape != images.shape[1:]:
        raise UserError(f"{path} holds training and test images of different shapes.")
    writer.add(split, images, labels.tolist())


def _classes(values: np.ndarray, given: list[str] | None) -> tuple[np.ndarray, tuple[str, ...]]:
    """The label values and the names of the classes they stand for."""
    known = np.unique(values)
    if given is None:
        return known, tuple(str(value) for value in known)
    names = tuple(str(name) for name in given)
    return (np.array(names) if values.dtype.kind == "U" else np.arange(len(names))), names


def _pair(arrays: dict[str, np.ndarray], choices: list[tuple[str, str]], path: Path) -> tuple[np.ndarray, np.ndarray]:
    for images, labels in choices:
        if images in arrays and labels in arrays:
            return arrays[images], arrays[labels]
    held = ", ".join(list(arrays)[:8]) or "nothing"
    raise UserError(
        f"{path} must hold arrays named {choices[0][0]} and {choices[0][1]} (or images and labels): it holds {held}."
    )


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """All arrays, never a pickle; sizes are compared with the headers before memory is asked for."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith(".npy")]
            return {name.removesuffix(".npy"): _member(archive, name, path) for name in names[:64]}
    except _Objects:
        raise UserError(f"{path} holds Python objects, which are never loaded.") from None
    except _DAMAGE as error:
        raise UserError(f"{path} is not a readable .npz file ({type(error).__name__}).") from error


def _member(archive: zipfile.ZipFile, name: str, path: Path) -> np.ndarray:
    info = archive.getinfo(name)
    with archive.open(info) as file:
        shape, dtype, fortran = _header(file)
        size = math.prod(shape) * dtype.itemsize
        if size + 10 > info.file_size or info.file_size > DEFLATE_RATIO * max(info.compress_size, 1):
            raise UserError(f"{path}: the array {name} lies about its shape {shape}.")
        fits_memory(size, f"The array {name} of {path}")
        content = file.read(size)
        if len(content) != size:
            raise UserError(f"{path}: the array {name} is cut short.")
    return np.frombuffer(content, dtype).reshape(shape, order="F" if fortran else "C")


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype, bool]:
    """Shape, type and order. Read here and not by numpy, which hands damaged headers to Python's tokenizer."""
    magic = file.read(8)
    width = {1: 2, 2: 4, 3: 4}.get(magic[6]) if len(magic) == 8 and magic[:6] == b"\x93NUMPY" else None
    if width is None:
        raise ValueError("no array")
    length = int.from_bytes(file.read(width), "little")
    if length > MAX_HEADER:
        raise ValueError("a header that is too long")
    fields = ast.literal_eval(file.read(length).decode("latin-1").strip())
    descr, fortran, shape = fields["descr"], fields["fortran_order"], fields["shape"]
    if "O" in str(descr):
        raise _Objects
    if not isinstance(descr, str) or not re.fullmatch(r"[<>|=]?[biufSU]\d{1,6}", descr):
        raise ValueError("a type that is neither numbers nor text")
    if not isinstance(shape, tuple) or not all(type(side) is int and side >= 0 for side in shape):
        raise ValueError("no shape")
    return shape, np.dtype(descr), bool(fortran)
