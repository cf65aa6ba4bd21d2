"""The benchmarks' real files where they can be had, and a cache of its own for every test."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

PREPARE = Path(__file__).resolve().parents[3] / "shared" / "data" / "prepare.py"
LAYOUT = {
    "cifar10": "cifar-10-batches-py/batches.meta",
    "svhn": "svhn/test_32x32.mat",
    "tinyimagenet": "tiny-imagenet-200/words.txt",
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    monkeypatch.setenv("TINYSET_CACHE", str(cache))
    return cache


@pytest.fixture(scope="session")
def real_data():
    """`real_data(name)` -> the folder with that benchmark, laid out once per machine and kept for the next session."""
    folder = Path(os.environ.get("TINYSET_TEST_DATA") or Path(tempfile.gettempdir()) / "tinyset-test-data")

    def prepared(name: str) -> Path:
        if (folder / LAYOUT[name]).is_file():
            return folder
        if not PREPARE.is_file():
            pytest.skip(f"{PREPARE} is not here")
        folder.mkdir(parents=True, exist_ok=True)
        run = subprocess.run([sys.executable, PREPARE, folder, name], capture_output=True, text=True, timeout=900)
        if run.returncode:
            pytest.skip(f"prepare.py {name} failed: {run.stderr.strip().splitlines()[-1]}")
        return folder

    return prepared


@pytest.fixture
def photos(tmp_path):
    """`photos({"cats/1.png": (size, mode), ...})` -> a folder of images with distinct content."""

    def make(files: dict[str, tuple[tuple[int, int], str]], root: str = "photos") -> Path:
        folder = tmp_path / root
        for number, (name, (size, mode)) in enumerate(files.items()):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            picture(size, mode, number).save(path)
        return folder

    return make


def picture(size: tuple[int, int] = (8, 8), mode: str = "RGB", seed: int = 0) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    if mode == "I;16":
        return Image.fromarray(pixels[..., 0].astype(np.uint16) * 257)
    return image.convert(mode)
