"""From storage to pixels: decode codes, or read PNG files."""

import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from benchmarks.contenders import Run
from benchmarks.contenders.shapes import real_images, synthetic_set


def ours() -> Run:
    """The 19,200 images of the paper's set at 10 images per class."""
    from tinyset.machine import keep_memory

    keep_memory()
    synthetic = synthetic_set(160, 12)

    def run() -> float:
        images, _ = synthetic.decode_all()
        return len(images)

    run()
    return run


def png(count: int = 2000) -> Run:
    """Files of smooth pictures: noise would not compress, and read slower."""
    folder = Path(tempfile.mkdtemp(prefix="tinyset-bench-png-"))
    small = real_images(count).images[:, :, ::8, ::8].float()
    smooth = torch.nn.functional.interpolate(small, scale_factor=8, mode="bilinear").to(torch.uint8)
    paths = [folder / f"{i}.png" for i in range(count)]
    for path, image in zip(paths, smooth, strict=True):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(path)

    def run() -> float:
        pixels = np.empty((count, 32, 32, 3), np.uint8)
        for i, path in enumerate(paths):
            with Image.open(path) as image:
                pixels[i] = image
        return count

    run()
    return run
