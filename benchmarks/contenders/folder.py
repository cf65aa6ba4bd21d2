"""A folder of photographs: decoded for the first time, or found in the cache."""

import os
import shutil
import tempfile
from pathlib import Path

from PIL import Image

from benchmarks.contenders import Run
from benchmarks.contenders.shapes import real_images

PHOTOS, SIZE = 400, (400, 300)


def _photos() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="tinyset-bench-photos-"))
    os.environ["TINYSET_CACHE"] = str(folder / "cache")
    for i, image in enumerate(real_images(PHOTOS).images):
        path = folder / "photos" / "ab"[i % 2] / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.permute(1, 2, 0).numpy()).resize(SIZE).save(path)
    return folder


def first() -> Run:
    from tinyset.data import load_images

    folder = _photos()

    def run() -> float:
        shutil.rmtree(folder / "cache", ignore_errors=True)
        return len(load_images(str(folder / "photos"), image_size=32).train)

    return run


def again() -> Run:
    from tinyset.data import load_images

    folder = _photos()

    def run() -> float:
        return len(load_images(str(folder / "photos"), image_size=32).train)

    run()
    return run
