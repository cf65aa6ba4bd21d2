"""What is searched: hyper-parameters of a training, and the ConvNets of the condensation papers."""

from itertools import product
from typing import Annotated, Any

import torch
from pydantic import AfterValidator, Field

from tinyset.augment import Strategy
from tinyset.config import Settings
from tinyset.errors import UserError
from tinyset.protocols import Protocol
from tinyset.rng import generator


def _rising(limits: tuple[float, float]) -> tuple[float, float]:
    if not 0 < limits[0] <= limits[1]:
        raise ValueError("a range is two numbers above 0, the smaller one first")
    return limits


def _below_one(limits: tuple[float, float]) -> tuple[float, float]:
    if limits[1] >= 1:
        raise ValueError("a momentum lies below 1")
    return limits


Range = Annotated[tuple[float, float], AfterValidator(_rising)]
Choices = Field(min_length=1)


class HyperParameters(Settings):
    """Ranges (searched on a log scale, the momentum by its distance from 1) and choices."""

    rate: Range = (0.001, 0.2)
    momentum: Annotated[Range, AfterValidator(_below_one)] = (0.5, 0.99)
    weight_decay: Range = (1e-5, 1e-2)
    batch: Annotated[tuple[int, ...], Choices] = (32, 64, 128, 256)
    augmentation: Annotated[tuple[Strategy, ...], Choices] = ("none", "flip-shift", "dsa")
    cutmix: Annotated[tuple[float, ...], Choices] = (0.0, 0.5)

    def suggest(self, trial: Any, steps: int) -> Protocol:
        """The training an Optuna trial asks for."""
        slow, fast = 1 - self.momentum[1], 1 - self.momentum[0]
        values = {
            "rate": _short(trial.suggest_float("rate", *self.rate, log=True)),
            "momentum": round(1 - trial.suggest_float("1 - momentum", slow, fast, log=True), 4),
            "weight_decay": _short(trial.suggest_float("weight_decay", *self.weight_decay, log=True)),
            "batch": trial.suggest_categorical("batch", self.batch),
            "augmentation": trial.suggest_categorical("augmentation", self.augmentation),
            "cutmix": trial.suggest_categorical("cutmix", self.cutmix),
        }
        return Protocol.parse({"name": "search", "steps": steps, **values}, "the search space")


def _short(value: float) -> float:
    """Three digits: what is found can be written down."""
    return float(f"{value:.3g}")


class ConvNets(Settings):
    """The 720 ConvNets of the condensation papers (Zhao et al. 2021)."""

    depth: Annotated[tuple[int, ...], Choices] = (1, 2, 3, 4)
    width: Annotated[tuple[int, ...], Choices] = (32, 64, 128, 256)
    norm: Annotated[tuple[str, ...], Choices] = ("none", "batch", "layer", "instance", "group")
    activation: Annotated[tuple[str, ...], Choices] = ("sigmoid", "relu", "leakyrelu")
    pooling: Annotated[tuple[str, ...], Choices] = ("none", "max", "avg")

    def networks(self) -> list[str]:
        """Every point, as `tinyset.networks.build` takes it."""
        axes = product(self.depth, self.width, self.norm, self.activation, self.pooling)
        return [
            f"convnet{depth}:width={width},norm={norm},activation={activation},pooling={pooling}"
            for depth, width, norm, activation, pooling in axes
        ]

    def sample(self, count: int, seed: int) -> list[str]:
        """`count` different points."""
        every = self.networks()
        if not 2 <= count <= len(every):
            raise UserError(f"--points {count}: choose 2 to {len(every)}.")
        return [every[i] for i in torch.randperm(len(every), generator=generator(seed, "points"))[:count]]
