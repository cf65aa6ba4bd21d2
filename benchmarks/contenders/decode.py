"""From storage to pixels: decode codes, or read PNG files."""

import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from benchmarks.contenders import Run
from benchmarks.contenders.shapes import CLASSES, IMAGE, STATS, real_images, synthetic_set


def ours() -> Run:
    """The 19,200 images of the paper's set at 10 images per class, as `CondensedSet.decode` gives them to a user."""
    from tinyset.condensed import CondensedSet, make_config
    from tinyset.machine import keep_memory

    keep_memory()
    made = synthetic_set(160, 12)
    names = [f"class {c}" for c in range(CLASSES)]
    shape = {"class_names": names, "image_shape": IMAGE, "mean": STATS[0], "std": STATS[1]}
    condensed = CondensedSet(made, make_config(kind=made.kind, spec=made.spec(), nominal_params_per_class=1, **shape))

    def run() -> float:
        images, _ = condensed.decode()
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
