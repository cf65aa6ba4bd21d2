"""Evaluation: same seed, same numbers; finished cells are not computed twice; interrupted ones go on."""

import json
from pathlib import Path

import pytest
import torch

from tinyset import evaluation
from tinyset.condensed import CondensedSet
from tinyset.data.imageset import ImageSet, Splits
from tinyset.errors import RunError, UserError
from tinyset.evaluation import accuracy_along, carve_validation, evaluate, evaluator
from tinyset.evaluation.metrics import Spread, accuracy, balanced_accuracy, confusion_matrix, per_class
from tinyset.interrupts import Interrupted, Stop
from tinyset.rng import generator

NETWORK = "convnet2:width=8"
OPTIONS = {"networks": [NETWORK], "protocols": ["steps:12"], "device": "cpu"}


class StopAfter(Stop):
    def __init__(self, questions: int) -> None:
        super().__init__()
        self.questions = questions

    @property
    def reason(self) -> str | None:
        self.questions -= 1
        return "SIGTERM" if self.questions < 0 else None


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The name of every training that really happens."""
    happened: list[str] = []
    real_train = evaluator.train

    def counting(*args, **kwargs):  # type: ignore[no-untyped-def]
        happened.append(kwargs["task"])
        return real_train(*args, **kwargs)

    monkeypatch.setattr(evaluator, "train", counting)
    return happened


def test_a_row_says_everything(artifact: CondensedSet, data: Splits) -> None:
    found = evaluate(artifact, data, repeats=3, **OPTIONS)
    (row,) = found.rows
    assert (row.network, row.protocol, row.accuracy.n, row.seeds) == (NETWORK, "steps:12", 3, (0, 1, 2))
    assert row.train_steps == 12 and row.images_seen == 12 * 6 and row.bytes == artifact.bytes and row.images == 6
    assert sum(map(sum, row.confusion)) == 3 * 30 and set(row.per_class) == {"low", "middle", "high"}
    assert row.accuracy.mean == pytest.approx(accuracy(row.confusion), abs=1e-3)
    assert row.seconds > 0 and row.reused == 0
    values = json.loads(json.dumps(found.to_dict()))["rows"][0]
    assert set(values["accuracy"]) == {"mean", "std", "n"}


def test_same_seed_same_numbers_other_seed_other_weights(artifact: CondensedSet, data: Splits, tmp_path: Path) -> None:
    rows = [
        evaluate(artifact, data, seed=s, results=tmp_path / f"{i}", **OPTIONS).rows[0] for i, s in enumerate((0, 0, 7))
    ]
    assert rows[0].confusion == rows[1].confusion and rows[0].seeds != rows[2].seeds


def test_a_finished_cell_is_not_computed_twice(artifact: CondensedSet, data: Splits, trainings: list[str]) -> None:
    first = evaluate(artifact, data, repeats=2, **OPTIONS)
    assert len(trainings) == 2 and (artifact.path / "results.jsonl").exists()  # type: ignore[operator]
    again = evaluate(artifact, data, repeats=3, **OPTIONS)
    assert len(trainings) == 3 and again.rows[0].reused == 2
    assert evaluate(artifact, data, repeats=2, **OPTIONS).rows[0].accuracy == first.rows[0].accuracy
    evaluate(artifact, data, **{**OPTIONS, "protocols": ["steps:13"]})
    evaluate(artifact, data, **{**OPTIONS, "networks": ["convnet2:width=9"]})
    assert len(trainings) == 5
    assert evaluate(artifact, data, fresh=True, **OPTIONS).rows[0].reused == 0 and len(trainings) == 6


def test_several_networks_and_protocols_in_one_table(artifact: CondensedSet, data: Splits) -> None:
    options = {"networks": ["convnet1:width=4", NETWORK], "protocols": ["steps:3", "steps:4:none"], "device": "cpu"}
    rows = evaluate(artifact, data, **options).rows
    assert [(r.network, r.train_steps) for r in rows] == [
        ("convnet1:width=4", 3),
        ("convnet1:width=4", 4),
        (NETWORK, 3),
        (NETWORK, 4),
    ]


def test_baselines_beside_the_artifact(codes: CondensedSet, data: Splits, trainings: list[str]) -> None:
    names = ("random", "random-uint8", "kfs-0", "full")
    rows = evaluate(codes, data, baselines=names, repeats=2, **OPTIONS).rows
    assert [row.set for row in rows] == [
        "kfs",
        "random, 1 per class",
        "random, 4 per class (uint8)",
        "kfs, 0 steps",
        "full data",
    ]
    assert rows[1].bytes == 3 * 3 * 16 * 16 * 4 and rows[4].images == 60 and rows[3].images == rows[0].images
    assert rows[2].bytes <= codes.bytes
    count = len(trainings)
    other = CondensedSet(codes.parameterization, codes.config.model_copy(update={"method": "other"}))
    evaluate(other, data, baselines=names, repeats=2, **OPTIONS)
    assert len(trainings) == count  # same content, same baselines: nothing is trained again


@pytest.mark.parametrize("stop_after", [3, 17])
def test_interrupted_in_any_repeat_and_resumed(
    artifact: CondensedSet, data: Splits, tmp_path: Path, stop_after: int
) -> None:
    whole = evaluate(artifact, data, repeats=2, results=tmp_path / "whole", **OPTIONS)
    with pytest.raises(Interrupted):
        evaluate(artifact, data, repeats=2, stop=StopAfter(stop_after), **OPTIONS)
    resumed = evaluate(artifact, data, repeats=2, **OPTIONS)
    assert resumed.rows[0].confusion == whole.rows[0].confusion and resumed.rows[0].train_steps == 12
    assert resumed.rows[0].reused == (1 if stop_after > 12 else 0)


def test_a_damaged_checkpoint_starts_the_training_again(artifact: CondensedSet, data: Splits, cache: Path) -> None:
    with pytest.raises(Interrupted):
        evaluate(artifact, data, stop=StopAfter(5), **OPTIONS)
    (checkpoint,) = (cache / "evaluation").glob("*.safetensors")
    checkpoint.write_bytes(checkpoint.read_bytes()[:-5])
    assert evaluate(artifact, data, **OPTIONS).rows[0].train_steps == 12
    assert not list((cache / "evaluation").glob("*.safetensors"))


def test_damaged_results_are_named(artifact: CondensedSet, data: Splits, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    evaluate(artifact, data, results=path, **OPTIONS)
    path.write_text(path.read_text() + '{"key": 3}\n')
    with pytest.raises(RunError, match=r"results.jsonl, line 2"):
        evaluate(artifact, data, results=path, **OPTIONS)


def test_results_of_a_set_without_a_writable_folder_go_to_the_cache(
    saved_set: CondensedSet, data: Splits, cache: Path
) -> None:
    loose = CondensedSet(saved_set.parameterization, saved_set.config)
    assert evaluate(loose, data, **OPTIONS).results.parent == cache / "results"


def test_accuracy_along_one_training(
    artifact: CondensedSet, data: Splits, trainings: list[str], tmp_path: Path
) -> None:
    options = {"network": NETWORK, "steps": (2, 5, 12), "device": "cpu"}
    found = accuracy_along([artifact], data, repeats=2, **options)
    assert [row.step for row in found.rows] == [2, 5, 12] and found.rows[0].accuracy.n == 2
    assert [row.images_seen for row in found.rows] == [12, 30, 72] and len(trainings) == 2
    end = evaluate(artifact, data, repeats=2, results=tmp_path / "other", **OPTIONS)
    assert end.rows[0].confusion == found.rows[-1].confusion  # the same training, looked at along the way
    trainings.clear()
    assert all(row.reused == 2 for row in accuracy_along([artifact], data, repeats=2, **options).rows)
    assert not trainings


def test_the_budget_run_resumes_between_its_points(artifact: CondensedSet, data: Splits, tmp_path: Path) -> None:
    options = {"network": NETWORK, "steps": (2, 5, 12), "device": "cpu"}
    whole = accuracy_along([artifact], data, results=tmp_path / "whole", **options)
    with pytest.raises(Interrupted):
        accuracy_along([artifact], data, stop=StopAfter(7), **options)
    resumed = accuracy_along([artifact], data, **options)
    assert [row.reused for row in resumed.rows] == [1, 1, 0]
    assert [row.confusion for row in resumed.rows] == [row.confusion for row in whole.rows]


def test_a_measurement_before_the_checkpoint_starts_again(artifact: CondensedSet, data: Splits) -> None:
    with pytest.raises(Interrupted):
        accuracy_along([artifact], data, NETWORK, (5, 12), stop=StopAfter(7), device="cpu")
    assert [row.step for row in accuracy_along([artifact], data, NETWORK, (2, 5, 12), device="cpu").rows] == [2, 5, 12]


def test_robustness_rows_come_from_the_same_training(
    artifact: CondensedSet, data: Splits, trainings: list[str]
) -> None:
    rows = evaluate(artifact, data, corruptions=evaluation.list_corruptions(), **OPTIONS).rows
    assert len(rows) == 13 and len(trainings) == 1 and rows[0].corruption == "clean"
    assert rows[0].confusion == evaluate(artifact, data, **OPTIONS).rows[0].confusion


@pytest.mark.parametrize("name", evaluation.list_corruptions())
def test_corruptions_are_deterministic_and_visible(name: str) -> None:
    images = torch.randint(256, (5, 3, 32, 32), generator=generator(0), dtype=torch.uint8)
    worse = evaluation.corrupt(images, name)
    assert torch.equal(worse, evaluation.corrupt(images, name))
    assert worse.shape == images.shape and worse.dtype == torch.uint8 and not torch.equal(worse, images)


@pytest.mark.parametrize("name", ["noise", "noise:-1", "fog:0.1", "blur:x"])
def test_unknown_corruptions(data: Splits, name: str) -> None:
    with pytest.raises(UserError, match="corruption"):
        evaluation.corrupt(data.test.images, name)  # type: ignore[union-attr]


def test_metrics() -> None:
    confusion = confusion_matrix(torch.tensor([0, 0, 0, 1]), torch.tensor([0, 0, 1, 1]), 3)
    assert confusion == [[2, 1, 0], [0, 1, 0], [0, 0, 0]]
    assert accuracy(confusion) == 75 and per_class(confusion) == [pytest.approx(200 / 3), 100, None]
    assert balanced_accuracy(confusion) == pytest.approx((200 / 3 + 100) / 2)
    assert Spread.of([1.0, 3.0]) == Spread(2.0, 1.4142, 2) and Spread.of([5.0]) == Spread(5.0, 0.0, 1)


def test_validation_is_carved_from_every_class(data: Splits) -> None:
    train, held = carve_validation(data.train, 0.25, seed=3)
    assert train.counts == (15, 15, 15) and held.counts == (5, 5, 5) and train.stats == data.train.stats
    again = carve_validation(data.train, 0.25, seed=3)[1]
    assert torch.equal(held.images, again.images)
    everything = torch.cat([train.images, held.images]).flatten(1)
    assert len(torch.unique(everything, dim=0)) == 60


def test_wrong_requests_are_one_sentence(artifact: CondensedSet, data: Splits) -> None:
    renamed = ImageSet(data.train.images, data.train.labels, ("a", "b", "c"))
    cases = [
        ({"data": Splits("other", renamed, renamed)}, "classes"),
        ({"data": Splits("stripes", data.train)}, "--holdout"),
        ({"data": data, "repeats": 0}, "--repeats"),
        ({"data": data, "networks": ["nope"]}, "Unknown network"),
        ({"data": data, "protocols": ["nope"]}, "Unknown protocol"),
        ({"data": data, "baselines": ["nope"]}, "--baselines nope"),
    ]
    for options, words in cases:
        with pytest.raises(UserError, match=words):
            evaluate(artifact, **{**OPTIONS, **options})
    with pytest.raises(UserError, match="--budget-steps"):
        accuracy_along([artifact], data, NETWORK, (0, 5))


def test_baselines_found_in_the_cache_are_kept_beside_the_artifact(
    artifact: CondensedSet, data: Splits, tmp_path: Path, trainings: list[str]
) -> None:
    evaluate(artifact, data, baselines=["random", "full"], results=tmp_path / "first.jsonl", **OPTIONS)
    count = len(trainings)
    evaluate(artifact, data, baselines=["random", "full"], results=tmp_path / "second.jsonl", **OPTIONS)
    assert len(trainings) == count + 1, "only the artifact itself is trained on again"
    kept = [json.loads(line)["set"] for line in (tmp_path / "second.jsonl").read_text().splitlines()]
    assert sorted(kept) == ["full data", "random", "random, 2 per class"]
