"""TensorBoard files (extra `[track]`): live, as a `Progress` that also writes them, or afterwards from a run's folder."""

import warnings
from pathlib import Path
from typing import Any

import torch

from tinyset.errors import UserError, needs_extra
from tinyset.progress import Progress
from tinyset.report.gather import Subject

FOLDER = "tensorboard"
IMAGES = 8  # of each class in the picture


class Tracked:
    """Passes everything on to another `Progress` and writes its numbers: `condense/loss`, `auto-encoder/loss`, ...

    Nothing is written before the run's first number: a folder that is not empty would be refused, and one that is
    overwritten is cleared until then.
    """

    def __init__(self, inner: Progress, run: Path) -> None:
        self._inner, self._run, self._task = inner, run, "task"
        self._open: Any = None
        self._notes: list[str] = []
        summary_writer()  # a missing extra is said now, not after an hour

    @property
    def _writer(self) -> Any:
        if self._open is None and (self._run / "config.yaml").is_file():
            self._open = summary_writer()(str(self._run / FOLDER))
            for message in self._notes:
                self._open.add_text("notes", message)
        return self._open

    def start(self, task: str, total: int) -> None:
        self._task = task
        self._inner.start(task, total)

    def update(self, done: int, **values: float) -> None:
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(f"{self._task}/{name}", value, done)
        self._inner.update(done, **values)

    def note(self, message: str) -> None:
        if self._open is not None:
            self._open.add_text("notes", message)
        else:
            self._notes.append(message)
        self._inner.note(message)

    def finish(self) -> None:
        if self._open is not None:
            self._open.flush()
        self._inner.finish()


def summary_writer() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # tensorboard's own, of its protocol buffers
            from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise needs_extra("tensorboard", "track", "--track") from None
    return SummaryWriter


def write_events(subject: Subject) -> Path:
    """Losses, accuracies and pictures of a finished run, in `RUN/tensorboard/report/`; what was written live stays."""
    if subject.folder is None:
        raise UserError(f"--track: {subject.name} is not a run with a folder of its own.")
    folder = subject.folder / FOLDER / "report"
    for old in folder.glob("events.out.tfevents.*") if folder.is_dir() else ():
        old.unlink()
    events = summary_writer()(str(folder))
    for step, loss, seconds in subject.losses:
        events.add_scalar("condense/loss", loss, step + 1)
        events.add_scalar("condense/seconds_per_step", seconds, step + 1)
    for row in subject.rows:
        if row.get("corruption", "clean") == "clean":
            tag = f"accuracy/{row['set']}/{row['network']}/{row['protocol']}"
            events.add_scalar(tag, row["accuracy"]["mean"], row["train_steps"])
    condensed = subject.condensed
    for c, name in enumerate(condensed.class_names):
        index = torch.linspace(0, condensed.parameterization.counts[c] - 1, IMAGES).round().long().unique()
        with torch.no_grad():
            images = condensed.parameterization.decode(c, index).cpu()
        if images.shape[1] in (1, 3):
            events.add_images(f"synthetic/{c} {name}", images, condensed.config.steps)
    events.close()
    return folder
