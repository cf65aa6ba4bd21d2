"""Codes x decoders: the paper's decoders exactly, subsets, any shape, and the start."""

import pytest
import torch
import torch.nn.functional as F
from tests.conftest import toy_images

from tinyset.budget import plan_codes
from tinyset.errors import UserError
from tinyset.parameterizations.autoencoder import AutoEncoder
from tinyset.parameterizations.beginnings import create_codes
from tinyset.parameterizations.codes import Codes
from tinyset.parameterizations.decoders import Decoders, from_patches, to_patches
from tinyset.progress import Silent
from tinyset.rng import generator


def random_decoders(channels: tuple[int, ...], count: int) -> Decoders:
    made = Decoders(channels, count).double()
    with torch.no_grad():
        for p in made.parameter_list():
            p.copy_(torch.randn(p.shape, generator=generator(0, "decoders", *p.shape), dtype=torch.float64) * 0.3)
    return made


@pytest.mark.parametrize("channels", [(12, 9, 6, 3), (12, 6, 3), (4, 3, 2, 1)])
def test_all_decoders_at_once_are_the_papers_transposed_convolutions(channels: tuple[int, ...]) -> None:
    decoders = random_decoders(channels, 5)
    codes = torch.randn(11, channels[0], 4, 3, generator=generator(1), dtype=torch.float64)
    which = torch.arange(11) % 5
    images = decoders(codes, which)
    for i in range(11):
        x = codes[i : i + 1]
        for weight, bias in zip(decoders.weights, decoders.biases, strict=True):
            x = F.conv_transpose2d(x, weight[which[i]], bias[which[i]], stride=2)
        torch.testing.assert_close(images[i], x[0].sigmoid(), rtol=0, atol=1e-12)
    assert images.is_contiguous(memory_format=torch.channels_last)


def test_the_encoder_as_one_affine_map_is_the_stack_of_convolutions() -> None:
    model = AutoEncoder((12, 9, 6, 3)).double()
    images = torch.rand(3, 3, 16, 24, dtype=torch.float64, generator=generator(0))
    torch.testing.assert_close(model.encode(images), model.encoder(images))
    assert torch.equal(from_patches(to_patches(images, 8), 2, 3, 8), images)


def test_codes_are_found_back_through_the_mean_of_the_decoders() -> None:
    decoders = random_decoders((12, 9, 6, 3), 3)
    with torch.no_grad():
        for p in decoders.parameter_list():  # copies: the mean of the decoders is each of them
            p.copy_(p[:1].expand_as(p))
    codes = torch.randn(5, 12, 2, 3, generator=generator(2), dtype=torch.float64) * 0.1  # no pixel near 0 or 1
    images = decoders(codes, torch.zeros(5, dtype=torch.long))
    assert images.min() > 0.02 and images.max() < 0.98
    torch.testing.assert_close(decoders.encode(images), codes)


def made_codes(shape: tuple[int, int, int] = (3, 32, 32), **options: object) -> Codes:
    real = toy_images(40, 2, shape)
    plan = plan_codes((shape[0] * shape[1] * shape[2],) * 2, shape, decoders=4)
    settings = dict(pretrain_steps=30, pretrain_batch=16, pretrain_rate=0.01, noise=0.1, seed=0)
    return create_codes(
        real, plan, device=torch.device("cpu"), cache=None, progress=Silent(), **(settings | options)  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 60, 40), (3, 96, 96)])
def test_any_shape_decodes_to_itself_in_the_unit_interval(shape: tuple[int, int, int]) -> None:
    images = made_codes(shape, pretrain_steps=2).decode(1)
    assert images.shape[1:] == shape
    assert images.min() >= 0 and images.max() <= 1


def test_a_subset_is_the_same_images() -> None:
    made = made_codes()
    index = torch.tensor([0, 5, 5, 17])
    torch.testing.assert_close(made.decode(1, index), made.decode(1)[index])


def test_the_autoencoder_learns_and_is_cached(tmp_path) -> None:  # type: ignore[no-untyped-def]
    real = toy_images(40, 2, (3, 16, 16))
    plan = plan_codes((768,) * 2, (3, 16, 16), decoders=1)
    settings = dict(pretrain_steps=200, pretrain_batch=32, pretrain_rate=0.01, noise=0.0, seed=0)
    common = dict(device=torch.device("cpu"), cache=tmp_path, progress=Silent())
    first = create_codes(real, plan, **settings, **common)  # type: ignore[arg-type]
    error = (first.decode(0) - real.images[real.by_class[0]].float().div(255).mean(0)).square().mean()
    assert error < 0.03  # codes of real images look like real images
    files = list(tmp_path.rglob("*.safetensors"))
    assert len(files) == 1
    again = create_codes(real, plan, **settings, **common)  # type: ignore[arg-type]
    assert torch.equal(first.codes, again.codes)
    files[0].write_bytes(files[0].read_bytes()[:-10])  # a damaged cache is computed again, to the same bytes
    assert torch.equal(first.codes, create_codes(real, plan, **settings, **common).codes)  # type: ignore[arg-type]


def test_noise_breaks_the_symmetry_of_the_copies() -> None:
    same, different = made_codes(noise=0.0), made_codes(noise=0.1)
    weight = same.decoders.weights[0]
    assert torch.equal(weight[0], weight[1])
    weight = different.decoders.weights[0]
    ratio = (weight[0] / same.decoders.weights[0][0] - 1).std()
    assert 0.05 < ratio < 0.2


def test_restore_is_the_inverse_and_refuses_what_does_not_fit() -> None:
    made = made_codes()
    again = Codes.restore(made.spec(), made.tensors())
    assert torch.equal(again.decode(0), made.decode(0))
    assert made.class_parameters(0) == made.codes_per_class[0] * 192
    assert made.shared_parameters() == 4 * 738
    huge = made.spec() | {"code_shape": [12, 40_000, 40_000]}
    with pytest.raises(UserError, match="'codes' has shape"):
        Codes.restore(huge, made.tensors())
    with pytest.raises(UserError, match="do not make"):
        Codes.restore(made.spec() | {"image_shape": [3, 64, 64]}, made.tensors())
