"""A recorded run made again by its steps, not by the clock; its hash and its accuracies beside the recorded ones."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from tinyset.condensation import run
from tinyset.condensed import CondensedSet
from tinyset.data.imageset import Splits
from tinyset.errors import UserError
from tinyset.evaluation.evaluator import Measurement
from tinyset.evaluation.metrics import Spread
from tinyset.evaluation.rows import Row, check, check_request, evaluator, measure_rows
from tinyset.evaluation.sets import from_artifact
from tinyset.interrupts import Stop
from tinyset.machine import environment, set_threads
from tinyset.progress import Progress, Silent
from tinyset.protocols import protocol
from tinyset.records.folder import RunRecord

DEVIATIONS = 2  # by which two means may differ
MACHINE = ("cpu", "gpu", "threads", "torch", "tinyset")  # what the bytes of a result depend on, beside the settings


@dataclass(frozen=True)
class Cell:
    """One network trained by one protocol, then and now."""

    network: str
    protocol: str
    recorded: Spread
    new: Spread
    noise: float  # one deviation

    @property
    def allowed(self) -> float:
        return DEVIATIONS * self.noise

    @property
    def within_noise(self) -> bool:
        return abs(self.new.mean - self.recorded.mean) <= self.allowed

    def to_dict(self) -> dict[str, Any]:
        spreads = {"recorded": self.recorded.to_dict(), "new": self.new.to_dict()}
        difference = round(self.new.mean - self.recorded.mean, 4)
        return {**self.__dict__, **spreads, "difference": difference, "within_noise": self.within_noise}


@dataclass(frozen=True)
class Reproduction:
    record: RunRecord
    condensed: CondensedSet
    seconds: float | None  # of condensation; None where the recorded set was taken
    differences: tuple[str, ...]  # between the two machines
    cells: tuple[Cell, ...]

    @property
    def identical(self) -> bool:
        return self.condensed.fingerprint == self.record.made.sha256

    @property
    def holds(self) -> bool:
        """Accuracies within noise; where none were measured, the same bytes."""
        return all(cell.within_noise for cell in self.cells) if self.cells else self.identical

    def to_dict(self) -> dict[str, Any]:
        return {
            "record": str(self.record.folder),
            "steps": self.record.artifact.steps,
            "seconds": self.seconds,
            "sha256": {"recorded": self.record.made.sha256, "new": self.condensed.fingerprint},
            "identical": self.identical,
            "differences": list(self.differences),
            "rows": [cell.to_dict() for cell in self.cells],
            "holds": self.holds,
        }


def reproduce(
    record: RunRecord,
    data: Splits,
    *,
    out: Path | None = None,
    only: Literal["condense", "evaluate"] | None = None,
    networks: Sequence[str] | None = None,
    repeats: int | None = None,
    device: str = "auto",
    progress: Progress | None = None,
    stop: Stop | None = None,
    command: str | None = None,
) -> Reproduction:
    """Condense by the recorded steps and seed, evaluate by the recorded protocols and seeds.

    `out` is the folder of the new run, which goes on where it was stopped. `only`: one half of it; `evaluate` takes the
    set of the record. `networks` and `repeats`: fewer evaluations.
    """
    if data.train.fingerprint != record.artifact.source_fingerprint:
        raise UserError(
            f"--data {data.name}: these are not the images of the record {record.name} (another fingerprint)."
        )
    rows = _chosen(record, networks) if only != "condense" else []
    progress, stop = progress or Silent(), stop or Stop()
    threads, seconds = record.config.threads or record.environment.get("threads"), None
    set_threads(threads)
    if only == "evaluate":
        condensed = _stored(record)
    else:
        config = record.config.model_copy(update={"time_limit_s": None, "threads": threads, "device": device})
        outcome = run(
            config,
            data,
            out=out,
            resume=True,
            progress=progress,
            stop=stop,
            recipe=record.artifact.recipe,
            command=command,
            until=record.artifact.steps,
        )
        condensed, seconds = outcome.condensed, round(outcome.seconds, 1)
    there, here = record.environment, environment()
    other = [key for key in MACHINE if there.get(key) != here[key]]
    differences = tuple(f"{key} {there.get(key)} there, {here[key]} here" for key in other)
    cells = _measure(condensed, data, rows, repeats, device, progress, stop) if rows else ()
    return Reproduction(record, condensed, seconds, differences, cells)


def _chosen(record: RunRecord, networks: Sequence[str] | None) -> list[Row]:
    rows = record.final_rows()
    if networks is None:
        return rows
    known = dict.fromkeys(row.network for row in rows)
    if strange := [name for name in networks if name not in known]:
        raise UserError(f"--network {strange[0]}: the record holds {', '.join(known) or 'no evaluation'}.")
    return [row for row in rows if row.network in networks]


def _stored(record: RunRecord) -> CondensedSet:
    condensed = record.condensed()
    if condensed is None:
        raise UserError(f"--only evaluate: the record {record.name} does not hold its set, which is too large.")
    return CondensedSet(condensed.parameterization, condensed.config)  # of no folder: nothing is written beside it


def _measure(
    condensed: CondensedSet,
    data: Splits,
    rows: Sequence[Row],
    repeats: int | None,
    device: torch.device | str,
    progress: Progress,
    stop: Stop,
) -> tuple[Cell, ...]:
    """The recorded cells again; measurements are kept with the new run or in the cache, never in the record."""
    if repeats is not None and repeats < 1:
        raise UserError(f"--repeats {repeats}: one or more are needed.")
    check(condensed, data)
    lab = evaluator(condensed, data, device, None, None, False, progress, stop)
    check_request(lab, condensed, [row.network for row in rows], 1)
    fixed = from_artifact(condensed)
    cells = []
    for row in rows:
        seeds = row.seeds[:repeats]
        (new,) = measure_rows(
            lab, lambda seed: fixed, row.network, protocol(row.protocol), seeds, [Measurement(row.step)]
        )
        cells.append(Cell(row.network, row.protocol, row.accuracy, new.accuracy, noise(row, new.accuracy)))
    return tuple(cells)


def noise(recorded: Row, new: Spread) -> float:
    """One deviation of the repeats or, where that is larger or unknown, of drawing a test set of this size."""
    share = recorded.accuracy.mean / 100
    tests = max(1, sum(map(sum, recorded.confusion)) // recorded.accuracy.n)
    sampling = 100 * math.sqrt(share * (1 - share) / tests)
    return round(max(recorded.accuracy.std, new.std, sampling), 4)
