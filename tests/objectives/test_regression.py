"""The regression equals scikit-learn's; its networks learn from the synthetic set, grow old and are replaced."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from toys import check_by_differences, check_resume, drawn_network, normalised, run

from tinyset import rng
from tinyset.data.imageset import ImageSet
from tinyset.objectives.regression import ridge_loss
from tinyset.parameterizations.pixels import Pixels

LOOK_ONLY = {"pool": 1, "pool_steps": 0, "real_batch": 36}


@pytest.mark.parametrize("features", [6, 12])  # fewer and more than the 9 synthetic images
def test_ridge_loss_equals_scikit_learn(features: int) -> None:
    draw, f = rng.generator(0, "ridge"), features
    phi_t, phi_s, y_t, y_s = (torch.rand(*s, generator=draw).double() for s in ((20, f), (9, f), (20, 3), (9, 3)))
    rho = 0.7 * phi_s.square().sum(0).mean().item()
    one = np.ones((20, 1))
    theirs = Ridge(alpha=rho, fit_intercept=False).fit(np.hstack([phi_s, one[:9]]), y_s)
    expected = 0.5 * np.square(y_t.numpy() - theirs.predict(np.hstack([phi_t, one]))).sum(1).mean()
    assert ridge_loss(phi_t, y_t, phi_s, y_s, 0.7).item() == pytest.approx(expected, rel=1e-9)


def test_a_step_is_the_equation(make: Callable[..., Any], real: ImageSet, synthetic: Pixels) -> None:
    loss = make("regression", synthetic, **LOOK_ONLY).step(synthetic, 0).total
    network: Any = drawn_network(5, "pool network", 0, 0)
    y = torch.eye(3, dtype=torch.float64) - 1 / 3
    with torch.no_grad():
        images = torch.cat([synthetic.decode(c) for c in range(3)])
        phi_s = network.features(normalised(real, images)) / 16**0.5
        phi_t = network.features(normalised(real, real.images.double() / 255)) / 16**0.5
    expected = ridge_loss(phi_t, y[real.labels], phi_s, y[[0, 0, 1, 2, 2, 2]], 1.0)
    # the coins decide which images are mirrored: without them the two agree
    flat = make("regression", synthetic, mirror=False, **LOOK_ONLY).step(synthetic, 0).total
    assert flat == pytest.approx(expected.item(), rel=1e-6)
    assert loss != pytest.approx(expected.item(), rel=1e-6)


def test_the_context_stands_beside_and_is_not_moved(
    make: Callable[..., Any], real: ImageSet, synthetic: Pixels
) -> None:
    objective = make("regression", synthetic, mirror=False, synthetic_batch=2, context=6, **LOOK_ONLY)
    loss = objective.step(synthetic, 0).total
    network: Any = drawn_network(5, "pool network", 0, 0)
    with torch.no_grad():
        moved, targets = objective.inputs.synthetic_mixed(synthetic, 2, "synthetic", 0)
        all_of_them, their = objective.inputs.synthetic_mixed(synthetic, None, "all")
        phi_s = network.features(torch.cat([moved, all_of_them])) / 16**0.5
        phi_t = network.features(normalised(real, real.images.double() / 255)) / 16**0.5
    y = torch.eye(3, dtype=torch.float64) - 1 / 3
    expected = ridge_loss(phi_t, y[real.labels], phi_s, torch.cat([targets, their]) - 1 / 3, 1.0)
    assert loss == pytest.approx(expected.item(), rel=1e-6)
    assert (synthetic.images.grad.flatten(1).abs().sum(1) > 0).sum() == 2


def test_gradient_by_differences(make: Callable[..., Any], synthetic: Pixels) -> None:
    objective = make("regression", synthetic, **LOOK_ONLY)
    objective.step(synthetic, 0)
    check_by_differences(objective, synthetic, synthetic.images, synthetic.images.grad)


def test_two_passes_are_one(make: Callable[..., Any], synthetic: Pixels) -> None:
    gradients = []
    for one_pass in (True, False):
        objective = make("regression", synthetic, **LOOK_ONLY)
        objective.one_pass, objective.embed.chunk = one_pass, 4
        synthetic.zero_grad()
        objective.step(synthetic, 0)
        gradients.append(synthetic.images.grad)
    assert torch.equal(*gradients)


def test_networks_learn_from_the_images_and_are_replaced(make: Callable[..., Any], synthetic: Pixels) -> None:
    objective = make("regression", synthetic, pool=2, pool_age=8, pool_steps=2, pool_rate=0.2)
    assert [own["last"] for own in objective.pool] == [4, 8]  # the first lives end one after the other
    run(objective, synthetic, range(4))
    young, looked = drawn_network(5, "pool network", 1, 0), objective.embed.network
    images = torch.cat([synthetic.decode(c) for c in range(3)]).detach()
    labels = torch.tensor([0, 0, 1, 2, 2, 2])
    loss = torch.nn.functional.cross_entropy
    pixels = normalised(objective.context.real, images)
    assert loss(looked(pixels), labels) < 0.9 * loss(young(pixels), labels)
    assert [(own["life"], own["age"]) for own in objective.pool] == [(0, 4), (0, 4)]
    run(objective, synthetic, range(4, 6))
    assert [(own["life"], own["age"], own["last"]) for own in objective.pool] == [(1, 2, 8), (0, 6, 8)]


def test_images_learn(make: Callable[..., Any], real: ImageSet) -> None:
    synthetic = Pixels.create(real, (1, 1, 1), "noise", rng.generator(1, "noise")).double()
    losses = run(make("regression", synthetic, pool=2, real_batch=36), synthetic, range(30), rate=0.3)
    assert sum(losses[-4:]) < 0.9 * sum(losses[:4])


def test_resume_is_exact(make: Callable[..., Any], real: ImageSet) -> None:
    def start() -> Pixels:
        return Pixels.create(real, (2, 2, 2), "real", rng.generator(3, "start")).double()

    check_resume(
        make, "regression", start, pool=2, pool_age=2, real_batch=9, synthetic_batch=4, context=2, pool_cutmix=0.5
    )
