"""Pixels: start, decode, project, ledger, ZCA and learned labels; everything round-trips."""

import pytest
import torch

from tinyset import rng
from tinyset.data.imageset import ImageSet
from tinyset.errors import UserError
from tinyset.parameterizations import parameterization_class
from tinyset.parameterizations.labels import learn_labels, nearest_distribution
from tinyset.parameterizations.pixels import Pixels
from tinyset.parameterizations.zca import ZCA

COUNTS = (2, 1, 3)


@pytest.fixture
def real() -> ImageSet:
    draw = rng.generator(0, "pixels test")
    images = torch.randint(0, 256, (60, 3, 8, 8), generator=draw, dtype=torch.uint8)
    return ImageSet(images, torch.arange(60) % 3, ("a", "b", "c"))


def make(real: ImageSet, init: str = "real", **options: bool) -> Pixels:
    return Pixels.create(real, COUNTS, init, rng.generator(1, "init"), **options)  # type: ignore[arg-type]


def test_real_start_holds_different_images_of_the_right_class(real: ImageSet) -> None:
    pixels = make(real)
    for c, count in enumerate(COUNTS):
        decoded = (pixels.decode(c) * 255).round().to(torch.uint8)
        found = [torch.nonzero((real.images == image).flatten(1).all(1)).item() for image in decoded]
        assert len(set(found)) == count and all(real.labels[i] == c for i in found)


def test_noise_start_is_standard_normal_after_normalisation() -> None:
    grey = ImageSet(torch.zeros(4, 1, 64, 64, dtype=torch.uint8), torch.zeros(4).long(), ("a",), ((0.5,), (0.1,)))
    images = Pixels.create(grey, [8], "noise", rng.generator(0, "noise")).decode(0)
    assert images.mean().item() == pytest.approx(0.5, abs=0.005)
    assert images.std().item() == pytest.approx(0.1, abs=0.005)


def test_a_class_smaller_than_the_request_repeats_its_images(real: ImageSet) -> None:
    images = Pixels.create(real, (50, 1, 1), "real", rng.generator(0, "many")).decode(0)
    _, times = images.flatten(1).unique(dim=0, return_counts=True)
    assert sorted(times.tolist()) == [2] * 10 + [3] * 10


def test_an_empty_class_is_one_sentence(real: ImageSet) -> None:
    short = ImageSet(real.images, real.labels, ("a", "b", "c", "d"))
    with pytest.raises(UserError, match="'d' has no images"):
        Pixels.create(short, (1, 1, 1, 1), "real", rng.generator(0, "x"))


@pytest.mark.parametrize("zca", [False, True])
def test_round_trip_is_exact(real: ImageSet, zca: bool) -> None:
    pixels = make(real, zca=zca)
    learn_labels(pixels)
    again = parameterization_class("pixels").restore(pixels.spec(), pixels.tensors())
    for c in range(3):
        assert torch.equal(pixels.decode(c), again.decode(c))
        assert torch.equal(pixels.targets(c), again.targets(c))
    assert again.spec() == pixels.spec() and again.counts == COUNTS


def test_any_subset_of_any_class(real: ImageSet) -> None:
    pixels = make(real)
    assert torch.equal(pixels.decode(2, torch.tensor([2, 0, 2])), pixels.decode(2)[[2, 0, 2]])
    assert pixels.decode(2, torch.tensor([], dtype=torch.long)).shape == (0, 3, 8, 8)
    images, labels = pixels.decode_all()
    assert images.shape == (6, 3, 8, 8) and labels.tolist() == [0, 0, 1, 2, 2, 2]


@pytest.mark.parametrize("zca", [False, True])
def test_project_brings_decoded_pixels_back(real: ImageSet, zca: bool) -> None:
    pixels = make(real, zca=zca)
    with torch.no_grad():
        pixels.images.add_(torch.randn(pixels.images.shape, generator=rng.generator(2, "x")))
    pixels.project()
    images, _ = pixels.decode_all()
    assert images.min() >= 0 and images.max() <= 1
    before = pixels.images.detach().clone()
    pixels.project()
    torch.testing.assert_close(pixels.images.detach(), before, atol=1e-5, rtol=1e-5)


