"""The user's own images: a folder of class folders, with `train/` and `test/` (or `val/`) above them or without."""

import os
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import torch

from tinyset.data import pictures
from tinyset.data.cache import Facts, Writer, cached, file_facts
from tinyset.data.checks import duplicates_note, holdout_mask
from tinyset.data.decoding import Picture, write_pictures
from tinyset.data.imageset import Splits
from tinyset.data.request import Request
from tinyset.errors import UserError

TRAIN = ("train", "training")
TEST = ("test", "testing", "val", "valid", "validation")  # the first that is there


def load_folder(request: Request) -> Splits:
    root = Path(request.source)
    names, files = list_folder(root, request)
    asked = ["folder", file_facts(file.encoded for file in files if isinstance(file.encoded, Path)),
             [(file.split, file.label) for file in files], names, request.image_size, request.skip_bad]  # fmt: skip

    def build(writer: Writer) -> Facts:
        notes = write_pictures(writer, lambda: files, len(files), request)
        _no_empty_class(writer, names, root)
        found = writer.splits(Facts(root.name, names))
        if found.test is not None:
            notes += duplicates_note(found.train.images, found.test.images)
        return Facts(str(root), names, notes=notes)

    return cached(asked, build, request.progress.note)


def list_folder(root: Path, request: Request) -> tuple[list[str], list[Picture]]:
    """The class names and every image file with its split and label, in a fixed order."""
    folders = _subfolders(root)
    if not folders:
        what = "holds images but no class folders" if any(_images(root)) else "is empty"
        raise UserError(f"The folder {root} {what}: put the images of each class into a folder of its name.")
    train, test = _split_folders(folders)
    names = sorted(_subfolders(train or root))
    files = list(_class_files(train or root, names, "train"))
    if test is not None:
        if request.holdout is not None:
            raise UserError(f"--holdout {request.holdout:g}: {root} has a test split of its own; leave the flag out.")
        if unknown := sorted(set(_subfolders(test)) - set(names)):
            raise UserError(f"{test / unknown[0]} is a class that {train} does not have.")
        files += _class_files(test, names, "test")
    elif request.holdout is not None:
        files = _hold_out(files, len(names), request)
    return names, files


def _split_folders(folders: dict[str, Path]) -> tuple[Path | None, Path | None]:
    """`train/` and `test/`, where the names mean that: `train` beside `bus` and `tram` is a class."""
    train = next((folders[name] for name in TRAIN if name in folders), None)
    test = next((folders[name] for name in TEST if name in folders), None)
    if train is None or (test is None and len(folders) > 1) or not _subfolders(train):
        return None, None
    return train, test


def _hold_out(files: list[Picture], classes: int, request: Request) -> list[Picture]:
    assert request.holdout is not None
    labels = torch.tensor([file.label for file in files])
    mask = holdout_mask(labels, classes, request.holdout, request.seed).tolist()
    return [
        Picture(file.name, file.encoded, file.label, "test" if held else "train")
        for file, held in zip(files, mask, strict=True)
    ]


def _no_empty_class(writer: Writer, names: list[str], root: Path) -> None:
    """Said here, where the folder can be named."""
    present = set(writer.labels["train"])
    for label, name in enumerate(names):
        if label not in present:
            raise UserError(f"The class folder {name!r} of {root} holds no readable image.")


def _class_files(folder: Path, names: list[str], split: str) -> Iterator[Picture]:
    folders = _subfolders(folder)
    for label, name in enumerate(names):
        found = sorted(_images(folders[name], deep=True)) if name in folders else []
        if not found and split == "train":
            raise UserError(f"The class folder {folders[name]} holds no readable image.")
        for path in found:
            yield Picture(str(path), path, label, split)


def _subfolders(folder: Path) -> dict[str, Path]:
    """Folders by name. Names are composed (NFC), so that a disk written on a Mac gives the same classes."""
    try:
        entries = [entry for entry in os.scandir(folder) if not entry.name.startswith((".", "__MACOSX"))]
        return {unicodedata.normalize("NFC", entry.name): Path(entry.path) for entry in entries if os.path.isdir(entry)}
    except OSError as error:
        raise UserError(f"Cannot read the folder {folder}: {error.strerror or error}.") from error


def _images(folder: Path, *, deep: bool = False, above: tuple[tuple[int, int], ...] = ()) -> Iterator[Path]:
    """Image files by their ending. Links are followed; a folder that contains itself is an error, not a hang."""
    try:
        status = os.stat(folder)
        here = status.st_dev, status.st_ino
        if here in above:
            raise UserError(f"{folder} is a link to a folder above it.")
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise UserError(f"Cannot read the folder {folder}: {error.strerror or error}.") from error
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if os.path.isdir(entry.path):
            if deep:
                yield from _images(Path(entry.path), deep=True, above=(*above, here))
        elif os.path.splitext(entry.name)[1].lower() in pictures.extensions():
            yield Path(entry.path)
