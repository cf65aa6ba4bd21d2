"""CAFE equals its equation; its loop trains, replaces and remembers its network."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from toys import check_by_differences, check_resume, drawn_network, normalised

from tinyset import rng
from tinyset.data.imageset import ImageSet
from tinyset.errors import UserError
from tinyset.objectives.features import spread
from tinyset.parameterizations.base import Parameterization
from tinyset.parameterizations.pixels import Pixels

EVERYTHING = {"real_batch": 1000}


def naive(
    real: ImageSet, network: Any, synthetic: Parameterization, beta: float
) -> tuple[list[torch.Tensor], torch.Tensor]:
    def means(images: torch.Tensor) -> list[torch.Tensor]:
        outputs = [[block.flatten() for block in network.blocks(image[None])] for image in images]
        return [sum(output[level] for output in outputs) / len(outputs) for level in range(2)]

    per_class, centres = [], []
    for c in range(3):
        s, t = (
            means(normalised(real, synthetic.decode(c))),
            means(normalised(real, real.images[real.labels == c] / 255.0)),
        )
        per_class.append(0.1 * ((s[0] - t[0]) ** 2).sum() + 1.0 * ((s[1] - t[1]) ** 2).sum())
        centres.append(s[1])
    discrimination = torch.zeros((), dtype=torch.float64)
    for image, label in zip(real.images, real.labels, strict=True):
        feature = network.features(normalised(real, image[None] / 255.0))[0]
        scores = torch.stack([feature @ centre for centre in centres])
        discrimination = discrimination - torch.log_softmax(scores, 0)[label]
    return per_class, torch.stack(per_class).sum() + beta * discrimination


def test_equals_a_naive_loop(make: Callable[..., Any], real: ImageSet, synthetic: Pixels) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        objective = make("features", synthetic, discrimination=0.02, **EVERYTHING)
        losses = objective.step(synthetic, 0)
        gradient = synthetic.images.grad
        per_class, total = naive(real, drawn_network(5, "network", 0), synthetic, 0.02)
    finally:
        torch.set_default_dtype(torch.float32)
    assert losses.per_class == pytest.approx([loss.item() for loss in per_class], rel=1e-9)
    assert losses.total == pytest.approx(total.item(), rel=1e-9)
    (by_hand,) = torch.autograd.grad(total, synthetic.images)
    torch.testing.assert_close(gradient, by_hand, rtol=1e-7, atol=1e-10)


def test_gradient_by_differences(make: Callable[..., Any], synthetic: Pixels) -> None:
    objective = make("features", synthetic, augment="color_crop_cutout_scale_rotate", **EVERYTHING)
    objective.step(synthetic, 0)
    check_by_differences(objective, synthetic, synthetic.images, synthetic.images.grad)


def test_the_loop_keeps_trains_and_replaces(make: Callable[..., Any], synthetic: Pixels) -> None:
    objective = make("features", synthetic, window=2, inner_limit=3, outer_limit=4, outer_range=0.0, query=12)
    drawn = []
    reset = objective.learner.reset
    objective.learner.reset = lambda generator: (drawn.append(step), reset(generator))
    for step in range(9):
        before = [p.detach().clone() for p in objective.learner.network.parameters()]
        objective.step(synthetic, step)
        after = list(objective.learner.network.parameters())
        assert not all(torch.equal(a, b) for a, b in zip(after, before, strict=True))  # trained or replaced
    assert drawn == [0, 4, 8]  # never settled (a range of 0 is never below 0): replaced at the limit only


def test_a_settled_accuracy_replaces_the_network(make: Callable[..., Any], synthetic: Pixels) -> None:
    objective = make("features", synthetic, window=2, inner_limit=1, outer_range=2.0)
    drawn = []
    reset = objective.learner.reset
    objective.learner.reset = lambda generator: (drawn.append(step), reset(generator))
    for step in range(6):
        objective.step(synthetic, step)
    assert drawn == [0, 2, 4]  # any two accuracies are within 2.0


def test_spread_is_infinite_until_the_window_is_full() -> None:
    assert spread([0.1, 0.2], 3) == float("inf")
    assert spread([0.9, 0.1, 0.2, 0.4], 3) == pytest.approx(0.3)


def test_resume_is_exact(make: Callable[..., Any], real: ImageSet) -> None:
    check_resume(
        make,
        "features",
        lambda: Pixels.create(real, (2, 1, 3), "real", rng.generator(0, "start")),
        real_batch=5,
        synthetic_batch=2,
        network_batch=4,
        window=2,
        outer_range=0.01,
        inner_limit=3,
        query=6,
        augment="color_crop_cutout_flip_scale_rotate",
    )


def test_a_network_without_blocks_is_one_sentence(make: Callable[..., Any], synthetic: Pixels) -> None:
    with pytest.raises(UserError, match="`blocks`"):
        make("features", synthetic, network="toys:plain_network")
