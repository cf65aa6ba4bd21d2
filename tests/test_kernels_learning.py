"""The kernels' gradients of the weights equal torch's, and a training on them is the training torch would have done."""

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.conftest import toy_images
from tests.evaluation.test_training import StopAfter
from tests.test_kernels import needs_compiler, network, own_cache  # noqa: F401
from tinyset import machine, rng
from tinyset.data.imageset import Splits
from tinyset.evaluation.evaluator import Evaluator
from tinyset.evaluation.results import Results
from tinyset.evaluation.sets import TrainingSet
from tinyset.interrupts import Interrupted
from tinyset.kernels import Classifier, build, library, suits
from tinyset.networks import weights_hash
from tinyset.protocols import Protocol
from tinyset.training import idle_biases, predict, train

pytestmark = needs_compiler
STATS = ((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
PROTOCOL = Protocol(name="t", epochs=3, batch=8, augmentation="flip-shift")


def learner(spec: str, shape: tuple[int, int, int], seed: int = 0) -> nn.Module:
    made = network(spec, shape, seed).requires_grad_(True)
    return made.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def gradients(model: nn.Module, logits: torch.Tensor) -> dict[str, torch.Tensor]:
    labels = torch.arange(len(logits)) % 2
    F.cross_entropy(logits, labels).backward()
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    return found


SHAPES = [
    ("convnet3:width=128", (3, 32, 32), 7),
    ("convnet3:width=32", (3, 32, 32), 64),
    ("convnet3:width=64", (1, 28, 28), 7),  # padded to 32x32 by its first convolution
    ("convnet4:width=16", (3, 64, 64), 7),
    ("convnet2:width=48", (2, 13, 18), 5),  # odd sides: tiles and windows that are not full
    ("convnet3:width=16", (1, 21, 9), 64),
    ("convnet1:width=16", (3, 8, 8), 7),
    ("convnet2:width=16", (4, 8, 12), 1),
]


@pytest.mark.parametrize(("spec", "shape", "count"), SHAPES)
def test_gradients_of_the_weights_equal_torch(spec: str, shape: tuple[int, int, int], count: int) -> None:
    made = learner(spec, shape)
    assert suits(made)
    images = torch.randn(count, *shape, generator=rng.generator(1, "images"))
    exact = copy.deepcopy(made).double()
    ours, theirs = gradients(made, Classifier(made)(images)), gradients(exact, exact(images.double()))
    idle = {id(bias) for bias in idle_biases(made)}
    assert set(ours) == {name for name, p in made.named_parameters() if id(p) not in idle}
    for name, gradient in ours.items():
        assert (gradient - theirs[name]).norm() <= 1e-4 * theirs[name].norm(), name


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The kernels as a machine without AVX-512 compiles them."""
    if "avx512f" not in build._cpu():
        pytest.skip("no AVX-512 here: all tests of kernels are of the narrow vectors")
    wide = library()
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-mno-avx512f"))
    library.cache_clear()
    assert library() is not None and wide is not None and library()._name != wide._name  # type: ignore[union-attr]
    yield
    library.cache_clear()


@pytest.mark.parametrize(("spec", "shape", "count"), SHAPES)
def test_narrow_vectors_do_as_well(narrow: None, spec: str, shape: tuple[int, int, int], count: int) -> None:
    test_gradients_of_the_weights_equal_torch(spec, shape, count)


def test_a_gain_of_zero_has_a_gradient() -> None:
    made = learner("convnet2:width=16", (3, 8, 8))
    with torch.no_grad():
        made.layers[1][1].weight[:5] = 0  # type: ignore[index, union-attr]
    images = torch.randn(4, 3, 8, 8, generator=rng.generator(2, "images"))
    ours, theirs = gradients(made, Classifier(made)(images)), gradients(made, made(images))  # type: ignore[arg-type]
    torch.testing.assert_close(ours["layers.1.1.weight"], theirs["layers.1.1.weight"], rtol=1e-4, atol=1e-6)


def test_any_number_of_threads_gives_the_same_bytes() -> None:
    made = learner("convnet3:width=32", (3, 32, 32))
    images = torch.randn(33, 3, 32, 32, generator=rng.generator(3, "images"))  # more tiles than a chunk
    found, threads = [], torch.get_num_threads()
    for count in (1, 2, 3, 2):
        torch.set_num_threads(count)
        found.append(gradients(made, Classifier(made)(images)))  # type: ignore[arg-type]
    torch.set_num_threads(threads)
    for name in found[0]:
        if name.startswith("layers"):  # the linear layer is torch's
            assert all(torch.equal(found[0][name], other[name]) for other in found[1:]), name


def data() -> tuple[torch.Tensor, torch.Tensor]:
    made = toy_images(21, classes=2)
    return made.images, made.labels


def trained(seed: int = 0, **options) -> nn.Module:  # type: ignore[no-untyped-def]
    made = learner("convnet2:width=16", (3, 16, 16), seed)
    train(made, *data(), PROTOCOL, normalisation=STATS, mirror=True, seed=0, **options)
    return made


def test_a_training_ends_where_torch_ends_and_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(*_: object, **__: object) -> None:
        raise AssertionError("torch.compile was asked for")

    monkeypatch.setattr(machine, "compiled", compiled)
    fast, slow = trained(compile=True), trained()
    assert weights_hash(fast) != weights_hash(slow)  # it was another way
    for (name, ours), theirs in zip(fast.named_parameters(), slow.parameters(), strict=True):
        assert (ours - theirs).norm() <= 1e-4 * max(float(theirs.detach().norm()), 1), name
    images = data()[0]
    for batch in (4, 512):
        predicted = predict(fast, images, normalisation=STATS, compile=True, batch=batch)
        assert torch.equal(predicted, predict(fast, images, normalisation=STATS))


@pytest.mark.parametrize("stop_after", [0, 4])
def test_stopped_and_resumed_ends_with_the_same_bytes(tmp_path: Path, stop_after: int) -> None:
    whole, path = trained(compile=True), tmp_path / "training.safetensors"
    with pytest.raises(Interrupted):
        trained(compile=True, checkpoint=path, stop=StopAfter(stop_after))
    resumed = trained(seed=5, compile=True, checkpoint=path)  # its weights are replaced
    assert weights_hash(resumed) == weights_hash(whole) == weights_hash(trained(compile=True))


@pytest.mark.parametrize(
    ("spec", "compile", "expected"),
    [
        ("convnet2:width=16", None, True),
        ("convnet2:width=16", False, False),
        ("convnet2:width=12", None, False),  # a short training, and torch would have to compile
    ],
)
def test_the_evaluation_uses_them_for_short_trainings_too(
    tmp_path: Path, spec: str, compile: bool | None, expected: bool
) -> None:
    lab = Evaluator(Splits("toy", toy_images(), toy_images()), Results(tmp_path / "results.jsonl"), compile=compile)
    images, labels = data()
    of = TrainingSet(images, labels, None, STATS, False, "toy", 1, "key")
    assert lab.compiles(spec, of, PROTOCOL) is expected
