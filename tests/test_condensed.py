"""The artifact: a torch Dataset, byte-stable, and refused in one sentence when it is not whole."""

import json
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

import tinyset
from tinyset.batches import Batches
from tinyset.condensed import CondensedSet
from tinyset.data.imageset import Splits
from tinyset.errors import UserError
from tinyset.parameterizations.labels import learn_labels
from tinyset.protocols import protocol
from tinyset.rng import generator

TINY = dict(
    steps=2, networks=2, network="convnet3:width=4", pretrain_steps=5, compile="never", params_per_class=2000, threads=1
)


@pytest.fixture
def condensed(toy: Splits) -> CondensedSet:
    return tinyset.condense(toy.train, recipe=None, decoders=2, **TINY)


def test_it_is_a_dataset(condensed: CondensedSet) -> None:
    image, label = condensed[0]
    assert image.shape == (3, 16, 16) and image.dtype == torch.float32 and isinstance(label, int)
    assert image.min() >= 0 and image.max() <= 1
    assert len(condensed) == sum(condensed.parameterization.counts)
    assert condensed[-1][1] == 2
    with pytest.raises(IndexError):
        condensed[len(condensed)]
    images, labels = condensed.decode()
    torch.testing.assert_close(images[7], condensed[7][0])
    batch, of = next(iter(DataLoader(condensed, batch_size=5, shuffle=True)))
    assert batch.shape == (5, 3, 16, 16) and of.dtype == torch.int64
    assert labels.tolist() == sorted(labels.tolist())


def test_images_by_class_and_decoder(condensed: CondensedSet) -> None:
    decoders = condensed.config.spec["decoders"]
    one = condensed.images(class_="class 1", decoder=0)
    assert len(one) == condensed.config.spec["codes_per_class"][1]
    torch.testing.assert_close(one, condensed.images(class_=1)[::decoders])
    with pytest.raises(UserError, match="no decoder 99"):
        condensed.images(decoder=99)


