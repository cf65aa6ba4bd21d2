"""From predictions to numbers: confusion matrix, accuracies in percent, mean and standard deviation over repeats."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation (n - 1) over n repeats; the deviation of a single repeat is written 0."""

    mean: float
    std: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        std = statistics.stdev(values) if len(values) > 1 else 0.0
        return cls(round(statistics.fmean(values), 4), round(std, 4), len(values))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.mean:.1f} ± {self.std:.1f}" if self.n > 1 else f"{self.mean:.1f}"


def confusion_matrix(true: torch.Tensor, predicted: torch.Tensor, classes: int) -> list[list[int]]:
    """Row: the true class; column: the predicted one."""
    return torch.bincount(true * classes + predicted, minlength=classes**2).reshape(classes, classes).tolist()


def accuracy(confusion: Sequence[Sequence[int]]) -> float:
    total = sum(map(sum, confusion))
    return 100 * sum(row[c] for c, row in enumerate(confusion)) / total if total else 0.0


def per_class(confusion: Sequence[Sequence[int]]) -> list[float | None]:
    """Accuracy of each class; None where the test split has no image of it."""
    return [100 * row[c] / sum(row) if sum(row) else None for c, row in enumerate(confusion)]


def balanced_accuracy(confusion: Sequence[Sequence[int]]) -> float:
    """The mean of the class accuracies: rare classes count as much as common ones."""
    seen = [value for value in per_class(confusion) if value is not None]
    return statistics.fmean(seen) if seen else 0.0


def total_confusion(matrices: Sequence[Sequence[Sequence[int]]]) -> list[list[int]]:
    """The sum over repeats."""
    return [[sum(cell) for cell in zip(*rows, strict=True)] for rows in zip(*matrices, strict=True)]
