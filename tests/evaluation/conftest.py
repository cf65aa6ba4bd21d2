"""Tiny data and tiny condensed sets, made once."""

from pathlib import Path

import pytest
import torch

from tinyset.condensation import run
from tinyset.condensed import CondensedSet
from tinyset.data.imageset import ImageSet, Splits
from tinyset.methods import resolve
from tinyset.rng import generator

CLASSES = ("low", "middle", "high")


def make_images(per_class: int, seed: int) -> ImageSet:
    """16x16 RGB noise with a bright stripe that says the class: learnable in a few steps."""
    labels = torch.arange(3).repeat_interleave(per_class)
    images = torch.rand(len(labels), 3, 16, 16, generator=generator(seed, "test images")) * 0.5
    for i, label in enumerate(labels.tolist()):
        images[i, :, 5 * label : 5 * label + 5] += 0.4
    return ImageSet((images * 255).to(torch.uint8), labels, CLASSES)


@pytest.fixture(scope="session")
def data() -> Splits:
    return Splits("stripes", make_images(20, 0), make_images(10, 1), mirror=False)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TINYSET_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def saved_set(data: Splits, tmp_path_factory: pytest.TempPathFactory) -> CondensedSet:
    """Two real images per class as an artifact."""
    config = resolve("plain", {"method": "random", "images_per_class": 2, "device": "cpu"})
    made = run(config, data).condensed
    made.save(tmp_path_factory.mktemp("sets") / "artifact")
    return made


@pytest.fixture
def artifact(saved_set: CondensedSet, tmp_path: Path) -> CondensedSet:
    """A copy of its own for each test: results are written into its folder."""
    from tinyset.condensed import load

    return load(CondensedSet(saved_set.parameterization, saved_set.config).save(tmp_path / "artifact"))


@pytest.fixture
def codes(data: Splits, cache: Path) -> CondensedSet:
    """KFS codes and decoders after two steps; not saved."""
    settings = {"images_per_class": 1, "steps": 2, "networks": 2, "pretrain_steps": 3, "network": "convnet1:width=4"}
    config = resolve("plain", {**settings, "decoders": 2, "device": "cpu", "compile": "never"})
    return run(config, data).condensed
