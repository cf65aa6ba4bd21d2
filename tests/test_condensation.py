"""The loop: repeatable, resumable to the byte, honest about a loss that runs away; any parameterization, any objective."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import tinyset
from tests.conftest import toy_images
from tinyset.condensation import run
from tinyset.data.imageset import Splits
from tinyset.errors import RunError, UserError
from tinyset.files import load_tree
from tinyset.interrupts import Interrupted, Stop
from tinyset.methods import METHODS, resolve

TINY: dict[str, Any] = dict(
    networks=2, network="convnet3:width=4", pretrain_steps=5, compile="never", decoders=2, threads=1, images_per_class=1
)


def settings(**values: Any) -> Any:
    return resolve("plain", {**TINY, "steps": 6, "decay": 0.5, **values})


class StopAfter(Stop):
    """A signal that arrives before step `step`."""

    def __init__(self, step: int, number: int = 15) -> None:
        super().__init__()
        self.left, self.number = step, number

    @property
    def reason(self) -> str | None:
        self.left -= 1
        if self.left < 0:
            self.catch(self.number, None)
        return super().reason


def bytes_of(folder: Path) -> bytes:
    return (folder / "artifact" / "condensed.safetensors").read_bytes()


def test_the_same_command_gives_the_same_bytes(toy: Splits, tmp_path: Path) -> None:
    for name in ("a", "b"):
        run(settings(), toy, out=tmp_path / name)
    assert bytes_of(tmp_path / "a") == bytes_of(tmp_path / "b")
    run(settings(seed=1), toy, out=tmp_path / "c")
    assert bytes_of(tmp_path / "a") != bytes_of(tmp_path / "c")


def test_the_loss_falls(toy: Splits, tmp_path: Path) -> None:
    run(settings(steps=40, networks=1), toy, out=tmp_path / "r")
    lines = (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()
    losses = [float(line.split('"loss": ')[1].split(",")[0]) for line in lines]
    assert len(losses) == 40 and losses[-1] < 0.7 * losses[0]


CASES = [
    {},
    {"batch": 4},
    {"method": "dm"},
    {"method": "dsa"},
    {"method": "idc"},
    {"parameterization": "codes", "method": "dc", "rates": {"codes": 0.1, "decoders": 0.01}},
    {"parameterization": "tiles", "method": "dm"},
    {"parameterization": "codes", "method": "kip", "rates": {"codes": 0.1, "decoders": 0.01, "labels": 0.01}},
    {"method": "cafe"},
    {"method": "mtt"},
    {"method": "kfr"},  # stopped just where its second phase begins
]


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: "-".join(str(v) for v in case.values() if not isinstance(v, dict)) or "kfs"
)
def test_a_stopped_run_resumes_to_the_same_bytes(case: dict[str, Any], toy: Splits, tmp_path: Path) -> None:
    config = settings(**{**SMALL.get(case.get("method", ""), {}), **case}, checkpoint_every=2)
    whole = run(config, toy, out=tmp_path / "whole")
    assert whole.steps == 6 and whole.resumed_from_step is None
    with pytest.raises(Interrupted) as leaving:
        run(config, toy, out=tmp_path / "cut", stop=StopAfter(3))
    assert leaving.value.exit_code == 143
    # what a kill leaves behind: lines of steps that the checkpoint does not know
    with open(tmp_path / "cut" / "metrics.jsonl", "a") as file:
        file.write('{"step": 3, "loss": 1}\n{"st')
    again = run(config, toy, out=tmp_path / "cut", resume=True)
    assert again.resumed_from_step == 3 and again.steps == 6
    assert bytes_of(tmp_path / "whole") == bytes_of(tmp_path / "cut")
    assert len((tmp_path / "cut" / "metrics.jsonl").read_text().splitlines()) == 6


SMALL: dict[str, dict[str, Any]] = {
    "kfr": {"options": {"matching_steps": 3, "pool": 2, "pool_age": 4, "real_batch": 9}},
    "mtt": {"options": {"experts": 1, "expert_epochs": 3, "student_steps": 2, "last_start": 1}},
}


def test_a_phase_has_its_own_rates_and_optimizer(toy: Splits, tmp_path: Path) -> None:
    """The first steps of kfr are those of kfs, and what follows does not know the optimizer they had."""
    matched = dict(method="kfr", options={"matching_steps": 3, "matching_rate": 5.0, "real_batch": 9})
    half = {"codes": 0.02, "decoders": 0.002}
    run(settings(**matched, rates=half), toy, out=tmp_path / "both")
    run(settings(method="kfs", steps=3, rates={k: 5 * v for k, v in half.items()}), toy, out=tmp_path / "kfs")
    both, kfs = ((tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("both", "kfs"))

    def losses(lines: list[str]) -> list[float]:
        return [json.loads(line)["loss"] for line in lines]

    assert losses(both)[:3] == losses(kfs) and losses(both)[3] < 0.5  # a regression's
    tree = load_tree(next((tmp_path / "both").glob("checkpoint-*")))
    assert {state["step"].item() for state in tree["optimizer"]["state"].values()} == {3}


@pytest.mark.parametrize("name", [n for n, m in METHODS.items() if m.objective is None])
def test_selections_are_real_images(name: str, toy: Splits) -> None:
    made = run(settings(method=name, steps=None, images_per_class=2, options={}), toy).condensed
    images, labels = made.decode()
    assert labels.tolist() == [0, 0, 1, 1, 2, 2]
    real = toy.train.images.float() / 255
    for image, label in zip(images, labels, strict=True):
        distances = (real - image).abs().amax((1, 2, 3))
        assert distances.min() < 1e-6 and toy.train.labels[distances.argmin()] == label


def test_a_loss_that_runs_away_stops_the_run_and_keeps_the_checkpoint(toy: Splits, tmp_path: Path) -> None:
    config = settings(rates={"codes": float("inf"), "decoders": 0.01}, checkpoint_every=1)
    with pytest.raises(RunError, match=r"at step \d+, first in class 'class 0'"):
        run(config, toy, out=tmp_path / "r")
    assert list((tmp_path / "r").glob("checkpoint-*"))


def test_a_time_limit_is_a_wish_fulfilled(toy: Splits, tmp_path: Path) -> None:
    outcome = run(settings(), toy, out=tmp_path / "r", stop=Stop(0.0))
    assert outcome.stopped == "time" and outcome.steps == 0
    assert tinyset.load(tmp_path / "r" / "artifact").config.steps == 0
    assert run(settings(), toy, out=tmp_path / "r", resume=True).steps == 6


def test_a_run_folder_is_not_shared_or_overwritten_by_accident(toy: Splits, tmp_path: Path) -> None:
    run(settings(steps=1), toy, out=tmp_path / "r")
    with pytest.raises(UserError, match="not empty"):
        run(settings(steps=1), toy, out=tmp_path / "r")
    with pytest.raises(UserError, match="steps was 1"):
        run(settings(steps=2), toy, out=tmp_path / "r", resume=True)
    run(settings(steps=2), toy, out=tmp_path / "r", overwrite=True)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("precious")
    with pytest.raises(UserError, match="left alone"):
        run(settings(steps=1), toy, out=foreign, overwrite=True)
    assert (foreign / "thesis.txt").read_text() == "precious"


def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before(toy: Splits, tmp_path: Path) -> None:
    config = settings(checkpoint_every=2)
    whole = run(config, toy, out=tmp_path / "a")
    with pytest.raises(Interrupted):
        run(config, toy, out=tmp_path / "b", stop=StopAfter(5))
    newest = sorted((tmp_path / "b").glob("checkpoint-*"))[-1]
    newest.write_bytes(newest.read_bytes()[:-1])
    assert run(config, toy, out=tmp_path / "b", resume=True).resumed_from_step == 4
    assert bytes_of(tmp_path / "a") == bytes_of(tmp_path / "b")
    assert whole.steps == 6


@pytest.mark.parametrize("kind", ["numpy", "tensor", "dataset", "floats"])
def test_python_takes_arrays_tensors_and_datasets(kind: str) -> None:
    real = toy_images(30)
    if kind == "numpy":
        arguments: tuple[Any, ...] = (real.images.permute(0, 2, 3, 1).numpy(), np.array(["a", "b", "c"])[real.labels])
    elif kind == "tensor":
        arguments = (real.images, real.labels)
    elif kind == "floats":
        arguments = (real.images.float() / 255, real.labels)
    else:
        arguments = (TensorDataset(real.images, real.labels),)
    made = tinyset.condense(*arguments, steps=1, **TINY)
    assert len(made.class_names) == 3 and made.image_shape == (3, 16, 16)


def test_unequal_classes_and_budgets() -> None:
    real = toy_images(31, 3)
    made = tinyset.condense(real, steps=1, **{**TINY, "images_per_class": {"class 0": 4, "*": 2}})
    codes = made.config.spec["codes_per_class"]
    assert codes[0] > codes[1] == codes[2]


def test_a_byte_budget_is_a_hard_limit(tmp_path: Path) -> None:
    real = toy_images(30)
    for storage in ("float32", "float16", "int8"):
        made = tinyset.condense(
            real, steps=0, **{**TINY, "images_per_class": None, "budget_bytes": 12_000, "storage": storage}
        )
        assert made.bytes <= 12_000
        assert made.save(tmp_path / storage) and made.bytes > 9_000


def test_wrong_settings_are_named() -> None:
    real = toy_images(30)
    with pytest.raises(UserError, match="unknown key 'stepz'"):
        tinyset.condense(real, stepz=3)
    with pytest.raises(UserError, match="unknown key 'realbatch'"):
        tinyset.condense(real, steps=1, **TINY, options={"realbatch": 3})
    with pytest.raises(UserError, match="Unknown method 'kfc'"):
        tinyset.condense(real, method="kfc")
    with pytest.raises(UserError, match="Unknown recipe 'slow'"):
        tinyset.condense(real, recipe="slow")
    with pytest.raises(UserError, match="one budget"):
        tinyset.condense(real, images_per_class=1, budget_bytes=1000)
    with pytest.raises(UserError, match="batch statistics"):
        tinyset.condense(real, steps=1, **{**TINY, "network": "convnet3:norm=batch"})


def test_torch_global_state_is_left_alone(toy: Splits) -> None:
    before = torch.get_rng_state()
    run(settings(steps=2), toy)
    assert torch.equal(before, torch.get_rng_state())