def test_ledger_counts_every_stored_number(real: ImageSet) -> None:
    for zca in (False, True):
        pixels = make(real, zca=zca)
        learn_labels(pixels)
        counted = sum(pixels.class_parameters(c) for c in range(3)) + pixels.shared_parameters()
        assert counted == sum(tensor.numel() for tensor in pixels.tensors().values())


def test_zca_is_reversible_and_whitens() -> None:
    draw = rng.generator(3, "zca")
    smooth = torch.rand(4000, 3, 2, 2, generator=draw).repeat_interleave(2, 2).repeat_interleave(2, 3)
    noisy = (smooth + 0.1 * torch.rand(4000, 3, 4, 4, generator=draw)).mul(230).to(torch.uint8)
    real = ImageSet(noisy, torch.zeros(4000).long(), ("a",))
    zca = ZCA.fit(real, 1e-6)
    x = real.images / 255
    z = zca.whiten(x)
    covariance = torch.cov(z.flatten(1).T)
    torch.testing.assert_close(covariance, torch.eye(48), atol=0.02, rtol=0)
    torch.testing.assert_close(zca.unwhiten(z), x, atol=1e-4, rtol=0)


def test_zca_gradient_is_that_of_unwhitening(real: ImageSet) -> None:
    pixels = make(real, zca=True)
    weights = torch.rand(COUNTS[0], 3, 8, 8, generator=rng.generator(4, "w"))
    (pixels.decode(0) * weights).sum().backward()
    assert pixels.zca is not None and pixels.images.grad is not None
    matrix = pixels.zca.basis * pixels.zca.scale @ pixels.zca.basis.T
    torch.testing.assert_close(pixels.images.grad[:2].flatten(1), weights.flatten(1) @ matrix.T, atol=1e-5, rtol=1e-5)


def test_learned_labels_stay_distributions(real: ImageSet) -> None:
    pixels = make(real)
    assert pixels.soft_labels is None and "labels" not in pixels.groups()
    assert pixels.targets(1).tolist() == [[0, 1, 0]]
    learn_labels(pixels)
    assert pixels.soft_labels is not None and pixels.groups()["labels"] == [pixels.soft_labels]
    assert pixels.targets(2, torch.tensor([1])).tolist() == [[0, 0, 1]]
    with torch.no_grad():
        pixels.soft_labels.add_(torch.randn(6, 3, generator=rng.generator(5, "l")))
    pixels.project()
    assert pixels.soft_labels.min() >= 0
    torch.testing.assert_close(pixels.soft_labels.sum(1), torch.ones(6))


def test_simplex_projection_is_the_nearest_point() -> None:
    draw = rng.generator(6, "simplex")
    rows = torch.randn(20, 4, generator=draw, dtype=torch.float64)
    nearest = nearest_distribution(rows)
    others = torch.rand(5000, 4, generator=draw, dtype=torch.float64).pow(3)
    others = others / others.sum(1, keepdim=True)
    distance = (rows - nearest).norm(dim=1)
    assert bool((torch.cdist(rows, others).min(1).values >= distance - 1e-12).all())
    inside = others[:7]
    torch.testing.assert_close(nearest_distribution(inside), inside)


def test_hostile_shapes_are_refused(real: ImageSet) -> None:
    pixels = make(real)
    with pytest.raises(UserError, match="stored images have shape"):
        Pixels.restore({**pixels.spec(), "counts": [10**12, 1, 1]}, pixels.tensors())
    with pytest.raises(UserError, match="stored labels have shape"):
        Pixels.restore(pixels.spec(), {**pixels.tensors(), "soft_labels": torch.zeros(1, 3)})
    with pytest.raises(UserError, match="ZCA matrix"):
        ZCA.restore({"zca.mean": torch.zeros(3), "zca.basis": torch.zeros(3, 2), "zca.scale": torch.zeros(3)})
    with pytest.raises(UserError, match="Unknown parameterization 'voxels'"):
        parameterization_class("voxels")
