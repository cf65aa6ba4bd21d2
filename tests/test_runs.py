"""A run's folder survives every moment a kill can choose; what it measured is kept."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import toy_images
from tinyset.condensation import run
from tinyset.condensed import CondensedSet
from tinyset.config import CondenseConfig
from tinyset.data.imageset import Splits
from tinyset.errors import RunError, UserError
from tinyset.evaluation.results import Record, Results
from tinyset.interrupts import Interrupted, Stop
from tinyset.methods import resolve
from tinyset.parameterizations import autoencoder
from tinyset.progress import Silent
from tinyset.runs import RunFolder


def config(**values: Any) -> CondenseConfig:
    return CondenseConfig(images_per_class=1, **values)


def folder(path: Path, *, resume: bool = False, overwrite: bool = False, **values: Any) -> RunFolder:
    return RunFolder(path, config(**values), resume=resume, overwrite=overwrite)


def test_what_a_kill_in_the_first_moment_leaves_is_no_stranger(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    (tmp_path / ".config.yaml.abc.tmp").write_text("half")
    with folder(tmp_path, resume=True):
        assert sorted(p.name for p in tmp_path.iterdir()) == [".lock", "config.yaml", "env.json"]


def test_overwriting_never_leaves_a_folder_that_is_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with folder(tmp_path) as made:
        made.checkpoint(1, {"a": 1})
        made.metric({"step": 0})

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tinyset.runs.write_atomic", killed)
    with pytest.raises(KeyboardInterrupt), folder(tmp_path, overwrite=True):
        pass
    assert (tmp_path / "config.yaml").exists() and not list(tmp_path.glob("checkpoint-*"))


def test_a_refused_run_gives_the_lock_back(tmp_path: Path) -> None:
    with folder(tmp_path):
        pass
    refused = folder(tmp_path, resume=True, seed=1)
    with pytest.raises(UserError, match="seed was 0"):
        refused.__enter__()
    with folder(tmp_path, resume=True), pytest.raises(UserError, match="Another run is using"):
        folder(tmp_path, resume=True).__enter__()


@pytest.mark.parametrize("content", [b"\xff\xfe", b"", b"[1", b"steps: banana", b"seed: 5\n"])
def test_a_damaged_config_is_refused_in_a_sentence_and_overwrite_helps(content: bytes, tmp_path: Path) -> None:
    with folder(tmp_path):
        pass
    (tmp_path / "config.yaml").write_bytes(content)
    with pytest.raises((UserError, RunError), match=r"config\.yaml"):
        folder(tmp_path, resume=True, steps=9).__enter__()
    with folder(tmp_path, overwrite=True):
        pass


def test_a_full_disk_under_the_metrics_is_one_sentence(tmp_path: Path) -> None:
    with folder(tmp_path) as made:
        (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
        with pytest.raises(RunError, match=r"Cannot write .*metrics\.jsonl: No space left"):
            made.metric({"step": 0})


def test_metrics_are_kept_up_to_the_checkpoint(tmp_path: Path) -> None:
    with folder(tmp_path) as made:
        for step in range(5):
            made.metric({"step": step})
    with open(tmp_path / "metrics.jsonl", "ab") as file:
        file.write(b'{"st\xff')
    with folder(tmp_path, resume=True) as made:
        made.keep_metrics(3)
        made.metric({"step": 3})
        made.keep_metrics(9)
    assert (tmp_path / "metrics.jsonl").read_text() == "".join(f'{{"step": {k}}}\n' for k in range(4))


def test_the_checkpoint_before_stays_until_the_next_is_proven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def kept() -> list[int]:
        return sorted(int(p.stem.partition("-")[2]) for p in tmp_path.glob("checkpoint-*"))

    notes: list[str] = []
    with folder(tmp_path) as made:
        for step in (1, 2, 3):
            made.checkpoint(step, {"step": step})
        assert kept() == [2, 3]
        (tmp_path / "checkpoint-00000009.safetensors").write_bytes(b"damaged, and later than the next")
    with folder(tmp_path, resume=True) as made:
        found = made.newest_checkpoint(notes.append)
        assert found == {"step": 3} and "Going on from the one before it" in notes[0]
        made.checkpoint(4, {"step": 4})
        assert kept() == [3, 4]
        monkeypatch.setattr("tinyset.runs.load_tree", _unreadable)
        with pytest.raises(RunError):
            made.checkpoint(5, {"step": 5})
        assert kept() == [3, 4, 5]


def _unreadable(*_: object) -> None:
    raise RunError("The disk lies.")


# -- whole runs -----------------------------------------------------------------------------------------------------

TINY: dict[str, Any] = dict(
    networks=2,
    network="convnet3:width=4",
    pretrain_steps=5,
    compile="never",
    decoders=2,
    threads=1,
    images_per_class=1,
    steps=4,
)


def test_a_run_killed_before_its_first_checkpoint_has_every_line_once(toy: Splits, tmp_path: Path) -> None:
    made = resolve("plain", TINY)
    run(made, toy, out=tmp_path / "r")
    for path in (tmp_path / "r").glob("checkpoint-*"):
        path.unlink()
    assert run(made, toy, out=tmp_path / "r", resume=True).resumed_from_step is None
    steps = [json.loads(line)["step"] for line in (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()]
    assert steps == [0, 1, 2, 3]


def test_a_run_does_not_go_on_with_other_images(toy: Splits, tmp_path: Path) -> None:
    made = resolve("plain", TINY)
    run(made, toy, out=tmp_path / "r")
    with pytest.raises(UserError, match="not those the run began with"):
        run(made, Splits("toy", toy_images(60, seed=7)), out=tmp_path / "r", resume=True)


def test_measurements_outlive_a_resumption_and_strangers_an_overwrite(toy: Splits, tmp_path: Path) -> None:
    made = resolve("plain", {**TINY, "steps": 0})
    condensed: CondensedSet = run(made, toy, out=tmp_path / "r").condensed
    results = tmp_path / "r" / "artifact" / "results.jsonl"
    results.write_text("measured\n")
    run(made, toy, out=tmp_path / "r", resume=True)
    assert results.read_text() == "measured\n"
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("precious")
    with pytest.raises(UserError, match="left alone"):
        condensed.save(tmp_path / "home", overwrite=True)
    assert (tmp_path / "home" / "thesis.txt").read_text() == "precious"


class StopAt(Stop):
    """A signal that arrives when it is asked about for the n-th time."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.left = count

    @property
    def exit_code(self) -> int:
        self.left -= 1
        if self.left < 0:
            self.catch(15, None)
        return super().exit_code


