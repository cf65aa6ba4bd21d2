"""The one place where evaluation computes: train a network once, measure it where asked, remember every measurement.

A *training* is (set, network, protocol, seed). A *measurement* is a training at a step on the test split, clean or
corrupted. Accuracy tables, the budget figure and robustness are different lists of measurements.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tinyset import machine
from tinyset.data.imageset import ImageSet, Splits
from tinyset.errors import RunError, UserError
from tinyset.evaluation.corruptions import corrupt
from tinyset.evaluation.metrics import confusion_matrix
from tinyset.evaluation.results import Record, Results, record_key
from tinyset.evaluation.sets import TrainingSet
from tinyset.files import cache_dir, load_tree, lock
from tinyset.interrupts import Stop
from tinyset.networks import build, identity, redraw
from tinyset.progress import Progress, Silent
from tinyset.protocols import Protocol
from tinyset.training import CHECKPOINT_EVERY_S, TrainedStats, predict, train, worth_compiling

ALGORITHM = 1  # raised when a change of ours changes the numbers: old results are then no longer reused


@dataclass(frozen=True)
class Measurement:
    step: int | None = None  # None: the last
    corruption: str = "clean"


@dataclass
class Evaluator:
    data: Splits
    results: Results
    device: torch.device | str = "cpu"
    compile: bool | None = None  # None: by the fixed rule, so that the same command gives the same numbers
    fresh: bool = False  # compute again what is already in the results
    progress: Progress = field(default_factory=Silent)
    stop: Stop | None = None
    checkpoint_every_s: float = CHECKPOINT_EVERY_S
    _networks: dict[tuple[str | int, ...], nn.Module] = field(default_factory=dict)

    @property
    def test(self) -> ImageSet:
        if self.data.test is None:
            raise UserError(f"{self.data.name} has no test split: keep a part of it for testing with --holdout 0.1.")
        return self.data.test

    def measure(
        self,
        training_set: TrainingSet,
        network: str,
        protocol: Protocol,
        seed: int,
        measurements: Sequence[Measurement] = (Measurement(),),
        *,
        shared: bool = False,
    ) -> list[tuple[Record, bool]]:
        """Each record, and whether it was already there. One training computes all that are missing."""
        training = self._training_identity(training_set, network, protocol, seed)
        wanted = _keyed(training, measurements, protocol.total_steps(len(training_set.images)))
        known = {} if self.fresh else self._known(wanted)
        if len(known) < len(wanted):
            path = cache_dir() / "evaluation" / f"{record_key(training)}.safetensors"
            waiting = partial(self.stop.leave, "while another process trains the same network") if self.stop else None
            guard = lock(path.with_suffix(".lock"), wait=True, busy="", meanwhile=waiting)
            try:
                if not self.fresh:
                    self.results.refresh()  # another process may have finished it while we waited
                missing = {key: at for key, at in wanted.items() if self.fresh or key not in self._known(wanted)}
                if missing:
                    run = _Run(self, training_set, network, protocol, seed, shared)
                    run.compute(missing, path)
            finally:
                guard.release()
        found = self._known(wanted)
        for record in found.values():
            self.results.keep(record)
        return [(found[key], key in known) for key in wanted]

    def finished(
        self, of: TrainingSet, network: str, protocol: Protocol, seed: int, measurements: Sequence[Measurement]
    ) -> bool:
        training = self._training_identity(of, network, protocol, seed)
        wanted = _keyed(training, measurements, protocol.total_steps(len(of.images)))
        return not self.fresh and len(self._known(wanted)) == len(wanted)

    def network(self, spec: str, training_set: TrainingSet) -> nn.Module:
        """One object per architecture and shape: its weights are drawn again in place, its compiled code stays."""
        key = (spec, *training_set.images.shape[1:])
        if key not in self._networks:
            self._networks[key] = build(spec, **self.shape(training_set))
        return self._networks[key]

    def shape(self, training_set: TrainingSet) -> dict[str, Any]:
        channels, height, width = training_set.images.shape[1:]
        return {"channels": channels, "image_size": (height, width), "classes": self.data.train.classes}

    def compiles(self, network: str, of: TrainingSet, protocol: Protocol) -> bool:
        if self.compile is not None:
            return self.compile
        return worth_compiling(self.network(network, of), protocol, len(of.images), self.device)

    def _known(self, keys: dict[str, Measurement]) -> dict[str, Record]:
        return {key: record for key in keys if (record := self.results.find(key)) is not None}

    def _training_identity(self, of: TrainingSet, network: str, protocol: Protocol, seed: int) -> dict[str, Any]:
        return {
            "algorithm": ALGORITHM,
            "set": of.key,
            "normalisation": of.normalisation,
            "mirror": of.mirror,
            "test": self.test.fingerprint,
            "network": identity(network),
            "protocol": protocol.model_dump(mode="json", exclude={"name"}),
            "seed": seed,
        }


def _keyed(training: dict[str, Any], measurements: Sequence[Measurement], total: int) -> dict[str, Measurement]:
    """Each measurement by the key of its record."""
    keyed = {}
    for at in measurements:
        step = at.step or total
        keyed[record_key({**training, "step": step, "corruption": at.corruption})] = Measurement(step, at.corruption)
    return keyed


@dataclass
class _Run:
    """One training and the measurements along it."""

    evaluator: Evaluator
    training_set: TrainingSet
    network: str
    protocol: Protocol
    seed: int
    shared: bool

    def compute(self, missing: dict[str, Measurement], checkpoint: Path) -> None:
        lab, of = self.evaluator, self.training_set
        network = lab.network(self.network, of)
        redraw(network, self.network, self.seed, **lab.shape(of))
        by_step: dict[int, list[tuple[str, Measurement]]] = {}
        for key, at in missing.items():
            by_step.setdefault(at.step or 0, []).append((key, at))
        self._drop_useless(checkpoint, min(by_step))
        train(
            network,
            of.images,
            of.targets,
            self.protocol,
            normalisation=of.normalisation,
            mirror=of.mirror,
            seed=self.seed,
            device=lab.device,
            compile=lab.compiles(self.network, of, self.protocol),
            progress=lab.progress,
            task=f"{of.name}: {self.network}, {self.protocol.name}, seed {self.seed}",
            stop=lab.stop,
            checkpoint=checkpoint,
            checkpoint_every_s=lab.checkpoint_every_s,
            at_steps={step: self._probe(wanted) for step, wanted in by_step.items()},
        )
        checkpoint.unlink(missing_ok=True)

    def _drop_useless(self, checkpoint: Path, first: int) -> None:
        """A checkpoint past the first measurement we need does not help; nor does a damaged one: start again."""
        try:
            if checkpoint.exists() and load_tree(checkpoint, "training checkpoint")["step"] >= first:
                checkpoint.unlink()
        except RunError as error:
            self.evaluator.progress.note(f"{error} The training starts again.")
            checkpoint.unlink()

    def _probe(self, wanted: list[tuple[str, Measurement]]) -> Callable[[TrainedStats, nn.Module], None]:
        def probe(stats: TrainedStats, network: nn.Module) -> None:
            for key, at in wanted:
                self.evaluator.results.add(self._record(key, at, stats, network), shared=self.shared)

        return probe

    def _record(self, key: str, at: Measurement, stats: TrainedStats, network: nn.Module) -> Record:
        lab, of = self.evaluator, self.training_set
        predicted = predict(
            network,
            corrupt(lab.test.images, at.corruption),
            normalisation=of.normalisation,
            device=lab.device,
            compile=lab.compiles(self.network, of, self.protocol),
        )
        return Record(
            key=key,
            set=of.name,
            network=self.network,
            protocol=self.protocol.name,
            seed=self.seed,
            step=stats.steps,
            corruption=at.corruption,
            confusion=confusion_matrix(lab.test.labels, predicted, lab.data.train.classes),
            images=len(of.images),
            bytes=of.bytes,
            train_steps=stats.steps,
            images_seen=stats.images_seen,
            seconds=round(stats.seconds, 3),
            made={k: v for k, v in machine.environment().items() if k in ("tinyset", "torch", "cpu", "threads", "gpu")},
        )
