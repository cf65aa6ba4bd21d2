"""The paper's cross-architecture table, budget figure and storage curve, short, on the embedded dataset."""

import pytest
import torch

from tinyset.condensation import run
from tinyset.condensed import CondensedSet
from tinyset.data import load_images
from tinyset.data.imageset import Splits
from tinyset.evaluation import accuracy_along, evaluate, storage_curve
from tinyset.methods import resolve


@pytest.fixture(scope="module")
def digits() -> Splits:
    whole = load_images("streetdigits")
    assert whole.test is not None
    train, test = whole.train.subset(torch.arange(0, 10_000, 50)), whole.test.subset(torch.arange(0, 2000, 20))
    return Splits("streetdigits", train, test, mirror=whole.mirror)


@pytest.fixture
def kfs(digits: Splits) -> CondensedSet:
    settings = {"images_per_class": 1, "steps": 1, "networks": 1, "pretrain_steps": 5, "network": "convnet3:width=8"}
    return run(resolve("plain", {**settings, "device": "cpu", "compile": "never"}), digits).condensed


def test_cross_architecture(kfs: CondensedSet, digits: Splits) -> None:
    networks = ["convnet3:width=8", "resnet10:width=8", "densenet121:growth=2", "vit:dim=12,depth=1"]
    found = evaluate(kfs, digits, networks, ["steps:2", "steps:1:none"], repeats=2, device="cpu", baselines=["random"])
    assert len(found.rows) == 4 * 2 * 2 and all(row.accuracy.n == 2 for row in found.rows)
    assert {row.images for row in found.rows} == {1040, 10}


def test_budget(kfs: CondensedSet, digits: Splits) -> None:
    notes: list[str] = []

    class Ear:
        def start(self, task: str, total: int) -> None: ...
        def update(self, done: int, **values: float) -> None: ...
        def note(self, message: str) -> None:
            notes.append(message)

        def finish(self) -> None: ...

    found = accuracy_along([kfs], digits, "convnet2:width=4", (1, 3), repeats=2, device="cpu", progress=Ear())
    assert [row.images_seen for row in found.rows] == [256, 3 * 256]
    assert notes and notes[0].startswith("2 training(s) of 3 steps: about ")


def test_storage_curve(kfs: CondensedSet, digits: Splits) -> None:
    rows = storage_curve(kfs, digits, "convnet2:width=4", "steps:1", device="cpu").rows
    by_name = {row.set: row for row in rows}
    assert list(by_name)[:3] == ["float32", "float16", "int8"] and "4 of 8 decoders" in by_name
    assert by_name["float32"].bytes > by_name["float16"].bytes > by_name["int8"].bytes
    assert by_name["4 of 8 decoders"].images == 520 and by_name["6 of 13 codes"].images == 480
    assert by_name["4 of 8 decoders"].bytes < by_name["float32"].bytes
