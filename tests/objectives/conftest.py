"""A toy world for objectives: 8x8 images of three classes, narrow networks, float64, caches of its own."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from toys import NETWORK

from tinyset import rng
from tinyset.data.imageset import ImageSet
from tinyset.objectives import objective_class
from tinyset.objectives.base import Context, Objective
from tinyset.parameterizations.base import Parameterization
from tinyset.parameterizations.pixels import Pixels


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TINYSET_CACHE", str(tmp_path / "cache"))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # tensors this small only wait for each other on a busy machine
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def real() -> ImageSet:
    draw = rng.generator(0, "toy")
    labels = torch.arange(36) % 3
    images = torch.randint(0, 128, (36, 3, 8, 8), generator=draw) + 50 * labels.view(-1, 1, 1, 1)
    return ImageSet(images.to(torch.uint8), labels, ("a", "b", "c"))


@pytest.fixture
def synthetic(real: ImageSet) -> Parameterization:
    return Pixels.create(real, (2, 1, 3), "noise", rng.generator(1, "toy start")).double()


@pytest.fixture
def make(real: ImageSet) -> Callable[..., Any]:
    """`make("gradient", synthetic, outer=2)`: a prepared objective."""

    def made(
        name: str,
        synthetic: Parameterization,
        network: str = NETWORK,
        seed: int = 5,
        mirror: bool = True,
        **options: Any,
    ) -> Objective:
        kind = objective_class(name)
        context = Context(real=real, network=network, seed=seed, device=torch.device("cpu"), mirror=mirror)
        objective = kind(context, kind.Options.parse(options, "options"))
        objective.prepare(synthetic)
        return objective

    return made
