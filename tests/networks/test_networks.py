"""Networks: published parameter counts, both sizes, one or three channels, seeded weights, a user's own factory."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from tinyset.errors import UserError
from tinyset.networks import Network, build, identity, list_networks, redraw, reset, weights_hash
from tinyset.rng import generator

RGB32 = {"channels": 3, "image_size": (32, 32), "classes": 10}
SMALL = ["convnet2:width=8", "mlp:width=16", "lenet", "alexnet", "vgg11", "resnet10:width=8", "resnet18:width=8"]
SMALL += ["densenet121:growth=4", "vit:dim=24,depth=2"]


def count(spec: str, **shape: object) -> int:
    network = build(spec, **{**RGB32, **shape})  # type: ignore[arg-type]
    return sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize(
    ("spec", "published"),
    [
        ("convnet3", 320_010),  # DC, DM, MTT: "ConvNet-3"
        ("convnet3:norm=batch", 320_010),
        ("lenet", 62_006),
        ("vgg11", 9_231_114),
        ("vgg11:norm=batch", 9_231_114),
        ("resnet18", 11_173_962),
        ("resnet18:norm=batch", 11_173_962),
        ("densenet121", 6_956_298),
        ("densenet121:growth=12", 1_000_618),
    ],
)
def test_parameter_counts_are_the_published_ones(spec: str, published: int) -> None:
    assert count(spec) == published


def test_parameter_counts_by_hand() -> None:
    assert count("mlp") == 3072 * 128 + 128 + 128 * 128 + 128 + 1290
    assert count("alexnet") == 1_872_202
    assert count("resnet10") == 4_903_242
    assert count("vit:dim=192,depth=12,heads=3,patch=16", image_size=(224, 224), classes=1000) == 5_717_416  # ViT-Ti/16
    assert count("convnet3:norm=none") == 320_010 - 3 * 256
    # 64x64 and 200 classes change the linear layer alone: 128 x 4 x 4 inputs instead of 128 x 2 x 2
    assert count("convnet4", image_size=(64, 64), classes=200) - count("convnet4") == 200 * 2049 - 10 * 513


@pytest.mark.parametrize("spec", SMALL)
@pytest.mark.parametrize("shape", [(3, 32), (1, 64), (1, 28)])
def test_every_network_takes_every_shape(spec: str, shape: tuple[int, int]) -> None:
    channels, side = shape
    network = build(spec, channels=channels, image_size=(side, side), classes=5)
    images = torch.randn(2, channels, side, side, generator=generator(0))
    assert isinstance(network, Network)
    logits = network(images)
    assert logits.shape == (2, 5)
    network.eval()
    blocks, features = network.blocks(images), network.features(images)
    assert len(blocks) >= 2 and torch.equal(blocks[-1].flatten(1), features)
    assert torch.allclose(network.classifier(features), network(images), atol=1e-6)


@pytest.mark.parametrize("spec", SMALL)
def test_the_same_seed_draws_the_same_weights(spec: str) -> None:
    one, other = (build(spec, **RGB32) for _ in range(2))  # type: ignore[arg-type]
    torch.manual_seed(0)
    reset(one, generator(3))
    torch.manual_seed(1)
    reset(other, generator(3))
    assert weights_hash(one) == weights_hash(other)
    redraw(other, spec, 4, **RGB32)  # type: ignore[arg-type]
    assert weights_hash(one) != weights_hash(other)


@pytest.mark.parametrize("spec", ["convnet2:width=8", "vit:dim=24,depth=2"])
def test_drawn_weights_are_distributed_like_torch_s(spec: str) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = build(spec, **RGB32)  # type: ignore[arg-type]
    ours = build(spec, **RGB32)  # type: ignore[arg-type]
    reset(ours, generator(0))
    for (name, a), (_, b) in zip(theirs.named_parameters(), ours.named_parameters(), strict=True):
        if a.numel() > 500 and a.std() > 0:
            assert abs(float((b.std() / a.std()).detach()) - 1) < 0.15, name


def test_a_parameter_reset_does_not_know_is_named() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3))

    with pytest.raises(UserError, match=r"'0\.scale'"):
        reset(nn.Sequential(Odd()), generator(0))
    embedding = nn.Sequential(nn.Embedding(4, 3))  # torch's own reset_parameters, seeded
    reset(embedding, generator(0))
    first = weights_hash(embedding)
    reset(embedding, generator(0))
    assert weights_hash(embedding) == first


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("nope", "Unknown network"),
        ("convnet3:width", "key=value"),
        ("convnet3:breadth=3", "does not take"),
        ("resnet18:norm=odd", "Unknown norm"),
        ("convnet9", "depth"),
        ("resnet10:width=4", "width of 8"),
        ("vit:dim=20,heads=3", "do not fit"),
    ],
)
def test_wrong_names_are_one_sentence(spec: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as error:
        build(spec, **RGB32)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("spec", ["lenet", "vgg11", "resnet10", "densenet121", "alexnet", "convnet3"])
def test_images_too_small_are_refused(spec: str) -> None:
    with pytest.raises(UserError, match="too small"):
        build(spec, channels=3, image_size=(4, 4), classes=3)


def test_list() -> None:
    assert {"convnet3", "mlp", "lenet", "alexnet", "vgg11", "resnet10", "resnet18", "densenet121", "vit"} <= set(
        list_networks()
    )


FACTORIES = """
import torch
from torch import nn

class Odd(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(n))
    def forward(self, x):
        return x * self.scale

def good(channels, image_size, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * image_size[0] * image_size[1], classes), Odd(classes))

def wrong_shape(channels, image_size, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * image_size[0] * image_size[1], classes + 1))

def breaks(channels, image_size, classes):
    return nn.Linear(7, classes)

def a_tuple(channels, image_size, classes):
    class Two(nn.Module):
        def forward(self, x):
            return x, x
    return Two()

def no_module(channels, image_size, classes):
    return 3

def other_signature(width):
    return nn.Linear(width, 1)

number = 3
"""


@pytest.fixture
def factories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "my_networks.py"
    path.write_text(FACTORIES)
    monkeypatch.chdir(tmp_path)  # found beside the user, as a console script would not
    monkeypatch.setattr(sys, "path", list(sys.path))
    sys.modules.pop("my_networks", None)
    return path


def test_a_user_s_factory_is_drawn_by_seed(factories: Path) -> None:
    network = build("my_networks:good", **RGB32)  # type: ignore[arg-type]
    hashes = []
    for seed in (0, 1, 0):
        redraw(network, "my_networks:good", seed, **RGB32)  # type: ignore[arg-type]
        hashes.append(weights_hash(network))
    assert hashes[0] == hashes[2] != hashes[1]
    before = identity("my_networks:good")
    factories.write_text(FACTORIES + "\n# edited\n")
    assert identity("my_networks:good") != before and identity("convnet3") == "convnet3"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("wrong_shape", r"logits of shape \(batch, 10\), not \(2, 11\)"),
        ("breaks", "fails on a 3x32x32 image"),
        ("a_tuple", "a tensor of logits, not a tuple"),
        ("no_module", "must return a torch.nn.Module"),
        ("other_signature", "must be callable as"),
        ("number", "not callable"),
        ("missing", "Cannot find"),
    ],
)
def test_a_wrong_factory_gets_one_sentence(factories: Path, name: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as error:
        build(f"my_networks:{name}", **RGB32)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)
