"""From whatever the user names to `Splits`."""

import dataclasses
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tinyset.data.arrays import MapDataset, encode_labels, from_arrays, from_dataset
from tinyset.data.catalog import BENCHMARKS as CATALOG
from tinyset.data.checks import check, duplicates_note, with_holdout
from tinyset.data.cifar import cifar10, cifar100
from tinyset.data.folder import load_folder
from tinyset.data.imageset import ImageSet, Splits
from tinyset.data.mnist import fashionmnist, mnist
from tinyset.data.npz import load_npz
from tinyset.data.parquet import is_dataset_dir, load_parquet
from tinyset.data.request import Request, Size, parse_image_size
from tinyset.data.resize import resized
from tinyset.data.streetdigits import drawn
from tinyset.data.svhn import svhn
from tinyset.data.tinyimagenet import tinyimagenet
from tinyset.errors import UserError
from tinyset.files import cache_dir
from tinyset.progress import Progress, Silent

Loader = Callable[[Request], Splits]

BENCHMARKS: dict[str, Loader] = {
    "streetdigits": drawn,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "svhn": svhn,
    "tinyimagenet": tinyimagenet,
    "mnist": mnist,
    "fashionmnist": fashionmnist,
}
FILES: dict[str, Loader] = {".npz": load_npz, ".parquet": load_parquet}


def load_images(
    source: Any,
    *,
    data_dir: str | Path | None = None,
    image_size: Size | None = None,
    holdout: float | None = None,
    skip_bad: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> Splits:
    """`.train` and `.test` of a source.

    `source`: the name of a benchmark (looked for in `data_dir`), a path (a benchmark in its official layout, a folder of
    class folders, a `.npz`, a `.parquet`, a Hugging Face dataset directory), a map-style torch Dataset, a pair
    (images, labels), or a mapping {"train": ..., "test": ...} of those. `image_size`: resize and centre-crop to this (an
    int, (height, width) or "60x40"). `holdout`: the share of images to keep for testing where the source has no test
    split. `skip_bad`: leave unreadable files out instead of stopping.
    """
    request = Request(
        source=os.path.expanduser(source) if isinstance(source, str | Path) else "the data",
        data_dir=Path(data_dir).expanduser() if data_dir is not None else cache_dir() / "data",
        image_size=parse_image_size(image_size),
        holdout=holdout,
        skip_bad=skip_bad,
        seed=seed,
        progress=progress or Silent(),
    )
    splits = _named(request) if isinstance(source, str | Path) else _in_memory(source, request)
    size = request.image_size
    test = resized(splits.test, size) if splits.test is not None else None
    return check(dataclasses.replace(splits, train=resized(splits.train, size), test=test))


def _named(request: Request) -> Splits:
    loader = BENCHMARKS.get(request.source) or _path_loader(request)
    if loader is load_folder:  # it holds out files before they are decoded
        return load_folder(request)
    return with_holdout(loader(request), request.holdout, request.seed)


def _path_loader(request: Request) -> Loader:
    path = Path(request.source)
    if path.is_dir():
        if layouts := [name for name, benchmark in CATALOG.items() if benchmark.find(path)]:
            return _official(layouts, path)
        return load_parquet if is_dataset_dir(path) else load_folder
    if path.is_file():
        if loader := FILES.get(path.suffix.lower()):
            return loader
        raise UserError(f"{path} is neither a folder nor one of {', '.join(FILES)}.")
    raise UserError(
        f"Unknown source {request.source!r}: choose one of {', '.join(BENCHMARKS)}, or the path of a folder of class "
        "folders, a .npz, a .parquet or a Hugging Face dataset directory."
    )


def _official(layouts: list[str], path: Path) -> Loader:
    """A folder in the official layout of a benchmark is that benchmark, whatever it is called."""
    if len(layouts) > 1:
        raise UserError(f"{path} holds {', '.join(layouts)}: name one of them and add --data-dir {path}.")
    return lambda request: BENCHMARKS[layouts[0]](dataclasses.replace(request, data_dir=path))


def _in_memory(source: Any, request: Request) -> Splits:
    if isinstance(source, Mapping):
        if "train" not in source or set(source) - {"train", "test"}:
            raise UserError('A mapping of splits must hold "train", may hold "test", and nothing else.')
        train = _image_set(source["train"])
        test = _same_classes(_image_set(source["test"]), train) if source.get("test") is not None else None
    else:
        train, test = _image_set(source), None
    notes = duplicates_note(train.images, test.images) if test is not None else ()
    return with_holdout(Splits("the data", train, test, notes=notes), request.holdout, request.seed)


def _image_set(source: Any) -> ImageSet:
    if isinstance(source, ImageSet):
        return source
    if isinstance(source, tuple | list) and len(source) == 2:
        return from_arrays(source[0], source[1])
    if isinstance(source, MapDataset):
        return from_dataset(source)
    raise UserError(f"Images must be a name, a path, (images, labels) or a Dataset, not a {type(source).__name__}.")


def _same_classes(test: ImageSet, train: ImageSet) -> ImageSet:
    """`test` with its labels numbered as in `train`."""
    if test.class_names == train.class_names:
        return test
    index, _ = encode_labels([test.class_names[label] for label in test.labels], train.class_names)
    return dataclasses.replace(test, labels=index, class_names=train.class_names)
