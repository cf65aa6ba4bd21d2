"""Augmentation: siamese draws are shared by batches of any size, gradients flow, per-sample draws differ."""

import pytest
import torch

from tinyset.augment import FAMILIES, Draw, Siamese, augment_batch, cutmix
from tinyset.errors import UserError
from tinyset.rng import generator


def _images(count: int, seed: int = 0, size: int = 16, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(count, 3, size, size, generator=generator(seed), dtype=dtype)


@pytest.mark.parametrize("family", FAMILIES)
def test_one_draw_is_one_transform_for_every_sample_and_batch_size(family: str) -> None:
    siamese = Siamese(family)
    draw = siamese.draw(generator(3))
    images = _images(7)
    whole = siamese.apply(images, draw)
    assert whole.shape == images.shape and whole.dtype == torch.float64
    for i in range(7):
        assert torch.allclose(whole[i : i + 1], siamese.apply(images[i : i + 1], draw), atol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_per_sample_draws_are_the_siamese_ones_sample_by_sample(family: str) -> None:
    siamese = Siamese(family)
    images = _images(5)
    draw = siamese.draw(generator(1), samples=5)
    whole = siamese.apply(images, draw)
    for i in range(5):
        alone = siamese.apply(images[i : i + 1], Draw(family, draw.uniforms[i : i + 1]))
        assert torch.allclose(whole[i : i + 1], alone, atol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("samples", [1, 2])
def test_gradients(family: str, samples: int) -> None:
    siamese = Siamese(family)
    draw = siamese.draw(generator(5), samples)
    images = _images(2, size=8).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: siamese.apply(x, draw), (images,), atol=1e-6)


def test_draws_follow_the_generator_and_cover_all_families() -> None:
    siamese = Siamese()
    same = [siamese.draw(generator(9, "augment", 4)) for _ in range(2)]
    assert same[0].family == same[1].family and torch.equal(same[0].uniforms, same[1].uniforms)
    assert {siamese.draw(generator(0, "augment", i)).family for i in range(60)} == set(FAMILIES)
    assert "flip" not in Siamese(mirror=False).families


def test_magnitudes() -> None:
    ones = torch.ones(1, 1, 32, 32)
    extreme = torch.tensor([[0.0, 0.0, 0.0]])
    assert Siamese("crop").apply(ones, Draw("crop", extreme)).sum() == 28 * 28
    middle = torch.tensor([[0.5, 0.5, 0.5]])
    assert Siamese("cutout").apply(ones, Draw("cutout", middle)).sum() == 32 * 32 - 16 * 16
    assert Siamese("cutout").apply(ones, Draw("cutout", extreme)).sum() == 32 * 32 - 8 * 8
    image = torch.arange(9.0).reshape(1, 1, 3, 3)
    assert torch.equal(Siamese("flip").apply(image, Draw("flip", extreme)), image.flip(3))
    assert torch.equal(Siamese("flip").apply(image, Draw("flip", middle)), image)


def test_flip_shift_moves_each_image_by_whole_pixels() -> None:
    images = torch.zeros(200, 1, 32, 32)
    images[:, :, 16, 15] = 1
    for mirror, columns in ((False, range(11, 20)), (True, range(11, 21))):
        moved = augment_batch(images, "flip-shift", generator(0), mirror)
        assert torch.equal(moved.sum((1, 2, 3)), torch.ones(200))
        places = moved.nonzero()
        assert set(places[:, 2].tolist()) == set(range(12, 21)) and set(places[:, 3].tolist()) == set(columns)


@pytest.mark.parametrize("strategy", ["none", "flip-shift", "dsa", "dsa-nocutout"])
def test_training_batches_are_reproducible(strategy: str) -> None:
    images = _images(6, dtype=torch.float32)
    first, second = (augment_batch(images, strategy, generator(2, "augment", 0)) for _ in range(2))  # type: ignore[arg-type]
    assert torch.equal(first, second) and first.shape == images.shape and first.dtype == torch.float32


def test_cutmix_mixes_targets_by_area() -> None:
    images = torch.arange(4.0)[:, None, None, None].expand(4, 1, 16, 16)
    targets = torch.eye(4)
    changed = 0
    for step in range(40):
        mixed, mixed_targets = cutmix(images, targets, generator(0, step))
        assert torch.allclose(mixed_targets.sum(1), torch.ones(4))
        shares = torch.stack([(mixed == value).float().mean((1, 2, 3)) for value in range(4)], 1)
        assert torch.allclose(shares, mixed_targets, atol=1e-6)
        changed += not torch.equal(mixed, images)
    assert 8 <= changed <= 30
    assert torch.equal(cutmix(images, targets, generator(0), probability=0.0)[0], images)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UserError, match="blur"):
        Siamese("color_blur")
    with pytest.raises(UserError, match="wobble"):
        augment_batch(_images(2), "wobble", generator(0))  # type: ignore[arg-type]
