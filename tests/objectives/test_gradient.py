"""Gradient matching equals its equation, passes gradcheck, and trains its network where the papers do."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from toys import check_by_differences, check_resume, drawn_network, normalised

from tinyset import rng
from tinyset.augment import Siamese
from tinyset.data.imageset import ImageSet
from tinyset.errors import UserError
from tinyset.objectives import objective_class
from tinyset.objectives.gradient import distance
from tinyset.parameterizations.base import Parameterization
from tinyset.parameterizations.labels import learn_labels
from tinyset.parameterizations.pixels import Pixels
from tinyset.parameterizations.tiles import Tiles

EVERYTHING = {"real_batch": 1000}


def naive(
    real: ImageSet, network: torch.nn.Module, synthetic: Parameterization, kind: str, layers: str
) -> list[torch.Tensor]:
    """The equation, one class, one layer, one row at a time."""
    losses = []
    for c in range(3):
        x = normalised(real, real.images[real.labels == c].double() / 255)
        s = normalised(real, synthetic.decode(c))
        weights = [(n, p) for n, p in network.named_parameters() if p.ndim >= (4 if layers == "conv" else 2)]
        g = {n: torch.autograd.grad(F.cross_entropy(network(s), torch.full((len(s),), c)), p, create_graph=True)[0]
             for n, p in weights}  # fmt: skip
        h = {n: torch.autograd.grad(F.cross_entropy(network(x), torch.full((len(x),), c)), p)[0] for n, p in weights}
        total = torch.zeros((), dtype=torch.float64)
        for n, p in weights:
            for row in range(p.shape[0]):
                a, b = g[n][row].flatten(), h[n][row].flatten()
                if kind == "cosine":
                    total = total + 1 - a @ b / (a.norm() * b.norm() + 1e-6)
                else:
                    total = total + ((a - b) ** 2).sum()
        losses.append(total)
    return losses


@pytest.mark.parametrize(("kind", "layers"), [("cosine", "weights"), ("mse", "conv")])
def test_equals_a_naive_loop(
    make: Callable[..., Any], real: ImageSet, synthetic: Pixels, kind: str, layers: str
) -> None:
    objective = make("gradient", synthetic, distance=kind, layers=layers, **EVERYTHING)
    losses = objective.step(synthetic, 0)
    gradient = synthetic.images.grad
    expected = naive(real, drawn_network(5, "network", 0), synthetic, kind, layers)
    assert losses.per_class == pytest.approx([loss.item() for loss in expected], rel=1e-9)
    assert losses.total == pytest.approx(sum(loss.item() for loss in expected), rel=1e-9)
    (by_hand,) = torch.autograd.grad(torch.stack(expected).sum(), synthetic.images)
    torch.testing.assert_close(gradient, by_hand, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("kind", ["cosine", "mse"])
def test_gradcheck(make: Callable[..., Any], synthetic: Pixels, kind: str) -> None:
    objective = make("gradient", synthetic, distance=kind, **EVERYTHING)
    objective.step(synthetic, 0)
    check_by_differences(objective, synthetic, synthetic.images, synthetic.images.grad)
    network = objective.learner.network
    weights = [p for p in network.parameters() if p.ndim > 1]
    x = torch.rand(1, 3, 8, 8, generator=rng.generator(0, "x"), dtype=torch.float64, requires_grad=True)
    wanted = [torch.rand(p.shape, generator=rng.generator(1, "w"), dtype=torch.float64) for p in weights]

    def loss(images: torch.Tensor) -> torch.Tensor:
        value = F.cross_entropy(network(images), torch.tensor([1]))
        return distance(torch.autograd.grad(value, weights, create_graph=True), wanted, kind)  # type: ignore[arg-type]

    assert torch.autograd.gradcheck(loss, (x,), fast_mode=True)


def test_gradient_reaches_tiles_and_learned_labels(make: Callable[..., Any], real: ImageSet) -> None:
    tiles = Tiles.create(real, (1, 1, 2), "real", rng.generator(0, "tiles"), factor=2).double()
    learn_labels(tiles)
    objective = make("gradient", tiles, **EVERYTHING)
    objective.step(tiles, 0)
    assert tiles.images.grad is not None and tiles.soft_labels is not None and tiles.soft_labels.grad is not None
    check_by_differences(objective, tiles, tiles.images, tiles.images.grad)
    tiles.soft_labels.grad = None
    objective.step(tiles, 0)
    check_by_differences(objective, tiles, tiles.soft_labels, tiles.soft_labels.grad)


def test_both_batches_see_one_augmentation(make: Callable[..., Any], real: ImageSet) -> None:
    """Where the synthetic images are the real ones, siamese augmentation must leave nothing to match."""
    pixels = Pixels.create(real, (12, 12, 12), "real", rng.generator(0, "all")).double()
    strategy = "color_crop_cutout_scale_rotate"
    objective = make("gradient", pixels, distance="mse", augment=strategy, **EVERYTHING)
    families = set()
    for step in range(6):
        assert objective.step(pixels, step).total < 1e-10  # float32 pixels against float64 ones
        families.add(Siamese(strategy).draw(rng.generator(5, "augment", step, 0)).family)
    assert len(families) > 1


def test_the_network_learns_from_the_synthetic_set_between_updates(
    make: Callable[..., Any], real: ImageSet, synthetic: Pixels
) -> None:
    objective = make("gradient", synthetic, outer=3, inner=2, network_rate=0.1, network_momentum=0.9, **EVERYTHING)
    network = drawn_network(5, "network", 0)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    images, labels = synthetic.decode_all()
    for step in range(3):
        objective.step(synthetic, step)
        for ours, theirs in zip(objective.learner.network.parameters(), network.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
        for _ in range(2):
            optimizer.zero_grad()
            F.cross_entropy(network(normalised(real, images)), labels).backward()
            optimizer.step()
    objective.step(synthetic, 3)  # a new network
    for ours, theirs in zip(
        objective.learner.network.parameters(), drawn_network(5, "network", 1).parameters(), strict=True
    ):
        assert torch.equal(ours, theirs)


def test_idc_trains_its_network_on_real_images(make: Callable[..., Any], real: ImageSet, synthetic: Pixels) -> None:
    options = {"train_on": "real", "outer": 9, "inner": 15, "network_rate": 0.1, "network_momentum": 0.9, **EVERYTHING}
    objective = make("gradient", synthetic, network_batch=36, network_cutmix=0.5, network_decay=5e-4, **options)
    images = normalised(real, real.images.double() / 255)

    def loss() -> float:
        with torch.no_grad():
            return F.cross_entropy(objective.learner.network(images), real.labels).item()

    objective.step(synthetic, 0)
    before = loss()
    objective.step(synthetic, 1)
    objective.step(synthetic, 2)
    assert loss() < 0.8 * before


def test_a_pool_repeats_its_steps_and_changes_nothing_else(make: Callable[..., Any], synthetic: Pixels) -> None:
    options = {"train_on": "real", "outer": 2, "inner": 2, "real_batch": 4, "augment": "color_crop_cutout"}
    plain, pooled = make("gradient", synthetic, **options), make("gradient", synthetic, pool=4, **options)
    losses = [plain.step(synthetic, step).per_class for step in range(4)]
    assert [pooled.step(synthetic, step).per_class for step in range(8)] == losses * 2
    alone = make("gradient", synthetic, pool=4, **options)
    assert alone.step(synthetic, 7).per_class == losses[3]  # an episode is computed from its beginning


def test_a_pool_that_does_not_fit_is_refused(make: Callable[..., Any], synthetic: Pixels) -> None:
    with pytest.raises(UserError, match=r"pool=1000000 .* lower it to \d+ or raise --memory-limit"):
        make("gradient", synthetic, pool=1_000_000)
    with pytest.raises(UserError, match="outer = 1 or train_on = real"):
        make("gradient", synthetic, pool=4, outer=2)
    with pytest.raises(UserError, match="multiple of outer"):
        make("gradient", synthetic, pool=3, outer=2, train_on="real")


def test_resume_of_a_pool_is_exact(make: Callable[..., Any], real: ImageSet) -> None:
    check_resume(
        make,
        "gradient",
        lambda: Pixels.create(real, (2, 1, 3), "real", rng.generator(0, "start")),
        train_on="real",
        outer=2,
        inner=2,
        pool=4,
        real_batch=5,
        network_momentum=0.9,
        augment="color_crop_cutout_flip_scale_rotate",
    )


@pytest.mark.parametrize("train_on", ["synthetic", "real"])
def test_resume_is_exact(make: Callable[..., Any], real: ImageSet, train_on: str) -> None:
    check_resume(
        make,
        "gradient",
        lambda: Pixels.create(real, (2, 1, 3), "real", rng.generator(0, "start")),
        train_on=train_on,
        outer=4,
        inner=2,
        real_batch=5,
        synthetic_batch=2,
        network_batch=4,
        network_momentum=0.9,
        augment="color_crop_cutout_flip_scale_rotate",
    )


def test_bad_requests_are_one_sentence(make: Callable[..., Any], synthetic: Pixels) -> None:
    with pytest.raises(UserError, match="norm=instance"):
        make("gradient", synthetic, network="convnet2:norm=batch")
    with pytest.raises(UserError, match="no convolution to match"):
        make("gradient", synthetic, network="toys:plain_network", layers="conv")
    with pytest.raises(UserError, match="unknown key 'outter'"):
        make("gradient", synthetic, outter=2)
    with pytest.raises(UserError, match="Unknown objective 'hope'"):
        objective_class("hope")
