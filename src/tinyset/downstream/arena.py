"""Candidates (a network and a way to train it) scored on small sets and on real images, always on a validation part.

The validation part is carved from the training split; the test split is not opened. A score is a measurement of
`evaluation`: kept in a results file as soon as it is there, found again by a search that was stopped or killed.
"""

import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from tinyset.condensed import CondensedSet
from tinyset.data.imageset import ImageSet, Splits
from tinyset.errors import Diverged, RunError, UserError
from tinyset.evaluation import Evaluator, Results, TrainingSet, carve_validation, from_artifact, from_images
from tinyset.evaluation.metrics import accuracy
from tinyset.evaluation.results import record_key
from tinyset.evaluation.sets import baseline
from tinyset.files import cache_dir, write_json
from tinyset.interrupts import Stop
from tinyset.machine import pick_device
from tinyset.progress import Progress, Silent
from tinyset.protocols import Protocol
from tinyset.rng import derive
from tinyset.selection import random_selection, select

CONDENSED, REAL = "condensed", "real"
BESIDE = ("random", "herding")
HERDING_NETWORK = "convnet3:width=32"  # whose features herding looks at; 300 training steps


@dataclass(frozen=True)
class SearchSettings:
    """What every search is told: how long trainings are, and on what."""

    steps: int = 300  # of a training on a small set
    real_per_class: int = 500
    real_steps: int = 1000
    validation: float = 0.1  # share of the training split
    beside: tuple[str, ...] = ("random",)
    confirm: int = 4  # of the best of each set, on real images
    all_real: bool = False  # every candidate on real images
    repeats: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "real_per_class", "real_steps", "confirm", "repeats"):
            if getattr(self, name) < 1:
                raise UserError(f"--{name.replace('_', '-')} {getattr(self, name)}: 1 or more are needed.")
        for name in self.beside:
            if name not in BESIDE:
                raise UserError(f"--beside {name}: choose among {', '.join(BESIDE)}.")


@dataclass(frozen=True)
class Candidate:
    network: str
    protocol: Protocol


@dataclass(frozen=True)
class Score:
    accuracy: float  # on the validation part, percent; 0 where the loss ran away
    seconds: float  # of training
    images: int = 0  # seen in training: a cost that no busy machine changes


class Arena:
    """The sets that compete, the real images that decide, and the validation part that scores both."""

    def __init__(
        self,
        artifact: CondensedSet,
        data: Splits,
        settings: SearchSettings,
        *,
        out: Path | None = None,
        device: str = "auto",
        progress: Progress | None = None,
        stop: Stop | None = None,
    ) -> None:
        self.settings, self.progress = settings, progress or Silent()
        self.stop, self.device = stop or Stop(), pick_device(device)
        train, held = carve_validation(data.train, settings.validation, settings.seed)
        splits = Splits(data.name, train, held, mirror=data.mirror)
        folder = out or cache_dir() / "search" / artifact.fingerprint[:32]
        self.lab = Evaluator(splits, Results(folder / "results.jsonl"), self.device, compile=False, stop=self.stop)
        self.prepared_s = dict.fromkeys((CONDENSED, *settings.beside, REAL), 0.0)
        self.sets = {CONDENSED: from_artifact(artifact, CONDENSED)}
        small = baseline("random-uint8", artifact, splits, self.progress)(settings.seed)
        for name in settings.beside:
            self.sets[name] = small if name == "random" else self._herding(small, folder)
        counts = [min(settings.real_per_class, count) for count in train.counts]
        chosen = torch.cat(random_selection(train, counts, derive(settings.seed, "real part")))
        self.sets[REAL] = from_images(train, chosen, name=REAL, mirror=data.mirror)

    @property
    def small(self) -> list[str]:
        """The sets that are searched on."""
        return [name for name in self.sets if name != REAL]

    def score(self, of: str, candidate: Candidate) -> Score:
        """The mean over the seeds."""
        found = [self._once(of, candidate, self.settings.seed + r) for r in range(self.settings.repeats)]
        mean = statistics.fmean(score.accuracy for score in found)
        seconds, images = (sum(getattr(score, key) for score in found) for key in ("seconds", "images"))
        return Score(round(mean, 4), round(seconds, 3), images)

    def scores(self, of: str, candidates: Sequence[Candidate], task: str) -> list[Score]:
        self.progress.start(task, len(candidates))
        found = []
        for candidate in candidates:
            found.append(self.score(of, candidate))
            self.progress.update(len(found), accuracy=found[-1].accuracy)
        return found

    def _once(self, of: str, candidate: Candidate, seed: int) -> Score:
        steps = self.settings.real_steps if of == REAL else self.settings.steps
        protocol = candidate.protocol.model_copy(update={"steps": steps})
        began = time.monotonic()
        try:
            ((record, _),) = self.lab.measure(self.sets[of], candidate.network, protocol, seed)
        except Diverged:  # an answer too: not these settings
            return Score(0.0, time.monotonic() - began)
        return Score(accuracy(record.confusion), record.seconds, record.images_seen)

    def _herding(self, like: TrainingSet, folder: Path) -> TrainingSet:
        """As many images of each class as the random selection holds; what was chosen is kept, it takes a training."""
        train = self.lab.data.train
        counts = torch.bincount(like.labels, minlength=train.classes).tolist()
        seed = self.settings.seed
        key = record_key({"data": train.fingerprint, "counts": counts, "seed": seed, "network": HERDING_NETWORK})
        path = folder / "herding.json"
        found = _kept(path, key, train)
        if found is None:
            began = time.monotonic()
            mirror, ear = self.lab.data.mirror, self.progress
            index = select(
                "herding", train, counts, seed=seed, network=HERDING_NETWORK, device=self.device, mirror=mirror, progress=ear
            )  # fmt: skip
            found = index, round(time.monotonic() - began, 3)
            write_json(path, {"key": key, "seconds": found[1], "index": index.tolist()})
        index, self.prepared_s["herding"] = found
        return from_images(train, index, name=f"herding, {counts[0]} per class", mirror=self.lab.data.mirror)


def _kept(path: Path, key: str, train: ImageSet) -> tuple[torch.Tensor, float] | None:
    if not path.exists():
        return None
    try:
        values = json.loads(path.read_text())
        index, seconds = torch.tensor(values["index"], dtype=torch.long), float(values["seconds"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} is damaged: delete it and run again.") from error
    ours = values["key"] == key and len(index) > 0 and int(index.min()) >= 0 and int(index.max()) < len(train)
    return (index, seconds) if ours else None
