"""Parquet files and Hugging Face dataset directories (as downloaded, or as `save_to_disk` writes them).

Read with pyarrow alone: Arrow carries the class names in its schema, and no code of a dataset is ever run.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tinyset.data.arrays import as_labels, index_of
from tinyset.data.cache import Facts, Writer, cached, file_facts
from tinyset.data.checks import duplicates_note
from tinyset.data.decoding import Picture, write_pictures
from tinyset.data.imageset import Splits
from tinyset.data.request import Request
from tinyset.errors import UserError, needs_extra

IMAGE_COLUMNS = ("image", "img", "jpg", "png", "picture", "pixel_values")
LABEL_COLUMNS = ("label", "labels", "fine_label", "class", "category", "target")
TEST_WORDS = ("test", "validation", "valid", "val", "dev")  # the first that is there
ROWS = 256


def is_dataset_dir(folder: Path) -> bool:
    return bool(_tables(folder))


def load_parquet(request: Request) -> Splits:
    source = Path(request.source)
    files = {"train": [source]} if source.is_file() else _by_split(source)
    tables = {split: [_open(path) for path in paths] for split, paths in files.items()}
    asked = ["parquet", {split: file_facts(paths) for split, paths in files.items()}, request.image_size,
             request.skip_bad]  # fmt: skip

    def build(writer: Writer) -> Facts:
        labels, names = _labels(tables, source)

        def read() -> Iterator[Picture]:
            for split, parts in tables.items():
                numbers = iter(labels[split].tolist())
                for table in parts:
                    for row, encoded in enumerate(table.images()):
                        yield Picture(f"{table.path}, row {row}", encoded, next(numbers), split)

        count = sum(len(values) for values in labels.values())
        notes = write_pictures(writer, read, count, request)
        found = writer.splits(Facts("", names))
        if found.test is not None:
            notes += duplicates_note(found.train.images, found.test.images)
        return Facts(str(source), names, notes=notes)

    return cached(asked, build, request.progress.note)


@dataclass(frozen=True)
class _Table:
    """One file: where its images and labels are."""

    path: Path
    image: str
    label: str
    class_names: tuple[str, ...] | None

    def images(self) -> Iterator[bytes]:
        for values in _column(self.path, self.image):
            for value in values.to_pylist():
                content = value.get("bytes") if isinstance(value, dict) else value
                yield content if isinstance(content, bytes) else b""  # reported by row as no image

    def labels(self) -> list[Any]:
        return [value for values in _column(self.path, self.label) for value in values.to_pylist()]


def _arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError:
        raise needs_extra("pyarrow", "hf", "Reading parquet and Hugging Face datasets") from None
    return pyarrow


def _open(path: Path) -> _Table:
    pyarrow = _arrow()
    try:
        if path.suffix == ".parquet":
            schema = pyarrow.parquet.read_schema(path)
        else:
            with pyarrow.memory_map(str(path)) as file:
                schema = pyarrow.ipc.open_stream(file).schema
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise UserError(f"{path} is not a readable {path.suffix[1:]} file ({type(error).__name__}).") from error
    image = _find(schema.names, IMAGE_COLUMNS, "image", path)
    label = _find(schema.names, LABEL_COLUMNS, "label", path)
    kind = schema.field(image).type
    if not (pyarrow.types.is_struct(kind) or pyarrow.types.is_binary(kind) or pyarrow.types.is_large_binary(kind)):
        raise UserError(f"{path}: the column {image} holds {kind}, not encoded images.")
    return _Table(path, image, label, _class_names(schema.metadata, label))


def _find(columns: list[str], wanted: tuple[str, ...], what: str, path: Path) -> str:
    for name in wanted:
        if name in columns:
            return name
    raise UserError(f"{path} has no {what} column ({', '.join(wanted)}): its columns are {', '.join(columns[:10])}.")


def _class_names(metadata: dict[bytes, bytes] | None, label: str) -> tuple[str, ...] | None:
    """The names of a Hugging Face ClassLabel, where the schema has them."""
    try:
        names = json.loads((metadata or {})[b"huggingface"])["info"]["features"][label]["names"]
        return tuple(str(name) for name in names)
    except (KeyError, TypeError, ValueError):
        return None


def _column(path: Path, name: str) -> Iterator[Any]:
    """The column in batches: a file may be larger than memory."""
    pyarrow = _arrow()
    try:
        if path.suffix == ".parquet":
            with pyarrow.parquet.ParquetFile(path) as file:
                for batch in file.iter_batches(ROWS, columns=[name]):
                    yield batch.column(0)
        else:
            with pyarrow.memory_map(str(path)) as source:
                for batch in pyarrow.ipc.open_stream(source):
                    yield batch.column(name)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise UserError(f"{path} is damaged ({type(error).__name__}).") from error


def _labels(tables: dict[str, list[_Table]], source: Path) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """Labels of every split as 0..C-1, and the class names."""
    values = {split: as_labels([label for part in parts for label in part.labels()]) for split, parts in tables.items()}
    names = tables["train"][0].class_names
    if names is None or values["train"].dtype.kind == "U":
        known = np.unique(values["train"])
        names = tuple(str(value) for value in known)
    else:
        known = np.arange(len(names))
        used = np.unique(values["train"])  # a subset of a labelled set keeps only the classes it has
        if 0 < len(used) < len(names) and used[0] >= 0 and used[-1] < len(names):
            known, names = used, tuple(names[i] for i in used)
    return {
        split: index_of(part, known, f"The {split} labels of {source}").numpy() for split, part in values.items()
    }, names


def _tables(folder: Path) -> list[Path]:
    """Parquet files up to two folders down, or the Arrow files beside a `state.json`."""
    found = [path for pattern in ("*.parquet", "*/*.parquet", "*/*/*.parquet") for path in folder.glob(pattern)]
    if not found:
        found = [path for state in (*folder.glob("state.json"), *folder.glob("*/state.json"))
                 for path in state.parent.glob("data-*.arrow")]  # fmt: skip
    return sorted(path for path in found if path.is_file())


def _by_split(folder: Path) -> dict[str, list[Path]]:
    """Files by the split their name or folder says; names that say nothing are training data."""
    words: dict[str, list[Path]] = {}
    for path in _tables(folder):
        inside = path.relative_to(folder)
        said = [part.split("-")[0].split(".")[0].lower() for part in (inside.name, *inside.parts[:-1])]
        word = next((word for word in said if word == "train" or word in TEST_WORDS), "train")
        words.setdefault(word, []).append(path)
    test = next((word for word in TEST_WORDS if word in words), None)
    if "train" not in words:
        raise UserError(f"{folder} holds no training files: its splits are {', '.join(words)}.")
    return {"train": words["train"]} | ({"test": words[test]} if test else {})
