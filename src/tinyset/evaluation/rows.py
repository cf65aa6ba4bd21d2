"""`evaluate`: sets x networks x protocols x seeds, one row each with its mean, deviation, n, and cost."""

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tinyset.condensed import CondensedSet, load
from tinyset.data.imageset import Splits
from tinyset.errors import UserError
from tinyset.evaluation import metrics
from tinyset.evaluation.evaluator import Evaluator, Measurement
from tinyset.evaluation.metrics import Spread
from tinyset.evaluation.results import Record, Results, baselines_path, default_path
from tinyset.evaluation.sets import Source, baseline, from_artifact
from tinyset.interrupts import Stop
from tinyset.machine import pick_device
from tinyset.networks import build
from tinyset.processes import team
from tinyset.progress import Progress, Silent
from tinyset.protocols import Protocol
from tinyset.protocols import protocol as named_protocol


@dataclass(frozen=True)
class Row:
    """One line of a table: one set, network, protocol (step, corruption) over all seeds."""

    set: str
    network: str
    protocol: str
    step: int
    corruption: str
    seeds: tuple[int, ...]
    accuracy: Spread
    balanced_accuracy: Spread
    per_class: dict[str, float | None]
    confusion: list[list[int]]  # summed over seeds; row: true class
    images: int
    bytes: int
    train_steps: int
    images_seen: int
    seconds: float  # of training, mean over seeds
    reused: int  # how many seeds were found in the results

    def to_dict(self) -> dict[str, Any]:
        spreads = {"accuracy": self.accuracy.to_dict(), "balanced_accuracy": self.balanced_accuracy.to_dict()}
        return {**self.__dict__, "seeds": list(self.seeds), **spreads}


@dataclass(frozen=True)
class Evaluation:
    data: str
    class_names: tuple[str, ...]
    rows: tuple[Row, ...]
    results: Path

    def to_dict(self) -> dict[str, Any]:
        return {
            "data": self.data,
            "class_names": list(self.class_names),
            "results": str(self.results),
            "rows": [row.to_dict() for row in self.rows],
        }


def evaluate(
    artifact: CondensedSet | str | Path,
    data: Splits,
    networks: Sequence[str] = ("convnet3",),
    protocols: Sequence[str] | None = None,
    repeats: int = 1,
    seed: int = 0,
    *,
    baselines: Sequence[str] = (),
    corruptions: Sequence[str] = (),
    name: str | None = None,
    device: torch.device | str = "auto",
    compile: bool | None = None,
    results: Path | None = None,
    fresh: bool = False,
    progress: Progress | None = None,
    stop: Stop | None = None,
) -> Evaluation:
    """Train `networks` by `protocols` (default: the artifact's own) on the artifact and test them on `data.test`.

    Repeat r uses the seed `seed + r`. `baselines`: random, random-uint8, kfs-0, full; `corruptions`: rows of the same
    trainings on corrupted test images. What is already in `results` (default: in the artifact's folder) is reused.
    """
    condensed = check(artifact, data)
    chosen = [named_protocol(p) for p in (protocols or (condensed.protocol,))]
    lab = evaluator(condensed, data, device, compile, results, fresh, progress, stop)
    check_request(lab, condensed, networks, repeats)
    sources = [(_always(condensed, name), False)]
    sources += [(baseline(b, condensed, data, lab.progress), True) for b in baselines]
    measurements = [Measurement(corruption=c) for c in ("clean", *corruptions)]
    rows: list[Row] = []
    for network in networks:
        for recipe in chosen:
            for source, shared in sources:
                seeds = range(seed, seed + repeats)
                rows += measure_rows(lab, source, network, recipe, seeds, measurements, shared=shared)
    return Evaluation(data.name, data.class_names, tuple(rows), lab.results.path)


def measure_rows(
    lab: Evaluator,
    source: Source,
    network: str,
    protocol: Protocol,
    seeds: Sequence[int],
    measurements: Sequence[Measurement],
    *,
    shared: bool = False,
) -> list[Row]:
    """One row per measurement, over all seeds, which the processes of a team take in turns."""
    us, found = team(), list[list[tuple[Record, bool]]]()
    for first in range(0, len(seeds), us.size):
        mine = seeds[first + us.rank : min(first + us.rank + 1, len(seeds))]
        made = [lab.measure(source(s), network, protocol, s, measurements, shared=shared) for s in mine]
        for rank, theirs in enumerate(us.to_all(made)):
            found += theirs
            for record, reused in itertools.chain(*theirs):
                if rank != us.rank and not reused:
                    lab.results.add(record, shared=shared)
    names = lab.data.class_names
    return [row_of(records, names) for records in zip(*found, strict=True)]


def row_of(found: Sequence[tuple[Record, bool]], class_names: Sequence[str]) -> Row:
    records = [record for record, _ in found]
    first, matrices = records[0], [record.confusion for record in records]
    together = metrics.total_confusion(matrices)
    return Row(
        set=first.set,
        network=first.network,
        protocol=first.protocol,
        step=first.step,
        corruption=first.corruption,
        seeds=tuple(record.seed for record in records),
        accuracy=Spread.of([metrics.accuracy(m) for m in matrices]),
        balanced_accuracy=Spread.of([metrics.balanced_accuracy(m) for m in matrices]),
        per_class=dict(zip(class_names, metrics.per_class(together), strict=True)),
        confusion=together,
        images=first.images,
        bytes=first.bytes,
        train_steps=first.train_steps,
        images_seen=first.images_seen,
        seconds=round(statistics.fmean(record.seconds for record in records), 3),
        reused=sum(reused for _, reused in found),
    )


def evaluator(
    condensed: CondensedSet,
    data: Splits,
    device: torch.device | str,
    compile: bool | None,
    results: Path | None,
    fresh: bool,
    progress: Progress | None,
    stop: Stop | None,
) -> Evaluator:
    if data.test is None:
        raise UserError(f"{data.name} has no test split: keep a part of it for testing with --holdout 0.1.")
    store = Results(results or default_path(condensed), baselines_path(data.test.fingerprint))
    picked = pick_device(device) if isinstance(device, str) else device
    return Evaluator(data, store, picked, compile, fresh, progress or Silent(), stop)


def check(artifact: CondensedSet | str | Path, data: Splits) -> CondensedSet:
    """The artifact, if `data` can test it."""
    condensed = artifact if isinstance(artifact, CondensedSet) else load(artifact)
    if condensed.image_shape != data.train.image_shape:
        ours, theirs = ("x".join(map(str, shape)) for shape in (condensed.image_shape, data.train.image_shape))
        raise UserError(f"--data {data.name}: its images are {theirs} and those of the condensed set {ours}.")
    if condensed.class_names != tuple(data.class_names):
        raise UserError(f"--data {data.name}: its classes are not those of the condensed set.")
    return condensed


def check_request(lab: Evaluator, condensed: CondensedSet, networks: Sequence[str], repeats: int) -> None:
    """What would fail hours later is said now."""
    if repeats < 1:
        raise UserError(f"--repeats {repeats}: one or more are needed.")
    channels, height, width = condensed.image_shape
    for spec in networks:
        build(spec, channels=channels, image_size=(height, width), classes=lab.data.train.classes)


def _always(condensed: CondensedSet, name: str | None) -> Source:
    fixed = from_artifact(condensed, name)
    return lambda seed: fixed
