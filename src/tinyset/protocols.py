"""Evaluation protocols: how a network is trained before its accuracy counts. Each is a small recipe with a name."""

import re
from typing import Any

from pydantic import Field

from tinyset.augment import Strategy
from tinyset.config import Settings
from tinyset.errors import UserError

BATCH = 256


class Protocol(Settings):
    """SGD with momentum; the rate is multiplied by `factor` at each fraction in `drops`; the last weights count."""

    name: str
    epochs: int | None = Field(default=None, ge=1)
    steps: int | None = Field(default=None, ge=1)  # exactly one of epochs and steps
    batch: int = Field(default=BATCH, ge=1)  # min(N, batch)
    rate: float = Field(default=0.01, gt=0)
    momentum: float = Field(default=0.9, ge=0, lt=1)
    weight_decay: float = Field(default=5e-4, ge=0)
    drops: tuple[float, ...] = (2 / 3, 5 / 6)
    factor: float = 0.2
    augmentation: Strategy = "none"
    cutmix: float = Field(default=0.0, ge=0, le=1)  # probability per batch

    def batch_size(self, count: int) -> int:
        return min(count, self.batch)

    def steps_per_epoch(self, count: int) -> int:
        """Every image once; the last batch holds the rest, unless the rest is one image (batch norm needs two)."""
        size = self.batch_size(count)
        return count // size + (count % size > 1)

    def total_steps(self, count: int) -> int:
        return self.steps if self.steps is not None else (self.epochs or 0) * self.steps_per_epoch(count)

    def rate_at(self, step: int, count: int) -> float:
        """The learning rate of a step. Drops fall on whole epochs where the protocol counts epochs."""
        if self.steps is not None:
            done, length = step, self.steps
        else:
            done, length = step // self.steps_per_epoch(count), self.epochs or 0
        passed = sum(done >= int(length * fraction) for fraction in self.drops)
        return float(self.rate * self.factor**passed)


CUTMIX = 0.5  # of the batches, as in IDC
_KFS = Protocol(name="kfs", epochs=200)
_NAMED = {
    protocol.name: protocol
    for protocol in (
        _KFS,
        _KFS.model_copy(update={"name": "kfs-aug", "augmentation": "flip-shift"}),
        _KFS.model_copy(update={"name": "kfs-cutmix", "augmentation": "flip-shift", "cutmix": CUTMIX}),
        Protocol(name="dc", epochs=300, drops=(0.5,), factor=0.1),
        Protocol(name="dsa", epochs=1000, drops=(0.5,), factor=0.1, augmentation="dsa"),
        Protocol(name="idc", epochs=1000, batch=64, augmentation="dsa-nocutout", cutmix=CUTMIX),
    )
}


def protocol(name: str) -> Protocol:
    """`kfs`, `kfs-aug`, `kfs-cutmix`, `dc`, `dsa`, `idc`, or N steps with the schedule of `kfs`: `steps:N` (and the augmentation of
    kfs-aug), `steps:N:cutmix` (of kfs-cutmix), `steps:N:dsa` (of dsa), `steps:N:none`. `:batch=B` behind any of them takes batches
    of B."""
    if match := re.fullmatch(r"(.+):batch=([1-9]\d*)", name):
        own = protocol(match[1])
        return own.model_copy(update={"name": f"{own.name}:batch={match[2]}", "batch": int(match[2])})
    if name in _NAMED:
        return _NAMED[name]
    if match := re.fullmatch(r"steps:([1-9]\d*)(?::(none|flip-shift|dsa|dsa-nocutout|cutmix))?", name):
        values: dict[str, Any] = {"steps": int(match[1]), "augmentation": match[2] or "flip-shift"}
        if match[2] == "cutmix":
            values |= {"augmentation": "flip-shift", "cutmix": CUTMIX}
        values["name"] = name.removesuffix(":flip-shift")
        return Protocol.parse(values, f"protocol {name}")
    raise UserError(
        f"Unknown protocol {name!r}: choose {', '.join(_NAMED)}, steps:N (N training steps), steps:N:cutmix,"
        " steps:N:dsa or steps:N:none (without augmentation); :batch=B behind any of them sets the batch."
    )


def list_protocols() -> list[str]:
    return [*_NAMED, "steps:N", "steps:N:cutmix", "steps:N:dsa", "steps:N:none"]
