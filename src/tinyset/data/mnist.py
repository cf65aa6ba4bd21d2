"""MNIST (LeCun et al. 1998) and Fashion-MNIST (Xiao et al. 2017) from their IDX files, gzipped or not."""

from pathlib import Path

from tinyset.data.cache import Facts, Writer, cached, file_facts
from tinyset.data.idx import read_idx
from tinyset.data.imageset import Splits
from tinyset.data.request import Request, not_here
from tinyset.errors import UserError

STATS = {"mnist": ((0.1307,), (0.3081,)), "fashionmnist": ((0.2861,), (0.3530,))}
CLASSES = {
    "mnist": tuple("0123456789"),
    "fashionmnist": ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag",
                     "Ankle boot"),
}  # fmt: skip
FOLDERS = {"mnist": ("mnist", "MNIST/raw"), "fashionmnist": ("fashionmnist", "FashionMNIST/raw", "fashion-mnist")}
PREFIX = {"train": "train", "test": "t10k"}
PARTS = {"images": ("images-idx3-ubyte", "images.idx3-ubyte"), "labels": ("labels-idx1-ubyte", "labels.idx1-ubyte")}


def mnist(request: Request) -> Splits:
    return _mnist("mnist", request)


def fashionmnist(request: Request) -> Splits:
    return _mnist("fashionmnist", request)


def find(name: str, data_dir: Path) -> dict[tuple[str, str], Path] | None:
    """The four files by (split, part). Both sets name them alike, so each lives in a folder of its own name."""
    folders = [data_dir / folder for folder in FOLDERS[name]]
    if data_dir.name.lower().replace("-", "") == name:
        folders.append(data_dir)
    for folder in folders:
        found = {
            (split, part): path
            for split, prefix in PREFIX.items()
            for part, endings in PARTS.items()
            for path in (folder / f"{prefix}-{ending}{gz}" for ending in reversed(endings) for gz in (".gz", ""))
            if path.is_file()
        }
        if len(found) == 4:
            return found
    return None


def _mnist(name: str, request: Request) -> Splits:
    files = find(name, request.data_dir)
    if files is None:
        raise not_here(name, request.data_dir)

    def build(writer: Writer) -> Facts:
        for split in PREFIX:
            images, labels = read_idx(files[split, "images"], 3), read_idx(files[split, "labels"], 1)
            if len(images) != len(labels):
                where = files[split, "labels"]
                raise UserError(f"{where} holds {len(labels)} labels for {len(images)} images.")
            if not images.size or labels.max() > 9:
                raise UserError(f"{files[split, 'labels']} holds labels outside 0..9, or none.")
            writer.add(split, images[:, None], labels)
        return Facts(name, CLASSES[name], STATS[name], mirror=name != "mnist")

    return cached([name, file_facts(files.values())], build, request.progress.note)
