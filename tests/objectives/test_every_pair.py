"""Two independent axes: any parameterization runs with any objective, and every learned number is moved."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tinyset import rng
from tinyset.data.imageset import ImageSet
from tinyset.objectives import OBJECTIVES
from tinyset.parameterizations import PARAMETERIZATIONS, parameterization_class
from tinyset.parameterizations.base import Parameterization
from tinyset.parameterizations.codes import Codes
from tinyset.parameterizations.pixels import Pixels
from tinyset.parameterizations.tiles import Tiles

OPTIONS: dict[str, dict[str, Any]] = {
    "distribution": {"networks": 2},
    "gradient": {"outer": 2, "real_batch": 6},
    "features": {"real_batch": 6, "inner_limit": 1},
    "trajectory": {"experts": 1, "last_start": 0, "expert_epochs": 1, "student_steps": 2, "expert_batch": 12},
    "kernel": {"real_batch": 12},
    "regression": {"real_batch": 12, "pool": 2},
}


def start(kind: str, real: ImageSet) -> Parameterization:
    draw = rng.generator(0, "pair")
    if kind == "pixels":
        return Pixels.create(real, (2, 1, 1), "real", draw)
    if kind == "pixels in ZCA coordinates":
        return Pixels.create(real, (2, 1, 1), "real", draw, zca=True)
    if kind == "tiles":
        return Tiles.create(real, (1, 1, 1), "real", draw)
    made = Codes(real.image_shape, (2, 1, 1), (12, 1, 1), (12, 9, 6, 3), 2)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw) * 0.3)
    return made


@pytest.mark.parametrize("objective_name", OBJECTIVES)
@pytest.mark.parametrize("kind", [*PARAMETERIZATIONS, "pixels in ZCA coordinates"])
def test_every_pair(make: Callable[..., Any], real: ImageSet, kind: str, objective_name: str) -> None:
    synthetic = start(kind, real)
    objective = make(objective_name, synthetic, network="convnet3:width=8", **OPTIONS[objective_name])
    for step in range(2):
        synthetic.zero_grad()
        assert objective.step(synthetic, step).total > 0
        for name, parameter in synthetic.named_parameters():
            assert parameter.grad is not None, name
            assert bool(parameter.grad.isfinite().all()) and bool(parameter.grad.abs().sum() > 0), name
    again = parameterization_class(synthetic.kind).restore(synthetic.spec(), synthetic.tensors())
    assert torch.equal(again.decode_all()[0], synthetic.decode_all()[0])
