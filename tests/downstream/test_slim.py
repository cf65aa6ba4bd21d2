"""Slimming: within the bytes, by the bank's loss, never by the test split."""

import json
from itertools import combinations
from pathlib import Path

import pytest
import torch

import tinyset
from tests.report.made import codes_set, splits, stored_set
from tinyset.bank import open_bank
from tinyset.cli import main
from tinyset.condensed import CondensedSet
from tinyset.data.imageset import Splits
from tinyset.data.load import BENCHMARKS
from tinyset.data.streetdigits import streetdigits
from tinyset.downstream.slim import slim
from tinyset.downstream.subsets import Match, matches, total
from tinyset.errors import UserError
from tinyset.progress import Silent
from tinyset.rng import generator

QUICK = {
    "match_network": "convnet1:width=4",
    "networks": 2,
    "network": "convnet1:width=4",
    "protocol": "steps:3",
    "device": "cpu",
}


def test_losses_of_parts_are_those_of_the_definition() -> None:
    """Against a plain loop over networks, codes and decoders."""
    condensed, real = codes_set(), splits().train
    bank = open_bank(real, "convnet1:width=4", device=torch.device("cpu"), networks=3)
    bank.ensure(3)
    found = matches(condensed, bank, 3, Silent(), "loss")
    codes, decoders = [0, 2], [1, 2]
    for c in range(3):
        wanted = 0.0
        for k in range(3):
            mu = bank.load(k)[c].double()
            images = torch.stack([condensed.images(c)[m * 3 + d] for m in codes for d in decoders])
            wanted += float(0.5 * (mu - bank.embed(images).double().mean(0)).square().sum()) / 3
        assert found[c].by_code(3, decoders).loss(codes) == pytest.approx(wanted, rel=1e-4)
    every = [of.by_code(3, [0, 1, 2]).loss(range(4)) for of in found]
    assert total([of.by_decoder(3) for of in found]).loss(range(3)) == pytest.approx(sum(every), rel=1e-6)


def test_one_by_one_the_least_missed_goes() -> None:
    e = torch.randn(6, 20, generator=generator(0)).double()
    mu = e.mean(0) * 0.5
    of = Match(float(mu @ mu), e @ mu, e @ e.T)
    kept = of.fewer(5)
    assert of.loss(kept) == pytest.approx(min(of.loss(some) for some in combinations(range(6), 5)))
    assert len(of.fewer(2)) == 2 and set(of.fewer(2)) <= set(of.fewer(3))


@pytest.mark.parametrize("kind", ["codes", "pixels", "zca", "tiles"])
def test_a_slimmer_set_fits_and_the_old_one_stays(kind: str, tmp_path: Path) -> None:
    old = codes_set() if kind == "codes" else stored_set(kind)
    old = tinyset.load(old.save(tmp_path / "old"))
    files = {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir()}
    budget = old.bytes // 2
    found = slim(old, splits(), budget, confirm=2, **QUICK)  # type: ignore[arg-type]
    stored = tinyset.load(found.condensed.save(tmp_path / "new"))
    assert stored.bytes == (tmp_path / "new" / "condensed.safetensors").stat().st_size == found.chosen.bytes <= budget
    assert torch.equal(stored.decode()[0], found.condensed.decode()[0])
    losses = [candidate.loss for candidate in found.candidates]
    assert losses == sorted(losses) and all(candidate.bytes <= budget for candidate in found.candidates)
    tried = [candidate for candidate in found.candidates if candidate.accuracy is not None]
    assert len(tried) == min(2, len(losses)) and found.chosen in tried
    assert found.before.n == 1 and "slimmed" in stored.config.history[0]
    assert {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir()} == files


def test_precision_goes_before_images_where_it_costs_less() -> None:
    data = splits()
    old = tinyset.condense(data.train, method="random", images_per_class=20)  # all of them: their mean is the real one
    found = slim(old, data, old.bytes * 6 // 10, confirm=1, **QUICK)  # type: ignore[arg-type]
    assert found.chosen.precision != "float32" and len(found.condensed) == len(old)
    assert found.candidates[-1].precision == "float32" and found.candidates[-1].loss > 2 * found.chosen.loss
    assert found.condensed.ledger()["overhead_percent"] < 0  # within what the new budget allows


def test_the_test_split_is_not_looked_at() -> None:
    old, data = codes_set(), splits()
    blind = Splits(data.name, data.train, None, mirror=False)
    one = slim(old, data, old.bytes // 2, confirm=1, **QUICK)  # type: ignore[arg-type]
    two = slim(old, blind, old.bytes // 2, confirm=1, **QUICK)  # type: ignore[arg-type]
    assert one.condensed.fingerprint == two.condensed.fingerprint


def test_budgets_that_make_no_sense() -> None:
    old = codes_set()
    with pytest.raises(UserError, match=r"takes .* bytes already"):
        slim(old, splits(), old.bytes, **QUICK)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="too small: one code per class"):
        slim(old, splits(), 200, **QUICK)  # type: ignore[arg-type]


def test_learned_labels_are_carried() -> None:
    old = stored_set("pixels", soft=True)
    assert old.soft_labels is not None
    with torch.no_grad():
        old.soft_labels.copy_(torch.arange(21).view(7, 3) / 100)
    found: CondensedSet = slim(old, splits(), old.bytes // 2, confirm=1, **QUICK).condensed  # type: ignore[arg-type]
    assert found.soft_labels is not None and len(found.soft_labels) == len(found)


def test_streetdigits_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = streetdigits(train=200, test=50)
    monkeypatch.setitem(BENCHMARKS, "streetdigits", lambda request: few)
    monkeypatch.chdir(tmp_path)
    loop = ["--networks", "1", "--network", "convnet3:width=4", "--quiet"]
    assert main(["condense", "streetdigits", "--out", "run", "--steps", "1", "--pretrain-steps", "5", *loop]) == 0
    words = ["slim", "run/artifact", "--data", "streetdigits", "--budget-bytes", "40kB", "--match", "convnet3:width=4"]
    assert main([*words, "--protocol", "steps:2", "--out", "slim", "--json", *loop]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["bytes"] <= 40_000 and len(told["candidates"]) > 8 and told["before"]["n"] == 1
