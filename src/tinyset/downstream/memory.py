"""Replay memories of a stream of classes, all within the same number of bytes: KFS, DM, herding, random.

A memory is a parameterization that grows by the classes of each step. The bytes are those of the artifact that would be saved
(`saving.serialize`), shared equally by all classes of the stream, so a memory is full after the last step and not before.
KFS learns its decoders on the classes of the first step; later classes use them frozen and cost their codes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from tinyset.budget import CodePlan
from tinyset.config import CondenseConfig
from tinyset.data.imageset import ImageSet, Splits
from tinyset.downstream.living import match, new_class, with_classes
from tinyset.errors import UserError
from tinyset.machine import pick_device
from tinyset.methods import resolve
from tinyset.parameterizations.base import Parameterization
from tinyset.parameterizations.pixels import Pixels
from tinyset.progress import Progress
from tinyset.protocols import protocol
from tinyset.rng import generator
from tinyset.saving import serialize
from tinyset.selection import select
from tinyset.starts import plan, start
from tinyset.storage import pack, unpack

MEMORIES = ("kfs", "dm", "herding", "random")


@dataclass(frozen=True)
class Memory:
    """How one kind of memory is filled."""

    method: str
    config: CondenseConfig
    plan: CodePlan | int  # of all classes of the stream: codes and decoders, or images of each class
    mirror: bool
    herding_steps: int

    @classmethod
    def planned(
        cls, method: str, data: Splits, budget_bytes: int, precision: str, settings: Mapping[str, Any]
    ) -> "Memory":
        """The most that fits into the budget once all classes are there. Only shapes are looked at."""
        if method not in MEMORIES:
            raise UserError(f"--memory {method}: choose among {', '.join(MEMORIES)}.")
        given = dict(settings)
        herding_steps = given.pop("herding_steps", 300)
        if method == "kfs":
            config = resolve("plain", {**given, "method": method, "budget_bytes": budget_bytes, "storage": precision})
            sizes = plan(config, data.train)
            assert isinstance(sizes, CodePlan)
            return cls(method, config, sizes, data.mirror, herding_steps)
        config = resolve("plain", {**given, "method": method})
        each = _images_that_fit(data.train, budget_bytes, precision)
        return cls(method, config, each, data.mirror, herding_steps)

    def extended(self, old: Parameterization | None, real: ImageSet, progress: Progress) -> Parameterization:
        """The memory of the classes before and of those of `real`."""
        if isinstance(self.plan, CodePlan):
            return self._codes(self.plan, old, real, progress)
        count, seed = self.plan, self.config.seed
        made = Pixels.create(real, [count] * real.classes, "real", generator(seed, "memory", *real.class_names))
        if self.method == "dm":
            match(made, Splits("memory", real, mirror=self.mirror), self.config, progress)
        else:
            index = select(
                self.method,
                real,
                [count] * real.classes,
                seed=seed,
                network=self.config.network,
                device=pick_device(self.config.device),
                mirror=self.mirror,
                training=protocol(f"steps:{self.herding_steps}"),
                progress=progress,
            )
            made.assign(real.images[index].float() / 255)
        return made if old is None else with_classes(old, made)

    def _codes(
        self, sizes: CodePlan, old: Parameterization | None, real: ImageSet, progress: Progress
    ) -> Parameterization:
        if old is None:  # the first classes: codes and decoders are learned together
            first = replace(sizes, codes=sizes.codes[: real.classes], nominal=sizes.nominal[: real.classes])
            old = start(self.config, real, first, pick_device(self.config.device), progress)
            match(old, Splits("memory", real, mirror=self.mirror), self.config, progress)
            return old
        for c, name in enumerate(real.class_names):
            images = real.images[real.by_class[c]]
            one = ImageSet(images, torch.zeros(len(images), dtype=torch.int64), (name,), real.stats)
            new = new_class(old, one, sizes.codes[0], self.config.seed)
            match(new, Splits("memory", one, mirror=self.mirror), self.config, progress)
            old = with_classes(old, new)
        return old


def stored(made: Parameterization, precision: str) -> tuple[Parameterization, int]:
    """The memory as it reads after it was written, and its bytes."""
    tensors = unpack(pack({name: tensor.cpu() for name, tensor in made.tensors().items()}, precision))
    return type(made).restore(made.spec(), tensors), len(serialize(made, precision))


def _images_that_fit(real: ImageSet, budget_bytes: int, precision: str) -> int:
    """The most images of each class whose file is within the budget."""
    count = 0
    while len(serialize(Pixels(real.image_shape, [count + 1] * real.classes), precision)) <= budget_bytes:
        count += 1
    if count == 0:
        raise UserError(f"--bytes {budget_bytes} is too small for one image of each of {real.classes} classes.")
    return min(count, min(real.counts))