def test_the_loader_normalises_and_augments_as_recorded(condensed: CondensedSet) -> None:
    plain = torch.cat([batch for batch, _ in condensed.loader(train=False)])
    mean, std = (torch.tensor(v).view(1, -1, 1, 1) for v in condensed.normalisation)
    torch.testing.assert_close(plain * std + mean, condensed.decode()[0])
    first = [batch for batch, _ in condensed.loader(epochs=2, seed=3)]
    again = [batch for batch, _ in condensed.loader(epochs=2, seed=3)]
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], first[len(first) // 2])


def test_the_loader_gives_the_batches_of_the_evaluation(condensed: CondensedSet) -> None:
    """A loop over it reaches the recorded accuracy only with the batches that accuracy was measured with."""
    config = condensed.config.model_copy(update={"protocol": "kfs:batch=5"})
    made = CondensedSet(condensed.parameterization, config)
    assert len(next(iter(made.loader()))[0]) == len(next(iter(made.loader(train=False)))[0]) == 5
    assert len(next(iter(made.loader(batch_size=7)))[0]) == 7
    images, labels = made.decode()
    batch, targets = Batches(images, labels, protocol("kfs:batch=5"), made.normalisation, made.mirror, 0).at(0)
    first = next(iter(made.loader()))
    assert torch.equal(first[0], batch) and torch.equal(first[1], targets)


def test_a_round_trip_keeps_every_byte(condensed: CondensedSet, tmp_path: Path) -> None:
    path = condensed.save(tmp_path / "a")
    assert {p.name for p in path.iterdir()} == {"condensed.safetensors", "config.json", "README.md", "preview.png"}
    again = tinyset.load(path)
    assert torch.equal(again.decode()[0], condensed.decode()[0])
    again.save(tmp_path / "b")
    for name in ("condensed.safetensors", "config.json", "README.md"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert again.bytes == (path / "condensed.safetensors").stat().st_size
    assert again.ledger()["classes"] == 3
    with pytest.raises(UserError, match="not empty"):
        condensed.save(path)
    condensed.save(path, overwrite=True)
    assert [p for p in tmp_path.iterdir() if p.name.startswith(".")] == []


@pytest.mark.parametrize(("precision", "smaller", "close"), [("float16", 0.6, 2e-3), ("int8", 0.45, 0.05)])
def test_coarser_numbers_cost_fewer_bytes(
    condensed: CondensedSet, tmp_path: Path, precision: str, smaller: float, close: float
) -> None:
    coarse = condensed.with_precision(precision)
    path = coarse.save(tmp_path / precision)
    again = tinyset.load(path)
    assert torch.equal(again.decode()[0], coarse.decode()[0])
    torch.testing.assert_close(coarse.decode()[0], condensed.decode()[0], atol=close, rtol=0)
    assert again.bytes == (path / "condensed.safetensors").stat().st_size < smaller * condensed.bytes + 2000


def test_dropping_codes_and_decoders(condensed: CondensedSet) -> None:
    fewer = condensed.drop(decoders=[0])
    decoders = condensed.config.spec["decoders"]
    assert len(fewer) == len(condensed) // decoders * (decoders - 1)
    torch.testing.assert_close(fewer.images(0, decoder=0), condensed.images(0, decoder=1))
    shorter = condensed.drop(codes=1)
    assert shorter.config.spec["codes_per_class"][0] == condensed.config.spec["codes_per_class"][0] - 1
    assert shorter.bytes < condensed.bytes
    learn_labels(condensed.parameterization)
    labels = condensed.soft_labels
    assert labels is not None
    with torch.no_grad():
        labels.copy_(torch.rand(labels.shape, generator=generator(0)))
    fewer = condensed.drop(decoders=[0], codes=1)
    assert fewer.soft_labels is not None
    torch.testing.assert_close(fewer.soft_labels[0], labels[1])  # the first image left is code 0, decoder 1
    assert len(fewer.soft_labels) == len(fewer)
    with pytest.raises(UserError, match="leave"):
        condensed.drop(codes=100)


def _edit(path: Path, **values: object) -> None:
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | values))


def test_what_is_not_whole_is_refused_in_one_sentence(condensed: CondensedSet, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    def damaged(name: str) -> Path:
        return condensed.save(tmp_path / name)

    path = damaged("version")
    _edit(path, format=99)
    with pytest.raises(UserError, match="format 99"):
        tinyset.load(path)
    path = damaged("typo")
    _edit(path, mea=[1])
    with pytest.raises(UserError, match="unknown key 'mea'"):
        tinyset.load(path)
    path = damaged("truncated")
    whole = (path / "condensed.safetensors").read_bytes()
    for length in (0, 4, 100, len(whole) - 1):
        (path / "condensed.safetensors").write_bytes(whole[:length])
        with pytest.raises(UserError, match=r"condensed\.safetensors"):
            tinyset.load(path)
    path = damaged("nan")
    tensors = load_file(path / "condensed.safetensors")
    save_file(tensors | {"codes": tensors["codes"] * float("nan")}, path / "condensed.safetensors")
    with pytest.raises(UserError, match="'codes' holds NaN"):
        tinyset.load(path)
    save_file({k: v for k, v in tensors.items() if k != "decoders.0.bias"}, path / "condensed.safetensors")
    with pytest.raises(UserError, match=r"decoders\.0\.bias.* is missing"):
        tinyset.load(path)
    save_file(tensors | {"codes": tensors["codes"][1:].clone()}, path / "condensed.safetensors")
    with pytest.raises(UserError, match="'codes' has shape"):
        tinyset.load(path)
    path = damaged("json")
    (path / "config.json").write_text("{")
    with pytest.raises(UserError, match="not valid JSON"):
        tinyset.load(path)
    for wrong in (tmp_path, tmp_path / "nothing", Path(__file__)):
        with pytest.raises(UserError):
            tinyset.load(wrong)
