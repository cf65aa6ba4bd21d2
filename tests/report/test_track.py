"""TensorBoard files hold the run's numbers, live and afterwards."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.report.made import stripes
from tinyset.cli import main
from tinyset.progress import Silent
from tinyset.report.gather import gather
from tinyset.report.track import Tracked, write_events

pytest.importorskip("tensorboard")


def read(folder: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    return EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()


def test_afterwards(run_folder: Path) -> None:
    (subject,), _ = gather([str(run_folder)])
    write_events(subject)
    events = read(write_events(subject))  # a second time replaces the first
    losses = events.Scalars("condense/loss")
    assert [round(e.value, 5) for e in losses] == [round(loss, 5) for _, loss, _ in subject.losses]
    assert any(tag.startswith("accuracy/kfs/") for tag in events.Tags()["scalars"])
    assert len(events.Tags()["images"]) >= len(subject.condensed.class_names)


def test_live(tmp_path: Path) -> None:
    tracked = Tracked(Silent(), tmp_path)
    tracked.start("reading", 1)
    tracked.update(1, images=5.0)
    assert list(tmp_path.iterdir()) == [], "the run's folder is not there yet"
    (tmp_path / "config.yaml").write_text("steps: 2")
    tracked.start("condense", 2)
    tracked.note("a word")
    tracked.update(1, loss=0.5)
    tracked.update(2, loss=0.25)
    tracked.finish()
    assert [e.value for e in read(tmp_path / "tensorboard").Scalars("condense/loss")] == [0.5, 0.25]


def test_condense_tracks_while_it_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A new run, and one that takes the place of another: its folder is cleared before the first number."""
    from tests.records.conftest import SMALL

    real = stripes(8, 0)
    np.savez(tmp_path / "data.npz", images=real.images.numpy(), labels=real.labels.numpy())
    command = ["condense", str(tmp_path / "data.npz"), "--out", str(tmp_path / "run"), "--track", *SMALL]
    for words in (command, [*command, "--overwrite"]):
        assert main(words) == 0
        events = read(tmp_path / "run" / "tensorboard")
        assert [e.step for e in events.Scalars("condense/loss")] == [1, 2, 3, 4, 5, 6]
        assert "notes/text_summary" in events.Tags()["tensors"]
