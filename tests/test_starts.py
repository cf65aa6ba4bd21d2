"""`--start`: a larger set begins with a smaller one."""

from pathlib import Path
from typing import Any

import pytest
import torch

import tinyset
from tests.conftest import toy_images
from tinyset.condensed import CondensedSet
from tinyset.data.imageset import ImageSet
from tinyset.errors import UserError
from tinyset.parameterizations.codes import Codes
from tinyset.rng import generator

TINY: dict[str, Any] = dict(networks=2, network="convnet3:width=4", compile="never", threads=1)
COARSE = torch.rand(60, 3, 4, 4, generator=generator(0, "coarse")).repeat_interleave(8, 2).repeat_interleave(8, 3)
REAL = ImageSet(
    (COARSE * 255).to(torch.uint8), torch.arange(60) % 2, ("even", "odd")
)  # what 12 numbers a patch can say


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tinyset.condense(REAL, images_per_class=1, decoders=2, steps=3, pretrain_steps=200, **TINY)
    return made.save(tmp_path_factory.mktemp("small") / "set")


def larger(small: Path, **settings: Any) -> CondensedSet:
    return tinyset.condense(REAL, **{"images_per_class": 3, "steps": 0, "start": str(small), **TINY, **settings})


def test_its_images_come_first_and_its_decoders_serve_the_new_codes(small: Path) -> None:
    before, made = tinyset.load(small), larger(small)
    assert made.config.spec["decoders"] == 2 and len(made) > 2 * len(before) > 8
    for c in range(2):
        own = before.images(c)
        assert torch.equal(made.images(c)[: len(own)], own)
    torch.testing.assert_close(
        made.parameterization.tensors()["decoders.0.weight"], before.parameterization.tensors()["decoders.0.weight"]
    )
    assert larger(small).fingerprint == made.fingerprint != larger(small, seed=1).fingerprint


def test_the_new_codes_are_real_images(small: Path) -> None:
    """Each is nearer to a real image of its class than the mean image of the class is."""
    before, made = tinyset.load(small), larger(small)
    pixels = REAL.images.float().flatten(1) / 255
    for c in range(2):
        members = pixels[REAL.by_class[c]]
        new = made.images(c)[len(before.images(c)) :].view(-1, 2, members.shape[1]).mean(1)  # over the decoders
        nearest = torch.cdist(new, members).min(1).values
        assert nearest.mean() < 0.5 * torch.cdist(members.mean(0, keepdim=True), members).mean()


def test_it_is_trained_from_there(small: Path) -> None:
    start, made = larger(small), larger(small, steps=2)
    assert isinstance(made.parameterization, Codes) and isinstance(start.parameterization, Codes)
    assert not torch.equal(made.parameterization.codes, start.parameterization.codes)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"decoders": 3}, "has 2 decoders"),
        ({"codes": 1}, "more codes than the budget holds"),
        ({"images_per_class": 60}, "differ, 12x4x4 and 12x8x8"),
        ({"method": "dm"}, "only codes and decoders"),
        ({"init": "noise"}, "leave --init noise out"),
        ({"start": "nowhere"}, "no condensed set at nowhere"),
    ],
)
def test_what_does_not_fit_is_named(small: Path, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        larger(small, **settings)


def test_learned_labels_are_refused(small: Path, tmp_path: Path) -> None:
    made = tinyset.load(small)
    made.parameterization.soft_labels = torch.nn.Parameter(torch.eye(2)[made.labels])
    with pytest.raises(UserError, match="its labels were learned"):
        larger(made.save(tmp_path / "soft"))


def test_other_classes_are_refused(small: Path) -> None:
    with pytest.raises(UserError, match="its classes"):
        tinyset.condense(toy_images(40, 3), images_per_class=3, steps=0, start=str(small), **TINY)
