"""Searches on a condensed set of the embedded data: hyper-parameters and ConvNets, resumed, and their verdicts."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tinyset.cli import main
from tinyset.condensation import run
from tinyset.condensed import CondensedSet
from tinyset.data.imageset import Splits
from tinyset.data.load import BENCHMARKS
from tinyset.data.streetdigits import streetdigits
from tinyset.downstream import arena as arenas
from tinyset.downstream.arena import REAL, Arena, Candidate, Score, SearchSettings
from tinyset.downstream.ranking import ranks, spearman
from tinyset.downstream.search import search_hyper_parameters, search_networks
from tinyset.downstream.space import ConvNets, HyperParameters
from tinyset.downstream.verdict import verdict
from tinyset.errors import UserError
from tinyset.interrupts import Interrupted, Stop
from tinyset.methods import resolve
from tinyset.networks import build
from tinyset.protocols import protocol
from tinyset.selection import select

TINY = SearchSettings(steps=3, real_per_class=8, real_steps=4, confirm=2)
NARROW = ConvNets(width=(4, 8), depth=(1, 2))


@pytest.fixture(scope="module")
def digits() -> Splits:
    return streetdigits(train=300, test=20)


@pytest.fixture(scope="module")
def condensed(digits: Splits) -> CondensedSet:
    settings = {"images_per_class": 1, "steps": 0, "pretrain_steps": 2, "device": "cpu", "compile": "never"}
    return run(resolve("plain", settings), digits).condensed


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, digits: Splits) -> None:
    monkeypatch.setitem(BENCHMARKS, "streetdigits", lambda request: digits)
    monkeypatch.setitem(select.__kwdefaults__, "training", protocol("steps:2"))
    monkeypatch.setattr(arenas, "HERDING_NETWORK", "convnet1:width=4")


def test_spearman_against_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    draw = np.random.default_rng(0)
    for _ in range(20):
        a, b = draw.integers(0, 6, 12).tolist(), draw.normal(size=12).round(1).tolist()
        assert spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic)
        assert np.allclose(ranks(a), stats.rankdata(a) - 1)
    assert spearman([1, 2, 3], [10, 20, 30]) == 1 and spearman([1, 2, 3], [3, 2, 1]) == -1
    assert spearman([1, 1, 1], [1, 2, 3]) is None and spearman([1], [1]) is None


def test_the_720_convnets() -> None:
    every = ConvNets().networks()
    assert len(set(every)) == 720
    for spec in every[::37]:
        with torch.device("meta"):
            assert build(spec, channels=3, image_size=(32, 32), classes=10)
    assert ConvNets().sample(24, 0) == ConvNets().sample(24, 0) != ConvNets().sample(24, 1)
    with pytest.raises(UserError, match="--points 721"):
        ConvNets().sample(721, 0)


def test_hyper_parameters(condensed: CondensedSet, digits: Splits, tmp_path: Path) -> None:
    space = HyperParameters(batch=(16, 32), rate=(0.001, 0.1))
    search: dict[str, Any] = {"network": "convnet1:width=4", "trials": 6, "space": space, "settings": TINY}
    found = search_hyper_parameters(condensed, digits, **search, out=tmp_path, device="cpu")
    assert [row["set"] for row in found["rows"]] == ["condensed", "random", "real"]
    ours, random, real = found["rows"]
    assert ours["candidates"] == random["candidates"] == 6 and random["bytes"] <= ours["bytes"]
    assert 2 <= ours["spearman_n"] == random["spearman_n"] <= 4
    assert ours["regret"] >= 0 and min(ours["regret"], random["regret"]) == 0 == real["regret"]
    for candidate in found["candidates"]:
        assert (
            0.001 <= candidate["rate"] <= 0.1
            and 0.5 <= candidate["momentum"] <= 0.99
            and candidate["batch"] in (16, 32)
        )
    # everything is kept: a second run trains nothing and finds the same
    lines = (tmp_path / "results.jsonl").read_text()
    assert search_hyper_parameters(condensed, digits, **search, out=tmp_path, device="cpu") == found
    assert (tmp_path / "results.jsonl").read_text() == lines


def test_a_stopped_search_goes_on(condensed: CondensedSet, digits: Splits, tmp_path: Path) -> None:
    class After(Stop):
        asked = 0

        @property
        def reason(self) -> str | None:
            After.asked += 1
            return "SIGTERM" if After.asked > 8 else None

    search: dict[str, Any] = {"points": 4, "batch": 32, "space": NARROW, "settings": TINY, "device": "cpu"}
    with pytest.raises(Interrupted):
        search_networks(condensed, digits, **search, out=tmp_path / "a", stop=After())
    before = len((tmp_path / "a" / "results.jsonl").read_text().splitlines())
    assert before >= 1
    resumed = search_networks(condensed, digits, **search, out=tmp_path / "a")
    whole = search_networks(condensed, digits, **search, out=tmp_path / "b")
    for one, other in zip(resumed["candidates"], whole["candidates"], strict=True):
        assert one["accuracy"] == other["accuracy"]


def test_networks_with_herding_and_all_real(condensed: CondensedSet, digits: Splits, tmp_path: Path) -> None:
    settings = SearchSettings(
        steps=3, real_per_class=8, real_steps=4, confirm=2, beside=("random", "herding"), all_real=True
    )
    found = search_networks(
        condensed, digits, points=5, batch=32, space=NARROW, settings=settings, out=tmp_path, device="cpu"
    )
    assert [row["set"] for row in found["rows"]] == ["condensed", "random", "herding", "real"]
    assert all(row["spearman_n"] == 5 for row in found["rows"][:-1])
    assert all(set(c["accuracy"]) == {"condensed", "random", "herding", "real"} for c in found["candidates"])
    assert found["rows"][2]["images"] == found["rows"][1]["images"] and found["rows"][2]["prepare_seconds"] > 0


def test_scores_come_from_the_training_split_alone(condensed: CondensedSet, digits: Splits) -> None:
    blind = Splits(digits.name, digits.train, None, mirror=digits.mirror)
    arena = Arena(condensed, blind, TINY, device="cpu")
    assert len(arena.lab.test) + len(arena.lab.data.train) == len(digits.train)
    held = {image.numpy().tobytes() for image in arena.lab.test.images}
    for name in ("random", REAL):
        assert not held & {image.numpy().tobytes() for image in arena.sets[name].images}


def test_the_verdict(condensed: CondensedSet, digits: Splits, monkeypatch: pytest.MonkeyPatch) -> None:
    """The random set puts the worst candidate first; real scores decide among the confirmed."""
    arena = Arena(condensed, digits, SearchSettings(confirm=1), device="cpu")
    a, b, c = (Candidate(f"convnet{depth}", protocol("steps:3")) for depth in (1, 2, 3))
    scores = {
        "condensed": {a: 10.0, b: 20.0, c: 30.0},
        "random": {a: 3.0, b: 2.0, c: 1.0},
        REAL: {a: 50.0, b: 60.0, c: 70.0},
    }
    monkeypatch.setattr(arena, "score", lambda of, candidate: Score(scores[of][candidate], 6.0 if of == REAL else 1.0))
    searched = {of: {x: arena.score(of, x) for x in (a, b, c)} for of in ("condensed", "random")}
    ours, random, real = verdict(arena, searched)["rows"]
    assert (ours["regret"], random["regret"]) == (0, 20) and ours["spearman"] == 1 and random["spearman"] == -1
    assert real["search_seconds"] == 18 and ours["times_faster"] == 2  # 3 x 1 s and 6 s to confirm


def test_a_training_that_runs_away_scores_nothing(condensed: CondensedSet, digits: Splits) -> None:
    arena = Arena(condensed, digits, SearchSettings(steps=20), device="cpu")
    wild = protocol("steps:20").model_copy(update={"rate": 1e12, "batch": 16})
    assert arena.score("condensed", Candidate("convnet1:width=4,norm=none", wild)).accuracy == 0


def test_the_command(condensed: CondensedSet, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    artifact, space = condensed.save(tmp_path / "set"), tmp_path / "space.yaml"
    space.write_text("width: [4]\ndepth: [1, 2]\n")
    command = ["--artifact", str(artifact), "--data", "streetdigits", "--steps", "2", "--real-steps", "2"]
    command += ["--real-per-class", "4", "--confirm", "1", "--out", str(tmp_path / "out")]
    nas = ["--points", "3", "--batch", "16", "--space", str(space)]
    assert main(["search", "nas", *command, *nas]) == 0
    assert "Rank correlation" in capsys.readouterr().out
    names = {"results.json", "table.md", "chart.png", "chart.svg", "env.json", "results.jsonl", "herding.json"}
    assert names <= {path.name for path in (tmp_path / "out").iterdir()}
    assert main(["search", "hp", *command, "--trials", "2", "--network", "convnet1:width=4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kind"] == "hp" and found == json.loads((tmp_path / "out" / "results.json").read_text())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["hp", "--points", "3"], "--points is a flag of"),
        (["hp", "--trials", "1"], "--trials 1"),
        (["nas", "--points", "1"], "--points 1"),
        (["nas", "--confirm", "0"], "--confirm 0"),
        (["hp", "--beside", "kmeans"], "--beside kmeans"),
        (["hp", "--validation", "2"], "validation fraction"),
        (["nas", "--space", "SPACE"], "unknown key 'rate'"),
        (["hp", "--network", "convnet9"], "depth of 1 to 8"),
    ],
)
def test_mistakes(
    words: list[str], said: str, condensed: CondensedSet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    artifact, space = condensed.save(tmp_path / "set"), tmp_path / "space.yaml"
    space.write_text("rate: [0.1, 0.2]\n")
    words = [str(space) if word == "SPACE" else word for word in words]
    command = ["search", *words, "--artifact", str(artifact), "--data", "streetdigits", "--out", str(tmp_path / "out")]
    assert main(command) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out" / "results.json").exists()
