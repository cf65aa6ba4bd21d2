"""TinyImageNet (Le & Yang 2015): the class folders as distributed, or the zip itself; 200 classes or some of them."""

import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tinyset.data.cache import Facts, Writer, cached, file_facts
from tinyset.data.decoding import Picture, write_pictures
from tinyset.data.imageset import Splits
from tinyset.data.pictures import MAX_BYTES, Encoded
from tinyset.data.request import Request, not_here
from tinyset.errors import UserError

STATS = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # ImageNet's, as the papers use them
FOLDER, ARCHIVE = "tiny-imagenet-200", "tiny-imagenet-200.zip"


@dataclass(frozen=True)
class _Tree:
    """The files of the data set, wherever they are, by their path inside `tiny-imagenet-200`."""

    place: Path
    names: list[str]
    open: Callable[[str], Encoded]

    def text(self, name: str) -> list[list[str]]:
        """The tab-separated fields of a text file's lines."""
        content = self.open(name)
        raw = content.read_bytes() if isinstance(content, Path) else content
        return [line.split("\t") for line in raw.decode("utf-8", "replace").splitlines() if line.strip()]


def tinyimagenet(request: Request) -> Splits:
    place = find(request.data_dir)
    if place is None:
        raise not_here("tinyimagenet", request.data_dir)
    tree = _folder(place) if place.is_dir() else _archive(place)
    classes = _classes(tree)
    pictures = list(_pictures(tree, list(classes)))
    if not pictures:
        raise UserError(f"{place} holds no training images.")
    facts = file_facts(place / name for _, name, _ in pictures) if place.is_dir() else file_facts([place])

    def read() -> Iterator[Picture]:
        return (Picture(f"{place}/{name}", tree.open(name), label, split) for split, name, label in pictures)

    def build(writer: Writer) -> Facts:
        notes = write_pictures(writer, read, len(pictures), request)
        return Facts("tinyimagenet", list(classes.values()), STATS, notes=notes)

    asked = ["tinyimagenet", facts, request.image_size, request.skip_bad]
    return cached(asked, build, request.progress.note)


def find(data_dir: Path) -> Path | None:
    for folder in (data_dir / FOLDER, data_dir / "tinyimagenet" / FOLDER, data_dir):
        if (folder / "wnids.txt").is_file() and (folder / "train").is_dir():
            return folder
    for archive in (data_dir / ARCHIVE, data_dir / "tinyimagenet" / ARCHIVE):
        if archive.is_file():
            return archive
    return None


def _folder(place: Path) -> _Tree:
    names = [
        f"{Path(folder).relative_to(place).as_posix()}/{file}".removeprefix("./")
        for folder, _, files in os.walk(place)
        for file in files
    ]
    return _Tree(place, sorted(names), lambda name: place / name)


def _archive(place: Path) -> _Tree:
    """The zip is read where it lies: nothing is extracted, so nothing can land outside its destination."""
    try:
        archive = zipfile.ZipFile(place)
    except (zipfile.BadZipFile, OSError) as error:
        raise UserError(f"{place} is not a readable zip file ({error}).") from error
    members = {name.removeprefix(f"{FOLDER}/"): name for name in archive.namelist() if not name.endswith("/")}

    def read(name: str) -> bytes:
        try:
            info = archive.getinfo(members[name])
            return archive.read(info) if info.file_size <= MAX_BYTES else b""
        except (zipfile.BadZipFile, zlib.error, OSError, EOFError, KeyError, RuntimeError, NotImplementedError):
            return b""  # reported with the unreadable images, by name

    return _Tree(place, sorted(members), read)


def _classes(tree: _Tree) -> dict[str, str]:
    """From WordNet id to name, in the order of wnids.txt, for the ids that have images."""
    if "wnids.txt" not in tree.names:
        raise UserError(f"{tree.place} holds no wnids.txt.")
    present = {name.split("/")[1] for name in tree.names if name.startswith("train/") and name.count("/") >= 2}
    ids = [fields[0].strip() for fields in tree.text("wnids.txt") if fields[0].strip() in present]
    words = {fields[0]: fields[-1] for fields in tree.text("words.txt")} if "words.txt" in tree.names else {}
    short = {wnid: words.get(wnid, wnid).split(",")[0].strip() or wnid for wnid in ids}
    taken = list(short.values())
    return {wnid: name if taken.count(name) == 1 else f"{name} ({wnid})" for wnid, name in short.items()}


def _pictures(tree: _Tree, ids: list[str]) -> Iterator[tuple[str, str, int]]:
    """(split, name, label) of every image: training ones by folder, validation ones by annotation or by folder."""
    label = {wnid: i for i, wnid in enumerate(ids)}
    annotated = _annotations(tree)
    for name in tree.names:
        parts = name.split("/")
        if not name.lower().endswith((".jpeg", ".jpg", ".png")) or len(parts) < 3:
            continue
        if parts[0] == "train" and parts[1] in label:
            yield "train", name, label[parts[1]]
        elif parts[0] == "val" and (wnid := annotated.get(parts[-1], parts[1])) in label:
            yield "test", name, label[wnid]


def _annotations(tree: _Tree) -> dict[str, str]:
    name = "val/val_annotations.txt"
    return {fields[0]: fields[1] for fields in tree.text(name) if len(fields) > 1} if name in tree.names else {}
