"""Tiny files in the official formats, for tests."""

import gzip
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np

from .conftest import picture


def cifar10(folder: Path, per_batch: int = 20, seed: int = 0) -> Path:
    out = folder / "cifar-10-batches-py"
    out.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        batch = {
            "data": rng.integers(0, 256, (per_batch, 3072), dtype=np.uint8),
            "labels": [i % 10 for i in range(per_batch)],
        }
        (out / name).write_bytes(pickle.dumps(batch, protocol=2))
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    (out / "batches.meta").write_bytes(pickle.dumps({"label_names": names}, protocol=2))
    return out


def cifar100(folder: Path, count: int = 200) -> Path:
    out = folder / "cifar-100-python"
    out.mkdir(parents=True)
    for name in ("train", "test"):
        data = np.random.default_rng(len(name)).integers(0, 256, (count, 3072), dtype=np.uint8)
        fine = [i % 100 for i in range(count)]
        batch = {b"data": data, b"fine_labels": fine, b"coarse_labels": [label // 5 for label in fine]}
        (out / name).write_bytes(pickle.dumps(batch, protocol=2))
    meta = {"fine_label_names": [f"fine {i}" for i in range(100)], "coarse_label_names": ["c"] * 20}
    (out / "meta").write_bytes(pickle.dumps(meta, protocol=2))
    return out


def tar(folder: Path, target: Path) -> Path:
    """`folder` as the official archive holds it."""
    with tarfile.open(target, "w:gz") as archive:
        archive.add(folder, folder.name)
    return target


def svhn(folder: Path, count: int = 20, *, compressed: bool = True) -> Path:
    from scipy.io import savemat

    out = folder / "svhn"
    out.mkdir(parents=True)
    for split in ("train", "test"):
        images = np.random.default_rng(len(split)).integers(0, 256, (32, 32, 3, count), dtype=np.uint8)
        labels = (np.arange(count, dtype=np.uint8) % 10 + 1)[:, None]
        savemat(out / f"{split}_32x32.mat", {"X": images, "y": labels}, do_compression=compressed)
    return out


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def mnist(folder: Path, name: str = "mnist", count: int = 20, *, zipped: bool = True) -> Path:
    out = folder / name
    out.mkdir(parents=True)
    for prefix in ("train", "t10k"):
        images = np.random.default_rng(len(prefix)).integers(0, 256, (count, 28, 28), dtype=np.uint8)
        for part, array in (("images-idx3", images), ("labels-idx1", np.arange(count, dtype=np.uint8) % 10)):
            raw = idx(array)
            path = out / f"{prefix}-{part}-ubyte{'.gz' if zipped else ''}"
            path.write_bytes(gzip.compress(raw) if zipped else raw)
    return out


def tinyimagenet(folder: Path, classes: int = 3, per_class: int = 4) -> Path:
    out = folder / "tiny-imagenet-200"
    ids = [f"n0000000{i}" for i in range(classes)]
    annotations = []
    (out / "val" / "images").mkdir(parents=True)
    for i, wnid in enumerate(ids):
        (out / "train" / wnid / "images").mkdir(parents=True)
        for j in range(per_class):
            mode = "L" if j == 0 else "RGB"  # the real set has grey JPEGs too
            picture((64, 64), mode, 10 * i + j).save(out / "train" / wnid / "images" / f"{wnid}_{j}.JPEG")
        picture((64, 64), "RGB", 100 + i).save(out / "val" / "images" / f"val_{i}.JPEG")
        annotations.append(f"val_{i}.JPEG\t{wnid}\t0\t0\t63\t63")
    (out / "val" / "val_annotations.txt").write_text("\n".join(annotations) + "\n")
    (out / "wnids.txt").write_text("\n".join(reversed(ids)) + "\nn09999999\n")  # the last one has no images
    (out / "words.txt").write_text("n00000000\tcrane, bird\nn00000001\tcrane, machine\nn00000002\tüber cat\n")
    return out


def zipped(folder: Path, target: Path) -> Path:
    with zipfile.ZipFile(target, "w") as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, path.relative_to(folder.parent))
    return target
