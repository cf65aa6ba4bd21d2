"""KRR equals scikit-learn's, the NTK equals Jacobian products, moments equal the full batch."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.kernel_ridge import KernelRidge
from toys import check_by_differences, check_resume, drawn_network, normalised

from tinyset import rng
from tinyset.data.imageset import ImageSet
from tinyset.errors import UserError
from tinyset.interrupts import Interrupted, Stop
from tinyset.objectives import kernel
from tinyset.objectives.ntk import directions, tangents
from tinyset.parameterizations.base import Parameterization
from tinyset.parameterizations.labels import learn_labels
from tinyset.parameterizations.pixels import Pixels

EVERYTHING = {"real_batch": 1000}


def random(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=rng.generator(0, "kernel", *shape), dtype=torch.float64)


def naive(real: ImageSet, phi: Callable[[torch.Tensor], torch.Tensor], synthetic: Parameterization) -> torch.Tensor:
    """The equation, kernel entry by kernel entry, image by image."""
    support = [normalised(real, synthetic.decode(c)[i : i + 1]) for c in range(3) for i in range(synthetic.counts[c])]
    labels = [c for c in range(3) for _ in range(synthetic.counts[c])]
    s = [phi(image)[0] for image in support]
    k_ss = torch.stack([torch.stack([a @ b for b in s]) for a in s])
    ridge = 1e-6 * sum(k_ss[i, i] for i in range(len(s))) / len(s)
    y_s = torch.eye(3, dtype=torch.float64)[labels] - 1 / 3
    weights = torch.linalg.inv(k_ss + ridge * torch.eye(len(s), dtype=torch.float64)) @ y_s
    total = torch.zeros((), dtype=torch.float64)
    for image, label in zip(real.images, real.labels, strict=True):
        t = phi(normalised(real, image[None].double() / 255))[0].detach()
        predicted = torch.stack([t @ a for a in s]) @ weights
        total = total + 0.5 * ((torch.eye(3, dtype=torch.float64)[label] - 1 / 3 - predicted) ** 2).sum()
    return total / len(real)


def jacobian(network: torch.nn.Module, image: torch.Tensor) -> torch.Tensor:
    """3 x P: the gradient of each logit, by plain autograd."""
    weights = list(network.parameters())
    rows = [torch.autograd.grad(logit, weights, create_graph=True) for logit in network(image)[0]]
    return torch.stack([torch.cat([part.flatten() for part in row]) for row in rows])


@pytest.mark.parametrize("kind", ["features", "ntk"])
def test_equals_a_naive_loop(make: Callable[..., Any], real: ImageSet, synthetic: Pixels, kind: str) -> None:
    objective = make("kernel", synthetic, kernel=kind, outputs="all", **EVERYTHING)
    loss = objective.step(synthetic, 0).total
    network: Any = drawn_network(5, "network", 0)
    phi = {
        "features": lambda images: network.features(images) / 16**0.5,
        "ntk": lambda images: jacobian(network, images).reshape(1, -1) / 3**0.5,
    }[kind]
    expected = naive(real, phi, synthetic)
    assert loss == pytest.approx(expected.item(), rel=1e-6)
    (by_hand,) = torch.autograd.grad(expected, synthetic.images)
    torch.testing.assert_close(synthetic.images.grad, by_hand, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("kind", ["features", "ntk"])
def test_gradients_by_differences(make: Callable[..., Any], synthetic: Pixels, kind: str) -> None:
    objective = make("kernel", synthetic, kernel=kind, learn_labels=True, regularisation=1e-2, augment="crop_scale")
    objective.step(synthetic, 0)
    assert synthetic.soft_labels is not None
    of_images, of_labels = synthetic.images.grad, synthetic.soft_labels.grad
    check_by_differences(objective, synthetic, synthetic.images, of_images)
    check_by_differences(objective, synthetic, synthetic.soft_labels, of_labels)


def test_ridge_regression_equals_scikit_learn() -> None:
    phi_t, phi_s, y_t, y_s = random(20, 12), random(7, 12), random(20, 3), random(7, 3)
    loss = kernel.batch_loss(phi_t, y_t, phi_s, y_s, 0.1)
    k_ss = (phi_s @ phi_s.T).numpy()
    ridge = KernelRidge(alpha=0.1 * np.trace(k_ss) / 7, kernel="precomputed").fit(k_ss, y_s.numpy())
    predicted = ridge.predict((phi_t @ phi_s.T).numpy())
    assert loss.item() == pytest.approx(0.5 * ((y_t.numpy() - predicted) ** 2).sum() / 20, rel=1e-10)


def test_krr_passes_gradcheck() -> None:
    phi_t, y_t = random(9, 6), random(9, 3)
    inputs = (random(4, 6).requires_grad_(), random(4, 3).requires_grad_())
    assert torch.autograd.gradcheck(lambda s, y: kernel.batch_loss(phi_t, y_t, s, y, 0.01), inputs)


def test_ntk_equals_jacobian_products() -> None:
    network = drawn_network(1, "any")
    images = random(4, 3, 8, 8)
    phi = tangents(network, images, directions(3, None, images))
    expected = torch.zeros(4, 4, dtype=torch.float64)
    jacobians = [jacobian(network, image[None]).detach() for image in images]
    for i in range(4):
        for j in range(4):
            expected[i, j] = (jacobians[i] @ jacobians[j].T).trace() / 3
    torch.testing.assert_close(phi @ phi.T, expected, rtol=1e-9, atol=1e-12)


def test_one_random_output_is_the_kernel_in_expectation() -> None:
    network = drawn_network(1, "any")
    images = random(3, 3, 8, 8)
    exact = tangents(network, images, directions(3, None, images))
    signs = torch.tensor([[a, b, c] for a in (-1.0, 1) for b in (-1, 1) for c in (-1, 1)], dtype=torch.float64)
    mean = sum((phi := tangents(network, images, sign[None] / 3**0.5)) @ phi.T for sign in signs) / 8
    torch.testing.assert_close(mean, exact @ exact.T, rtol=1e-9, atol=1e-12)
    one = directions(3, rng.generator(0, "o"), images)
    assert one.shape == (1, 3) and torch.allclose(one.abs(), torch.full_like(one, 3**-0.5))


def test_moments_equal_the_full_batch(make: Callable[..., Any], real: ImageSet, synthetic: Pixels) -> None:
    objective = make("kernel", synthetic, real="moments", networks=2, regularisation=1e-3)
    for step in range(3):
        synthetic.images.grad = None
        loss = objective.step(synthetic, step).total
        gradient = synthetic.images.grad
        synthetic.images.grad = None
        network: Any = drawn_network(0, "moments network", step % 2)
        phi_t = network.features(normalised(real, real.images.double() / 255)) / 4
        y_t = torch.eye(3, dtype=torch.float64)[real.labels] - 1 / 3
        images = torch.cat([synthetic.decode(c) for c in range(3)])
        y_s = torch.cat([synthetic.targets(c) for c in range(3)]) - 1 / 3
        expected = kernel.batch_loss(phi_t.detach(), y_t, network.features(normalised(real, images)) / 4, y_s, 1e-3)
        assert loss == pytest.approx(expected.item(), rel=1e-6)
        (by_hand,) = torch.autograd.grad(expected, synthetic.images)
        torch.testing.assert_close(gradient, by_hand, rtol=1e-5, atol=1e-9)


def test_moments_are_stored_once_and_survive_a_stop(make: Callable[..., Any], synthetic: Pixels) -> None:
    objective = make("kernel", synthetic, real="moments", networks=2, real_per_class=4)
    moments = objective.moments
    assert moments.load(0).counts_C.tolist() == [4, 4, 4]
    stamps = [moments.path(k).stat().st_mtime_ns for k in range(2)]
    stop = Stop()
    stop.catch(15, None)
    assert moments.ensure(2, stop) == 2 and moments.ensure(3, stop) == 2
    assert [moments.path(k).stat().st_mtime_ns for k in range(2)] == stamps
    moments.path(0).unlink()
    with pytest.raises(Interrupted, match="first real features"):
        moments.ensure(2, stop)


def test_chunks_do_not_change_the_gradient(
    make: Callable[..., Any], synthetic: Pixels, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn_labels(synthetic)
    gradients = []
    for chunk in (64, 2):
        monkeypatch.setattr(kernel, "CHUNK", chunk)
        synthetic.zero_grad()
        make("kernel", synthetic).step(synthetic, 0)
        gradients.append([p.grad.clone() for p in synthetic.parameters() if p.grad is not None])
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("options", [{"kernel": "features"}, {"kernel": "ntk"}, {"real": "moments", "networks": 2}])
def test_resume_is_exact(make: Callable[..., Any], real: ImageSet, options: dict[str, Any]) -> None:
    check_resume(
        make,
        "kernel",
        lambda: Pixels.create(real, (2, 1, 3), "real", rng.generator(0, "start")),
        real_batch=10,
        synthetic_batch=4,
        learn_labels=True,
        **options,
    )


def test_bad_requests_are_one_sentence(make: Callable[..., Any], synthetic: Pixels) -> None:
    with pytest.raises(UserError, match="real = moments needs kernel = features"):
        make("kernel", synthetic, kernel="ntk", real="moments")
    with pytest.raises(UserError, match="`features`"):
        make("kernel", synthetic, network="toys:plain_network")
