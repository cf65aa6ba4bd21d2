"""Streams: equal bytes, frozen decoders, forgetting by its definition, finished cells never computed twice."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import toy_images
from tinyset.cli import main
from tinyset.data.imageset import Splits
from tinyset.data.load import BENCHMARKS
from tinyset.data.streetdigits import streetdigits
from tinyset.downstream import continual as home
from tinyset.downstream.continual import Stream, continual, forgetting
from tinyset.downstream.memory import Memory, stored
from tinyset.errors import UserError
from tinyset.files import load_tree
from tinyset.parameterizations.codes import Codes
from tinyset.progress import Silent

QUICK: dict[str, Any] = {
    "steps": 2,
    "networks": 2,
    "network": "convnet1:width=4",
    "pretrain_steps": 5,
    "compile": "never",
    "herding_steps": 2,
    "device": "cpu",
}


@pytest.fixture
def data() -> Splits:
    return Splits("toy", toy_images(80, classes=4), toy_images(40, classes=4, seed=1))


def stream(data: Splits, **values: Any) -> Stream:
    quick = {"network": "convnet1:width=4", "protocol": "steps:3", "device": "cpu", **values}
    return Stream(data, quick.pop("steps", 2), quick.pop("budget_bytes", 9000), **quick)


def test_forgetting_is_that_of_the_definition() -> None:
    assert forgetting([[90.0], [60.0, 80.0], [70.0, 50.0, 99.0]]) == pytest.approx(((90 - 70) + (80 - 50)) / 2)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_every_memory_keeps_to_the_same_bytes(data: Splits, precision: str) -> None:
    budget = 41_000 if precision == "float32" else 10_500
    rows = continual(
        stream(data, budget_bytes=budget, precision=precision), ("kfs", "dm", "herding", "random"), settings=QUICK
    )
    last = [row for row in rows if row["step"] == 2]
    assert [row["memory"] for row in last] == ["kfs", "dm", "herding", "random"]
    assert all(0.8 * budget < row["bytes"] <= budget for row in last)
    assert all(row["classes"] == 4 and row["accuracy"]["n"] == 1 and row["forgetting"] is not None for row in last)
    assert all(row["forgetting"] is None and row["classes"] == 2 for row in rows if row["step"] == 1)


def test_the_first_classes_decoders_serve_the_later_ones(data: Splits) -> None:
    memory = Memory.planned("kfs", data, 9000, "int8", {**QUICK, "seed": 0})
    groups = stream(data).groups(0)
    first = memory.extended(None, home._group(data.train, groups[0], None), Silent())
    before = {name: tensor.clone() for name, tensor in first.tensors().items()}
    both = memory.extended(first, home._group(data.train, groups[1], data.train.stats), Silent())
    assert isinstance(first, Codes) and isinstance(both, Codes) and both.classes == 4
    for name, tensor in both.tensors().items():
        assert torch.equal(tensor[: len(before[name])], before[name])  # codes of old classes, and all decoders
    costs = stored(both, "int8")[1] - stored(first, "int8")[1]
    new = sum(both.codes_per_class[2:])
    assert costs == pytest.approx(new * (both.codes[0].numel() + 4), abs=64)  # a class costs its codes and their labels


def test_seeds_draw_other_orders_and_all_classes_come_once(data: Splits) -> None:
    orders = [stream(data, steps=3).groups(seed) for seed in range(6)]
    assert all(sorted(c for group in order for c in group) == [0, 1, 2, 3] for order in orders)
    assert len({str(order) for order in orders}) > 1


def test_finished_cells_are_read_back(data: Splits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {"settings": QUICK, "out": tmp_path / "s", "repeats": 2}
    rows = continual(stream(data), ("kfs", "random"), **given)
    cells = sorted((tmp_path / "s" / "cells").iterdir())
    assert len(cells) == 8 and rows[0]["accuracy"]["n"] == 2
    whole = cells[1].read_bytes()
    kept = load_tree(cells[1])["row"]
    cells[1].unlink()  # as if the run had been killed before it
    done = []
    measure = home._measure
    monkeypatch.setattr(home, "_measure", lambda *a: done.append(a[5]) or measure(*a))
    again = continual(stream(data), ("kfs", "random"), **given)
    assert done == ["kfs, step 2"]
    timeless = [{k: v for k, v in row.items() if not k.endswith("seconds")} for row in (*rows, *again)]
    assert timeless[: len(rows)] == timeless[len(rows) :]
    assert load_tree(cells[1])["row"]["accuracy"] == kept["accuracy"] and len(cells[1].read_bytes()) == len(whole)
    with pytest.raises(UserError, match="other settings"):
        continual(stream(data, budget_bytes=10_000), ("random",), **given)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    with pytest.raises(UserError, match="other files"):
        continual(stream(data), ("random",), settings=QUICK, out=tmp_path / "taken")


def test_the_current_real_images_may_help(data: Splits) -> None:
    rows = continual(stream(data, train_on="memory+real"), ("random",), settings=QUICK)
    assert rows[0]["images"] == rows[1]["images"] // 2  # of the memory, not of the training
    images, labels = torch.rand(6, 3, 4, 4), torch.tensor([0, 0, 1, 1, 2, 2])
    real = toy_images(16, classes=1, shape=(3, 4, 4))
    both, of = home._with_real(images, labels, real, 3)
    assert torch.bincount(of).tolist() == [16, 16, 16] and torch.equal(both[-16:], real.images / 255)


def test_wrong_requests(data: Splits) -> None:
    with pytest.raises(UserError, match="choose 2 to 4"):
        continual(stream(data, steps=5), ("random",), settings=QUICK)
    with pytest.raises(UserError, match="--memory icarl"):
        continual(stream(data), ("icarl",), settings=QUICK)
    with pytest.raises(UserError, match="too small"):
        continual(stream(data, budget_bytes=900), ("random",), settings=QUICK)
    with pytest.raises(UserError, match="no test split"):
        continual(stream(Splits("blind", data.train)), ("random",), settings=QUICK)


@pytest.mark.parametrize("steps", [5, 10])
def test_streetdigits_on_the_command_line(
    steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = streetdigits(train=200, test=50)
    monkeypatch.setitem(BENCHMARKS, "streetdigits", lambda request: few)
    out = tmp_path / "stream"
    words = [
        "continual",
        "streetdigits",
        "--steps",
        str(steps),
        "--bytes",
        "35kB",
        "--out",
        str(out),
        "--quiet",
        "--json",
    ]
    words += ["--network", "convnet1:width=4", "--match", "convnet1:width=4", "--protocol", "steps:2"]
    words += ["--condense-steps", "1", "--networks", "1", "--pretrain-steps", "2", "--herding-steps", "1"]
    assert main(words) == 0
    told = json.loads(capsys.readouterr().out)
    assert len(told["rows"]) == 4 * steps and told["train_on"] == "memory"
    assert {path.name for path in out.iterdir()} >= {"cells", "stream.json", "table.md", "results.json", "chart.png"}
