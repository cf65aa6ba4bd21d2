"""Growing, forgetting, merging: a new set each time, the old one untouched, the ledger true."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import tinyset
from tests.report.made import NASTY, codes_set, stored_set, stripes
from tinyset.bank import open_bank
from tinyset.cli import main
from tinyset.condensed import CondensedSet
from tinyset.data.imageset import ImageSet, Splits
from tinyset.data.load import BENCHMARKS
from tinyset.data.streetdigits import streetdigits
from tinyset.downstream.living import encode, forget, grow, images_of
from tinyset.downstream.merge import merge
from tinyset.downstream.parts import Parts
from tinyset.errors import UserError
from tinyset.parameterizations.codes import Codes
from tinyset.parameterizations.labels import learn_labels
from tinyset.rng import generator

QUICK: dict[str, Any] = {"steps": 3, "networks": 2, "network": "convnet1:width=4", "compile": "never", "device": "cpu"}
KINDS = ("codes", "pixels", "zca", "tiles")


def made(kind: str) -> CondensedSet:
    return codes_set() if kind == "codes" else stored_set(kind)


def other(name: str = "fourth", seed: int = 5) -> Splits:
    """One more class of the same shape."""
    return Splits("more", stripes(12, seed, names=(*NASTY, name)))


def check_ledger(condensed: CondensedSet, path: Path) -> None:
    """What is said is what is in the file."""
    stored = tinyset.load(condensed.save(path))
    ledger = stored.ledger()
    assert ledger["bytes"] == (path / "condensed.safetensors").stat().st_size
    tensors = stored.parameterization.tensors()
    assert ledger["params_per_class"] == round(sum(t.numel() for t in tensors.values()) / ledger["classes"], 4)
    torch.testing.assert_close(stored.decode()[0], condensed.decode()[0], atol=1e-5, rtol=0)
    assert ledger["class_names"] == list(condensed.class_names)


@pytest.mark.parametrize("kind", KINDS)
def test_a_class_is_added_and_the_others_stay_bit_for_bit(kind: str, tmp_path: Path) -> None:
    old = made(kind)
    before = old.decode()[0].clone()
    grown = grow(old, other(), "fourth", **QUICK)
    assert grown.class_names == (*NASTY, "fourth")
    stored, as_before = (Parts.of(of.parameterization) for of in (grown, old))
    assert all(torch.equal(a, b) for a, b in zip(stored.units[:3], as_before.units, strict=True))
    assert all(torch.equal(stored.shared[name], tensor) for name, tensor in as_before.shared.items())
    torch.testing.assert_close(grown.decode()[0][: len(before)], before, atol=1e-5, rtol=0)
    assert torch.equal(old.decode()[0], before)
    new = grown.images("fourth")
    assert len(new) > 0 and torch.isfinite(new).all()
    assert "grown by the class 'fourth'" in grown.config.history[0] and grown.config.condense == {}
    assert grown.config.source_bytes == old.config.source_bytes + 12 * 768
    check_ledger(grown, tmp_path / "grown")


def test_the_new_codes_are_learned() -> None:
    old, data = codes_set(), other()
    bank = open_bank(images_of(data.train, "fourth", old), QUICK["network"], device=torch.device("cpu"), networks=2)
    bank.ensure(2)

    def loss(of: CondensedSet) -> float:
        return sum(float((bank.load(k)[0] - bank.embed(of.images("fourth")).mean(0)).square().sum()) for k in range(2))

    at_0, learned, again = (grow(old, data, "fourth", **{**QUICK, "steps": steps}) for steps in (0, 40, 40))
    assert len(at_0.images("fourth")) == 12 and loss(learned) < 0.8 * loss(at_0)
    assert again.fingerprint == learned.fingerprint


def test_tuned_decoders_move_everything_but_not_far() -> None:
    old = codes_set()
    grown = grow(old, Splits("more", stripes(12, 5, names=("fourth",))), "fourth", decoders="tuned", **QUICK)
    change = (grown.decode()[0][: len(old)] - old.decode()[0]).abs()
    assert change.max() > 0 and change.mean() < 0.2
    with pytest.raises(UserError, match="no decoders"):
        grow(stored_set("pixels"), other(), "fourth", decoders="tuned", **QUICK)


def test_codes_of_images_the_decoders_can_make_are_found_again() -> None:
    condensed = codes_set()
    codes = condensed.parameterization
    assert isinstance(codes, Codes)
    one = Codes(codes.image_shape, [1], (12, 2, 2), codes.decoders.channels, 1)
    one.decoders.load({name: tensor[:1] for name, tensor in codes.decoders.tensors().items()})
    with torch.no_grad():
        one.codes.copy_(torch.randn(1, 12, 2, 2, generator=generator(0)) * 0.3)
        images = (one.decode(0) * 255).round().to(torch.uint8)
        again = encode(one.decoders, images)
        torch.testing.assert_close(one.decoders.grid(again), images / 255, atol=0.02, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_forgotten_class_is_gone_from_the_files(kind: str, precision: str, tmp_path: Path) -> None:
    old = made(kind).with_precision(precision)
    old.save(tmp_path / "old")
    files = {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir()}
    new = forget(tinyset.load(tmp_path / "old"), NASTY[2])
    assert new.class_names == NASTY[:2]
    check_ledger(new, tmp_path / "new")
    kept = new.decode()[0]
    close = 0.0 if precision == "float32" else 0.02  # the scale of int8 numbers is drawn anew
    torch.testing.assert_close(kept, old.decode()[0][: len(kept)], atol=close, rtol=0)
    if precision == "float32":
        for row in Parts.of(old.parameterization).units[2].flatten(1):
            for piece in row.split(8):  # not even a part of a code
                needle = piece.contiguous().numpy().tobytes()
                assert needle in files["condensed.safetensors"]
                assert not any(needle in path.read_bytes() for path in (tmp_path / "new").iterdir())
    said = (tmp_path / "new" / "config.json").read_text() + (tmp_path / "new" / "README.md").read_text()
    assert "größer" not in said and "größer" in files["config.json"].decode()
    assert {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir()} == files
    assert new.ledger()["compression"] is None  # how many images the rest stands for is not known


def test_learned_labels_are_carried() -> None:
    old = stored_set("pixels", soft=True)
    labels = old.soft_labels
    assert labels is not None
    with torch.no_grad():
        labels.copy_(torch.tensor([0.6, 0.3, 0.1]).expand_as(labels))
        labels[0] = torch.tensor([0.0, 0.0, 1.0])
    fewer = forget(old, NASTY[2]).soft_labels
    assert fewer is not None
    torch.testing.assert_close(fewer[1], torch.tensor([2 / 3, 1 / 3]))
    torch.testing.assert_close(fewer[0], torch.tensor([1.0, 0.0]))
    more = grow(old, other(), "fourth", **QUICK).soft_labels
    assert more is not None and more.shape[1] == 4
    torch.testing.assert_close(more[1], torch.tensor([0.6, 0.3, 0.1, 0.0]))
    torch.testing.assert_close(more[-1], torch.tensor([0.0, 0.0, 0.0, 1.0]))
    plain = stored_set("pixels")
    with torch.no_grad():
        next(plain.parameterization.parameters()).mul_(0.5)
    both = merge(old, plain).soft_labels
    assert both is not None and len(both) == 2 * len(labels)
    torch.testing.assert_close(both[1], labels[1])
    torch.testing.assert_close(both[3], torch.tensor([1.0, 0.0, 0.0]))  # the first image of the other, of class 0


@pytest.mark.parametrize("kind", KINDS)
def test_sets_of_different_classes_are_merged(kind: str, tmp_path: Path) -> None:
    whole = grow(made(kind), other(), "fourth", **QUICK)
    left, right = forget(forget(whole, "fourth"), NASTY[1]), forget(forget(whole, NASTY[0]), NASTY[2])
    both = merge(left, right)
    assert both.class_names == (NASTY[0], NASTY[2], NASTY[1], "fourth")
    for name in both.class_names:
        assert torch.equal(both.images(name), whole.images(name))
    check_ledger(both, tmp_path / "both")
    assert both.ledger()["params_per_class"] == whole.ledger()["params_per_class"]
    with pytest.raises(UserError, match="the same"):
        merge(left, left)


def test_sets_of_the_same_classes_become_one_of_more_images(tmp_path: Path) -> None:
    one = stored_set("pixels")
    two = stored_set("pixels").with_precision("float16")
    with torch.no_grad():
        two.parameterization.images.mul_(0.5)  # type: ignore[union-attr, operator]
    both = merge(one, two)
    assert len(both) == len(one) + len(two) and both.class_names == one.class_names
    torch.testing.assert_close(both.images(1), torch.cat([one.images(1), two.images(1)]))
    assert both.config.precision == "float32" and both.config.nominal_params_per_class == 1536
    check_ledger(both, tmp_path / "both")


def test_the_statistics_of_a_merged_set_are_those_of_all_images() -> None:
    real = stripes(40, 3)
    halves = [real.subset(torch.arange(0, 60)), real.subset(torch.arange(60, 120))]
    sets = []
    for i, half in enumerate(halves):
        mean, std = ImageSet(half.images, half.labels, half.class_names).stats
        base = stored_set("pixels")
        with torch.no_grad():
            base.parameterization.images.mul_(1 - i / 2)  # type: ignore[union-attr, operator]
        update = {"mean": list(mean), "std": list(std), "source_images": 60, "source_fingerprint": str(i)}
        sets.append(CondensedSet(base.parameterization, base.config.model_copy(update=update)))
    pooled = merge(*sets).config
    mean, std = ImageSet(real.images, real.labels, real.class_names).stats
    torch.testing.assert_close(torch.tensor([pooled.mean, pooled.std]), torch.tensor([mean, std]), atol=2e-4, rtol=0)


def test_what_cannot_be_merged_is_refused_in_one_sentence() -> None:
    first, second = codes_set(), codes_set(seed=1)
    with pytest.raises(UserError, match=r"different decoders.*--recode"):
        merge(first, second)
    recoded = merge(first, second, recode=True, **QUICK)
    assert len(recoded) == len(first) + len(second) and "recoded" in recoded.config.history[-1]
    assert torch.equal(recoded.images(0)[: len(first.images(0))], first.images(0))
    assert recoded.ledger()["decoders"] == 3
    with pytest.raises(UserError, match="set of codes and a set of pixels"):
        merge(first, stored_set("pixels"))
    with pytest.raises(UserError, match="whitening"):
        merge(stored_set("zca"), stored_set("pixels"))
    with pytest.raises(UserError, match="different shapes"):
        merge(
            tinyset.condense(stripes(8, 0, side=8), **QUICK, method="random", images_per_class=1), stored_set("pixels")
        )
    learn_labels(second.parameterization)
    with pytest.raises(UserError, match="learned labels"):
        merge(first, second, recode=True, **QUICK)


def test_wrong_classes_are_refused_in_one_sentence() -> None:
    condensed = codes_set()
    with pytest.raises(UserError, match="no such class"):
        forget(condensed, "seventh")
    with pytest.raises(UserError, match="has it already"):
        grow(condensed, other(), NASTY[0], **QUICK)
    with pytest.raises(UserError, match="source has no such class"):
        grow(condensed, other(), "seventh", **QUICK)
    with pytest.raises(UserError, match="--image-size"):
        grow(condensed, Splits("big", stripes(4, 0, side=32, names=(*NASTY, "fourth"))), "fourth", **QUICK)
    with pytest.raises(UserError, match="--codes 0"):
        grow(condensed, other(), "fourth", units=0, **QUICK)
    with pytest.raises(UserError, match="only class"):
        forget(forget(forget(condensed, NASTY[0]), NASTY[1]), NASTY[2])


def test_a_life_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Streetdigits: condense, forget a class, grow it again, merge it back: end to end."""
    few = streetdigits(train=200, test=50)
    monkeypatch.setitem(BENCHMARKS, "streetdigits", lambda request: few)
    monkeypatch.chdir(tmp_path)
    loop = ["--steps", "2", "--networks", "1", "--network", "convnet3:width=4", "--quiet", "--json"]

    def tell(*words: str) -> dict[str, Any]:
        assert main([*words]) == 0
        told: dict[str, Any] = json.loads(capsys.readouterr().out)
        return told

    tell("condense", "streetdigits", "--out", "run", "--pretrain-steps", "5", "--compile", "never", *loop)
    before = {p.name: p.read_bytes() for p in (tmp_path / "run" / "artifact").iterdir()}
    told = tell("forget", "run/artifact", "--class", "7", "--out", "six", "--json")
    assert told["classes"] == 9 and "7" not in told["class_names"]
    told = tell("grow", "six", "--add", "streetdigits", "--class", "7", "--out", "seven", "--codes", "5", *loop)
    assert told["class_names"][-1] == "7" and told["codes_per_class"] == [13] * 9 + [5]
    told = tell("merge", "six", "run/artifact", "--out", "both", "--json")
    assert told["codes_per_class"][0] == 26 and told["classes"] == 10
    assert main(["grow", "six", "--add", "streetdigits", "--class", "7", "--out", "seven"]) == 2
    assert "not empty" in capsys.readouterr().err
    assert main(["forget", "six", "--class", "7", "--out", "none"]) == 2 and not (tmp_path / "none").exists()
    assert {p.name: p.read_bytes() for p in (tmp_path / "run" / "artifact").iterdir()} == before
