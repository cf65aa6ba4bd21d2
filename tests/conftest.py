"""Every test has a cache of its own and small, quick things to work on."""

from pathlib import Path

import pytest
import torch

from tinyset.data.imageset import ImageSet, Splits
from tinyset.rng import generator


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("TINYSET_CACHE", str(cache))
    return cache


def toy_images(count: int = 40, classes: int = 3, shape: tuple[int, int, int] = (3, 16, 16), seed: int = 0) -> ImageSet:
    """Random images with a class-dependent tint: learnable, and made in a millisecond."""
    draw = generator(seed, "toy")
    labels = torch.arange(count) % classes
    images = torch.rand(count, *shape, generator=draw)
    tint = torch.rand(classes, shape[0], 1, 1, generator=draw)
    pixels = (0.6 * tint[labels] + 0.4 * images).mul(255).to(torch.uint8)
    return ImageSet(pixels, labels, tuple(f"class {c}" for c in range(classes)))


@pytest.fixture
def toy() -> Splits:
    return Splits("toy", toy_images(60), toy_images(30, seed=1))