@pytest.mark.parametrize("damaged", [False, True])
def test_a_stopped_auto_encoder_goes_on_with_the_same_bytes(damaged: bool, tmp_path: Path) -> None:
    real = toy_images(30)
    common: dict[str, Any] = dict(steps=12, batch=8, rate=0.01, seed=0, device=torch.device("cpu"), progress=Silent())
    whole = autoencoder.pretrain(real, (12, 6, 3), cache=tmp_path / "a.safetensors", **common)
    place = tmp_path / "b.safetensors"
    with pytest.raises(Interrupted, match=r"Stopped by SIGTERM after step 7"):
        autoencoder.pretrain(real, (12, 6, 3), cache=place, stop=StopAt(7), **common)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.safetensors", "b.partial"]
    if damaged:
        (tmp_path / "b.partial").write_bytes((tmp_path / "b.partial").read_bytes()[:-1])
    again = autoencoder.pretrain(real, (12, 6, 3), cache=place, **common)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), again.parameters(), strict=True))
    assert (tmp_path / "a.safetensors").read_bytes() == place.read_bytes() and not (tmp_path / "b.partial").exists()


def test_a_changed_digit_in_the_results_is_noticed(tmp_path: Path) -> None:
    record = Record(
        key="k", set="s", network="n", protocol="p", seed=0, step=5, confusion=[[7, 1], [2, 6]], images=4, bytes=9,
        train_steps=5, images_seen=20, seconds=0.5,
    )  # fmt: skip
    path = tmp_path / "results.jsonl"
    Results(path).add(record)
    again = Results(path).find("k")
    assert again is not None and again.confusion == record.confusion
    path.write_text(path.read_text().replace("[7, 1]", "[8, 1]"))
    with pytest.raises(RunError, match=r"results\.jsonl, line 1 is damaged"):
        Results(path)
