"""The engine's exact gradient equals a naive loop over equation (1), however the work is cut."""

import gc
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tinyset import engine, machine, rng
from tinyset.augment import Siamese
from tinyset.engine import Embedder, Summary, activation_bytes, class_gradient, even_chunk
from tinyset.errors import UserError
from tinyset.networks import build, reset
from tinyset.parameterizations.base import Parameterization
from tinyset.parameterizations.codes import Codes
from tinyset.parameterizations.pixels import Pixels

STATS = ((0.4, 0.5, 0.6), (0.2, 0.25, 0.3))
CPU = torch.device("cpu")
Gradient = tuple[list[Summary], list[torch.Tensor]]


def network(norm: str = "instance", seed: int = 0, depth: int = 2) -> torch.nn.Module:
    made = build(f"convnet{depth}:width=4,norm={norm}", channels=3, image_size=(8, 8), classes=2)
    reset(made, rng.generator(seed, "test network"))
    return made


def embedder(chunk: int, dtype: torch.dtype = torch.float64, **more: bool | Callable[[str], None]) -> Embedder:
    return Embedder(network(), STATS, device=CPU, chunk=chunk, dtype=dtype, **more)  # type: ignore[arg-type]


def codes() -> Codes:
    """3 codes x 2 decoders in the first class, 2 x 2 in the second; 8x8 images."""
    made = Codes((3, 8, 8), (3, 2), (4, 2, 2), (4, 2, 3), 2)
    draw = rng.generator(1, "codes")
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw))
    return made.double()


def pixels() -> Pixels:
    made = Pixels((3, 8, 8), (6, 4))
    with torch.no_grad():
        made.images.copy_(torch.rand(made.images.shape, generator=rng.generator(2, "pixels")))
    return made.double()


def target(features: int = 16) -> torch.Tensor:
    return torch.randn(features, generator=rng.generator(3, "target"), dtype=torch.float64)


def pull(mu: torch.Tensor) -> engine.Cotangent:
    """The cotangent of 1/2 |mean - mu|^2."""

    def gradient(_: torch.Tensor, group: int, summaries: Sequence[Summary]) -> torch.Tensor:
        return (summaries[group].mean - mu) / summaries[group].count

    return gradient


def naive(
    synthetic: Parameterization, mu: torch.Tensor, transform: engine.Transform | None = None
) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    """One class of equation (1) written down, image by image, and autograd's gradient of it."""
    g = network().double()
    mean, std = (torch.tensor(v, dtype=torch.float64).view(1, 3, 1, 1) for v in STATS)
    embeddings = []
    for i in range(synthetic.counts[0]):
        image = synthetic.decode(0, torch.tensor([i]))
        embeddings.append(g.features(((image if transform is None else transform(image)) - mean) / std)[0])  # type: ignore[operator]
    centre = torch.stack(embeddings).mean(0)
    loss = 0.5 * (centre - mu).square().sum()
    return centre.detach(), torch.autograd.grad(loss, list(synthetic.parameters()))


def check(found: Gradient, centre: torch.Tensor, gradients: Sequence[torch.Tensor]) -> None:
    torch.testing.assert_close(found[0][0].mean, centre, rtol=1e-12, atol=1e-12)
    for ours, theirs in zip(found[1], gradients, strict=True):  # of codes and images: the rows of class 0
        torch.testing.assert_close(ours, theirs[: len(ours)], rtol=1e-11, atol=1e-13)
        assert not theirs[len(ours) :].any()


@pytest.mark.parametrize("start", [codes, pixels])
@pytest.mark.parametrize("one_pass", [True, False])
@pytest.mark.parametrize("chunk", [1, 2, 4, 6, 50])
def test_any_cut_of_the_work_is_equation_1(start: Callable[[], Parameterization], one_pass: bool, chunk: int) -> None:
    synthetic, mu = start(), target()
    centre, gradients = naive(synthetic, mu)
    everything = [torch.arange(synthetic.counts[0])]
    check(class_gradient(embedder(chunk), synthetic, 0, everything, pull(mu), one_pass=one_pass), centre, gradients)


@pytest.mark.parametrize("family", ["color", "crop", "cutout", "flip", "scale", "rotate"])
@pytest.mark.parametrize("one_pass", [True, False])
def test_an_augmentation_is_the_same_in_both_passes(family: str, one_pass: bool) -> None:
    synthetic, mu, siamese, embed = codes(), target(), Siamese(family), embedder(2)
    draw = siamese.draw(rng.generator(4, family))

    def transform(images: torch.Tensor) -> torch.Tensor:
        return embed.pixels(siamese.apply(embed.normalised(images), draw))

    everything = [torch.arange(6)]
    found = class_gradient(embed, synthetic, 0, everything, pull(mu), one_pass=one_pass, transform=transform)
    check(found, *naive(synthetic, mu, transform))


