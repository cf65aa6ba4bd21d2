"""What the tests of objectives share: a network drawn by name, the smallest outer loop, the resume check."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tinyset import rng
from tinyset.data.imageset import ImageSet
from tinyset.files import cache_dir, load_tree, save_tree
from tinyset.networks import build, reset
from tinyset.objectives.base import Objective
from tinyset.parameterizations.base import Parameterization

NETWORK = "convnet2:width=4,activation=swish"  # smooth, for gradcheck


def drawn_network(seed: int, *names: str | int, spec: str = NETWORK) -> torch.nn.Module:
    network = build(spec, channels=3, image_size=(8, 8), classes=3).double()
    reset(network, rng.generator(seed, *names))
    return network


def normalised(real: ImageSet, pixels: torch.Tensor) -> torch.Tensor:
    mean, std = (torch.tensor(v, dtype=pixels.dtype).view(1, -1, 1, 1) for v in real.stats)
    return (pixels - mean) / std


def run(objective: Objective, synthetic: Parameterization, steps: range, rate: float = 0.05) -> list[float]:
    """The smallest outer loop: SGD on everything that is learned."""
    learned = [p for group in (synthetic.groups(), objective.parameters()) for ps in group.values() for p in ps]
    losses = []
    for step in steps:
        for parameter in learned:
            parameter.grad = None
        losses.append(objective.step(synthetic, step).total)
        with torch.no_grad():
            for parameter in learned:
                if parameter.grad is not None:
                    parameter -= (
                        rate * parameter.grad / (parameter.grad.norm() + 1e-12) * parameter.numel() ** 0.5 * 0.1
                    )
        synthetic.project()
    return losses


def check_resume(make: Callable[..., Any], name: str, start: Callable[[], Parameterization], **options: Any) -> None:
    """Six steps equal three steps, a checkpoint through a file, and three more in a fresh objective."""
    whole = start()
    losses = run(make(name, whole, **options), whole, range(6))
    first = start()
    objective = make(name, first, **options)
    again = run(objective, first, range(3))
    save_tree(cache_dir() / "state.safetensors", {"state": objective.state(), "images": dict(first.named_parameters())})
    tree = load_tree(cache_dir() / "state.safetensors")
    second = start()
    fresh = make(name, second, **options)
    with torch.no_grad():
        for parameter_name, parameter in second.named_parameters():
            parameter.copy_(tree["images"][parameter_name])
    fresh.restore(tree["state"])
    again += run(fresh, second, range(3, 6))
    assert again == losses
    for a, b in zip(whole.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)


def check_by_differences(
    objective: Objective, synthetic: Parameterization, parameter: torch.Tensor, analytic: torch.Tensor | None
) -> None:
    """A directional derivative of the whole step 0 by central differences."""
    assert analytic is not None
    direction = torch.randn(parameter.shape, generator=rng.generator(9, "d"), dtype=torch.float64)
    values = []
    for sign in (1, -1):
        with torch.no_grad():
            parameter += sign * 1e-5 * direction
        values.append(objective.step(synthetic, 0).total)
        with torch.no_grad():
            parameter -= sign * 1e-5 * direction
    assert (values[0] - values[1]) / 2e-5 == pytest.approx(float((analytic * direction).sum()), rel=1e-5)


def plain_network(*, channels: int, image_size: tuple[int, int], classes: int) -> torch.nn.Module:
    """A user's network: logits and nothing else."""
    pixels = channels * image_size[0] * image_size[1]
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(pixels, classes))
