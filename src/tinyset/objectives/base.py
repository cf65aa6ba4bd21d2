"""What synthetic images are asked to match: the second of the two axes on which every method is a point."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch

from tinyset.config import Settings
from tinyset.data.imageset import ImageSet
from tinyset.division import Division
from tinyset.interrupts import Stop
from tinyset.parameterizations.base import Parameterization
from tinyset.processes import team
from tinyset.progress import Progress, Silent
from tinyset.whitening import Filter


@dataclass(frozen=True)
class Context:
    """Everything an objective may look at: the real training images and the resolved settings. Never the test split."""

    real: ImageSet
    network: str
    seed: int
    device: torch.device
    mirror: bool = True  # may images be flipped?
    compile: bool = False
    chunk: int | None = None  # images per forward pass of the engine; None: its own rule
    memory_limit_bytes: int = 2 << 30
    precision: str = "float32"  # of the engine's passes
    progress: Progress = field(default_factory=Silent)
    stop: Stop = field(default_factory=Stop)


@dataclass(frozen=True)
class Losses:
    """The loss of one step, and of each class where the objective has one."""

    total: float
    per_class: tuple[float, ...] = ()


@dataclass(frozen=True)
class Phase:
    """Steps `first` to `last` - 1 of a run, with an optimizer of their own: its rates are times `factor`, its decay ends here."""

    first: int
    last: int
    factor: float = 1.0


class Objective(ABC):
    """`prepare` once, then `step` many times; all randomness is `rng.generator(seed, purpose, step)`.

    Whatever a step needs from the step before it (a network in training, an inner loop's position) is in `state`,
    so that a resumed run goes on byte for byte.
    """

    Options: ClassVar[type[Settings]] = Settings
    # what several processes divide: the steps, only what `prepare` computes, or (None) nothing, which is refused
    divides: ClassVar[Literal["steps", "preparation"] | None] = None

    whitening: Filter | None = None  # what networks see images through, where `prepare` has chosen to whiten them

    def __init__(self, context: Context, options: Settings) -> None:
        self.context = context
        self.options = options
        self.division = Division.everything(team(), context.real.classes)

    def prepare(self, synthetic: Parameterization) -> None:  # noqa: B027 - many objectives have nothing to prepare
        """Work done once before step 0 and again, from caches, on resume: a bank, expert networks."""

    @abstractmethod
    def step(self, synthetic: Parameterization, step: int) -> Losses:
        """Add this step's gradient to `.grad` of the parameters of `synthetic` (and of `self.parameters`).

        Of parameters with rows of each class, only the rows of `division.classes` are asked for.
        """

    def phase(self, step: int, steps: int) -> Phase:
        """The part of a run of `steps` steps that `step` belongs to."""
        return Phase(0, steps)

    def parameters(self) -> dict[str, list[torch.nn.Parameter]]:
        """Learnables of the objective itself by rate name, for example a student's learning rate."""
        return {}

    def state(self) -> dict[str, Any]:
        """All that `restore` needs: nested dicts and lists of tensors, numbers, strings."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:  # noqa: B027 - most objectives carry no state
        """The inverse of `state`."""
