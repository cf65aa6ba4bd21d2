"""What networks are trained on: a condensed set or a baseline, all in one shape, so that all are treated alike."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch

from tinyset.condensed import CondensedSet
from tinyset.config import CondenseConfig
from tinyset.data.imageset import ImageSet, Splits
from tinyset.errors import UserError
from tinyset.networks import list_networks
from tinyset.progress import Progress
from tinyset.rng import generator
from tinyset.selection import random_selection
from tinyset.training import Normalisation

BASELINES = ("random", "random-uint8", "kfs-0", "full")


@dataclass(frozen=True)
class TrainingSet:
    """Images (uint8, or float in [0, 1]) and labels with everything a training needs to know about them."""

    images: torch.Tensor
    labels: torch.Tensor
    soft_labels: torch.Tensor | None
    normalisation: Normalisation
    mirror: bool
    name: str
    bytes: int  # what storing the set costs
    key: str  # a hash of its content

    @property
    def targets(self) -> torch.Tensor:
        return self.labels if self.soft_labels is None else self.soft_labels


class Source(Protocol):
    """A training set for each seed: a selection is drawn anew for every repeat, an artifact stays what it is."""

    def __call__(self, seed: int) -> TrainingSet: ...


def from_artifact(artifact: CondensedSet, name: str | None = None) -> TrainingSet:
    images, labels = artifact.decode()
    return TrainingSet(
        images,
        labels,
        artifact.soft_labels,
        artifact.normalisation,
        artifact.mirror,
        name or artifact.config.method,
        artifact.bytes,
        artifact.fingerprint,
    )


def from_images(
    real: ImageSet, index: torch.Tensor | None, *, name: str, mirror: bool, number_bytes: int = 1
) -> TrainingSet:
    """Real images; `number_bytes`: 4 by the papers' count of float32 numbers, 1 as they are stored."""
    images, labels = (real.images, real.labels) if index is None else (real.images[index], real.labels[index])
    chosen = "all" if index is None else torch.sort(index).values.tolist()
    key = f"{real.fingerprint}:{chosen}"
    return TrainingSet(images, labels, None, real.stats, mirror, name, images.numel() * number_bytes, key)


def baseline(name: str, artifact: CondensedSet, data: Splits, progress: Progress) -> Source:
    """A baseline at the storage of `artifact`."""
    if name == "full":
        whole = from_images(data.train, None, name="full data", mirror=data.mirror)
        return lambda seed: whole
    if name == "random":
        return partial(_random, data, _same_numbers(artifact), 4)
    if name == "random-uint8":
        return partial(_random, data, _same_bytes(artifact), 1)
    if name == "kfs-0":
        start = from_artifact(_before_training(artifact, data, progress), f"{artifact.config.method}, 0 steps")
        return lambda seed: start
    raise UserError(f"--baselines {name}: choose among {', '.join(BASELINES)}.")


def _random(data: Splits, per_class: int, number_bytes: int, seed: int) -> TrainingSet:
    counts = [min(per_class, count) for count in data.train.counts]
    index = torch.cat(random_selection(data.train, counts, seed))
    name = f"random, {per_class} per class" + (" (uint8)" if number_bytes == 1 else "")
    return from_images(data.train, index, name=name, mirror=data.mirror, number_bytes=number_bytes)


def _same_numbers(artifact: CondensedSet) -> int:
    """The papers' convention: a stored number is a number, so the budget is n full-size images per class."""
    return max(1, round(artifact.config.nominal_params_per_class / math.prod(artifact.image_shape)))


def _same_bytes(artifact: CondensedSet) -> int:
    """The stricter yardstick: as many uint8 images as fit into the bytes of the artifact."""
    return max(1, artifact.bytes // (len(artifact.class_names) * math.prod(artifact.image_shape)))


def _before_training(artifact: CondensedSet, data: Splits, progress: Progress) -> CondensedSet:
    """What the artifact was at step 0: the same settings and seed, no step."""
    from tinyset.condensation import run

    settings: dict[str, Any] = {**artifact.config.condense, "steps": 0, "time_limit_s": None}
    if not artifact.config.condense:
        raise UserError("--baselines kfs-0: the artifact does not record how it was made.")
    if str(settings.get("network")).partition(":")[0] not in list_networks():
        raise UserError(f"--baselines kfs-0: the artifact names a network of its own, {settings.get('network')!r}.")
    if artifact.config.source_fingerprint != data.train.fingerprint:
        raise UserError("--baselines kfs-0: --data is not the dataset the artifact was condensed from.")
    return run(CondenseConfig.parse(settings, "config.json of the artifact"), data, progress=progress).condensed


def carve_validation(real: ImageSet, fraction: float, seed: int) -> tuple[ImageSet, ImageSet]:
    """(training part, validation part), the same fraction of every class: for anything that is selected.

    Both keep the statistics of the whole training split, which is all the selection may know.
    """
    if not 0 < fraction < 1:
        raise UserError(f"A validation fraction must lie between 0 and 1, not {fraction}.")
    kept, held = [], []
    for c, members in enumerate(real.by_class):
        order = members[torch.randperm(len(members), generator=generator(seed, "validation", c))]
        count = min(max(1, round(fraction * len(members))), max(len(members) - 1, 0))
        held.append(order[:count])
        kept.append(order[count:])
    return tuple(real.subset(torch.sort(torch.cat(parts)).values) for parts in (kept, held))  # type: ignore[return-value]
