"""The kernels equal torch's own operations, for every shape they accept; what they do not know is left to torch."""

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

from tinyset import rng
from tinyset.engine import Embedder, activation_bytes
from tinyset.kernels import Features, build, library, suits
from tinyset.networks import build as build_network
from tinyset.networks import reset

needs_compiler = pytest.mark.skipif(library() is None, reason="no compiler here")
MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)


@pytest.fixture(autouse=True)
def own_cache() -> None:
    """Not a cache per test: the kernels are compiled once."""


def network(spec: str, shape: tuple[int, int, int], seed: int = 0) -> nn.Module:
    made = build_network(spec, channels=shape[0], image_size=shape[1:], classes=2)
    reset(made, rng.generator(seed, "kernels"))
    draw = rng.generator(seed, "norm")
    with torch.no_grad():
        for module in made.modules():
            if isinstance(module, nn.GroupNorm):  # not only ones and zeros
                module.weight.copy_(0.5 + torch.rand(module.weight.shape, generator=draw))
                module.bias.copy_(torch.rand(module.bias.shape, generator=draw) - 0.5)
    return made.requires_grad_(False)


def stats(colours: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return MEAN[:colours], STD[:colours]


def plain(made: nn.Module, pixels: torch.Tensor) -> torch.Tensor:
    mean, std = (torch.tensor(v, dtype=torch.float64).view(1, -1, 1, 1) for v in stats(pixels.shape[1]))
    return copy.deepcopy(made).double().features((pixels.double() - mean) / std)  # type: ignore[operator]


SHAPES = [
    ("convnet3:width=16", (3, 32, 32)),
    ("convnet3:width=48", (1, 28, 28)),  # padded to 32x32 by its first convolution
    ("convnet2:width=32", (3, 20, 28)),
    ("convnet2:width=16", (2, 13, 18)),  # odd sides: tiles and windows that are not full
    ("convnet1:width=32", (3, 8, 8)),
    ("convnet4:width=16", (3, 64, 40)),
]


@needs_compiler
@pytest.mark.parametrize(("spec", "shape"), SHAPES)
@pytest.mark.parametrize("count", [1, 5])
def test_embedding_and_gradient_equal_torch(spec: str, shape: tuple[int, int, int], count: int) -> None:
    made = network(spec, shape)
    assert suits(made)
    pixels = torch.rand(count, *shape, generator=rng.generator(1, "pixels")).requires_grad_()
    ours, theirs = Features(made, stats(shape[0]))(pixels), plain(made, pixels)
    assert (ours - theirs).norm() <= 1e-5 * theirs.norm()
    direction = torch.randn(theirs.shape, generator=rng.generator(2, "direction"))
    (ours_back,) = torch.autograd.grad(ours, pixels, direction)
    (theirs_back,) = torch.autograd.grad(theirs, pixels, direction.double())
    assert (ours_back - theirs_back).norm() <= 1e-4 * theirs_back.norm()


@needs_compiler
def test_bytes_are_pixels() -> None:
    made = network("convnet2:width=16", (3, 16, 16))
    images = torch.randint(0, 256, (4, 3, 16, 16), generator=rng.generator(3, "bytes"), dtype=torch.uint8)
    features = Features(made, stats(3))  # type: ignore[arg-type]
    torch.testing.assert_close(features(images), features(images / 255), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(features(images.double() / 255), features(images / 255), rtol=1e-6, atol=1e-6)


@needs_compiler
def test_an_image_does_not_see_its_neighbours() -> None:
    features = Features(network("convnet3:width=16", (3, 16, 16)), stats(3))  # type: ignore[arg-type]
    images = torch.rand(7, 3, 16, 16, generator=rng.generator(4, "images"))
    assert torch.equal(features(images)[3:4], features(images[3:4]))


@needs_compiler
def test_swapped_weights_are_seen_at_once_and_a_pending_gradient_keeps_its_own() -> None:
    made, other = network("convnet2:width=16", (3, 8, 8)), network("convnet2:width=16", (3, 8, 8), seed=1)
    features = Features(made, stats(3))  # type: ignore[arg-type]
    pixels = torch.rand(2, 3, 8, 8, generator=rng.generator(5, "pixels")).requires_grad_()
    before = features(pixels)
    (expected,) = torch.autograd.grad(before.sum(), pixels, retain_graph=True)
    reset(made, rng.generator(9, "swapped"))
    (pending,) = torch.autograd.grad(before.sum(), pixels)
    assert torch.equal(pending, expected)
    assert (features(pixels) - plain(made, pixels)).norm() <= 1e-5 * before.norm()
    made.load_state_dict(other.state_dict())
    assert (features(pixels) - plain(other, pixels)).norm() <= 1e-5 * before.norm()


@needs_compiler
def test_what_is_no_number_stays_none() -> None:
    features = Features(network("convnet2:width=16", (3, 8, 8)), stats(3))  # type: ignore[arg-type]
    pixels = torch.rand(2, 3, 8, 8, generator=rng.generator(6, "pixels"))
    pixels[1, 0, 3, 3] = float("nan")
    assert features(pixels)[0].isfinite().all() and features(pixels)[1].isnan().any()


@needs_compiler
def test_any_number_of_threads_gives_the_same_bytes() -> None:
    features = Features(network("convnet3:width=16", (3, 16, 16)), stats(3))  # type: ignore[arg-type]
    pixels = torch.rand(9, 3, 16, 16, generator=rng.generator(7, "pixels")).requires_grad_()
    found, threads = [], torch.get_num_threads()
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        embedding = features(pixels)
        found.append((embedding, torch.autograd.grad(embedding.sum(), pixels)[0]))
    torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


@needs_compiler
@pytest.mark.parametrize("shape", [(2, 4, 8, 8), (3, 8, 8)])
def test_other_shapes_are_refused_before_memory_is_touched(shape: tuple[int, ...]) -> None:
    features = Features(network("convnet2:width=16", (3, 8, 8)), stats(3))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="do not suit"):
        features(torch.zeros(shape))


@pytest.mark.parametrize(
    "spec", ["convnet2:width=12", "convnet2:norm=group", "convnet2:activation=swish", "convnet2:pooling=max", "lenet"]
)
def test_what_the_kernels_do_not_know_is_left_to_torch(spec: str) -> None:
    assert not suits(build_network(spec, channels=3, image_size=(16, 16), classes=2))


@needs_compiler
def test_the_engine_uses_them_where_it_may() -> None:
    def engine(compile: bool, dtype: torch.dtype = torch.float32) -> Embedder:
        made = network("convnet2:width=16", (3, 8, 8))
        return Embedder(made, stats(3), device=torch.device("cpu"), chunk=4, compile=compile, dtype=dtype)

    images = torch.rand(3, 3, 8, 8, generator=rng.generator(8, "images"))
    fast, slow = engine(True), engine(False)
    assert isinstance(fast._forward, Features) and not isinstance(slow._forward, Features)
    assert (fast(images) - slow(images)).norm() <= 1e-5 * slow(images).norm()
    assert fast.activation_bytes((3, 8, 8)) < activation_bytes(slow.network, (3, 8, 8))


def test_without_a_compiler_there_are_no_kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    try:
        assert library() is None
        assert not suits(network("convnet2:width=16", (3, 8, 8)))
    finally:
        library.cache_clear()


def test_a_compiler_that_fails_costs_only_speed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library.cache_clear()
    broken = tmp_path / "cxx"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    monkeypatch.setenv("TINYSET_CACHE", str(tmp_path / "cache"))
    try:
        assert library() is None
        assert not list((tmp_path / "cache" / "compiled").iterdir())
    finally:
        library.cache_clear()
    assert build.SOURCES[-1] == "convnet.cpp"