def test_back_propagation_through_some_has_the_means_of_all() -> None:
    synthetic, mu, some = codes(), target(), torch.tensor([5, 1])
    centre, _ = naive(synthetic, mu)
    everything = [torch.arange(6)]
    summaries, gradients = class_gradient(
        embedder(4), synthetic, 0, everything, pull(mu), one_pass=True, through=[some]
    )
    embeddings = embedder(4)(synthetic.decode(0, some))
    by_hand = torch.autograd.grad(embeddings, list(synthetic.parameters()), ((centre - mu) / 6).expand(2, -1))
    check((summaries, gradients), centre, by_hand)


def test_uint8_and_float_pixels_have_one_embedding() -> None:
    images = torch.randint(0, 256, (3, 3, 8, 8), generator=rng.generator(5, "bytes"), dtype=torch.uint8)
    embed = embedder(4)
    torch.testing.assert_close(embed(images), embed(images.double() / 255), rtol=1e-12, atol=1e-12)


def test_a_short_chunk_is_padded_and_nobody_sees_it() -> None:
    images = torch.rand(3, 3, 8, 8, generator=rng.generator(6, "short"), dtype=torch.float64)
    plain, padding = embedder(5), embedder(5)
    padding._pad = True  # what compiling turns on: one shape, one compilation
    torch.testing.assert_close(padding(images), plain(images), rtol=1e-12, atol=1e-12)


def test_new_weights_are_seen_at_once() -> None:
    embed, images = embedder(2), torch.full((2, 3, 8, 8), 0.3, dtype=torch.float64)
    images[0, 0, 2, 3] = 1
    before = embed(images)
    reset(embed.network, rng.generator(1, "test network"))
    after = embed(images)
    assert not torch.allclose(before, after)
    torch.testing.assert_close(embed.with_chunk(1)(images[:1]), after[:1], rtol=1e-12, atol=1e-12)


def test_batch_statistics_are_refused() -> None:
    with pytest.raises(UserError, match="batch statistics"):
        Embedder(network("batch"), STATS, device=CPU, chunk=2)


def test_a_network_without_features_is_refused() -> None:
    with pytest.raises(UserError, match="Linear has no `features`"):
        Embedder(torch.nn.Linear(2, 2), STATS, device=CPU, chunk=2)


def test_without_a_compiler_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "no_compiler", lambda: "no C++ compiler found")
    said: list[str] = []
    embed = embedder(2, compile=True, note=said.append)
    assert len(said) == 1 and "no C++ compiler found" in said[0]
    images = torch.rand(1, 3, 8, 8, generator=rng.generator(7, "images"), dtype=torch.float64)
    torch.testing.assert_close(embed(images), embedder(2)(images), rtol=1e-12, atol=1e-12)


@given(st.integers(1, 5000), st.sampled_from([8, 28, 32, 64, 512]), st.none() | st.integers(1, 300))
def test_chunks_are_even_and_within_the_limit(count: int, side: int, limit: int | None) -> None:
    chunk = even_chunk(count, (3, side, side), limit)
    most = limit or max(1, engine.MOST_PER_CHUNK * 1024 // side**2)
    pieces = -(-count // chunk)
    assert 1 <= chunk <= most
    assert pieces == -(-count // most)  # no more passes than needed
    assert pieces * chunk - count < pieces  # padding: less than one image per pass


def test_activations_grow_with_the_image() -> None:
    small, large = (activation_bytes(network(), (3, side, side)) for side in (8, 16))
    assert small > 8 * 8 * 3 * 4
    assert large == pytest.approx(4 * small, rel=0.1)


@pytest.mark.slow
@pytest.mark.skipif(machine.no_compiler() is not None, reason="no compiler here")
def test_compiled_equals_eager() -> None:
    synthetic, mu, everything = codes().float(), target(64), [torch.arange(6)]
    slow, fast = (Embedder(network(depth=1), STATS, device=CPU, chunk=4, compile=compile) for compile in (False, True))
    for seed in (0, 1):  # the second time with other weights, swapped in place
        for embed in (slow, fast):
            reset(embed.network, rng.generator(seed, "weights"))
        plain = class_gradient(slow, synthetic, 0, everything, pull(mu), one_pass=True)
        for one_pass in (True, False):
            quick = class_gradient(fast, synthetic, 0, everything, pull(mu), one_pass=one_pass)
            torch.testing.assert_close(quick[0][0].mean, plain[0][0].mean, rtol=1e-4, atol=1e-6)
            for a, b in zip(quick[1], plain[1], strict=True):
                assert (a - b).norm() <= 1e-4 * b.norm()


def test_counting_activations_leaves_nothing_behind():
    """A hook that keeps a function's own output makes a cycle that no collector sees: 30 tensors a run."""
    made = network()

    def alive() -> int:
        gc.collect()
        return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())

    activation_bytes(made, (3, 8, 8))
    before = alive()
    for _ in range(3):
        activation_bytes(made, (3, 8, 8))
    assert alive() == before
