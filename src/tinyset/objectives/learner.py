"""A network that is trained a little between matching steps; its weights and momentum are part of the checkpoint."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tinyset.kernels import Classifier
from tinyset.machine import compiled
from tinyset.networks import reset
from tinyset.objectives.base import Context
from tinyset.training import on_kernels


def batch_loss(network: nn.Module, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(network(images), targets)


def compiled_loss(context: Context, network: nn.Module | None = None) -> Callable[..., torch.Tensor]:
    """`batch_loss`, compiled where the run says so: first order only, and for one shape of batches.

    `network`: the only one it will be asked for, which may then learn on the kernels.
    """
    if context.compile and network is not None and on_kernels(network, context.device):
        fast = Classifier(network)
        return lambda _, images, targets: F.cross_entropy(fast(images), targets)
    return compiled(batch_loss, enabled=context.compile, note=context.progress.note)


class Learner:
    """SGD:  v <- momentum v + (gradient + decay w),  w <- w - rate v."""

    def __init__(
        self,
        network: nn.Module,
        *,
        rate: float,
        momentum: float = 0.0,
        decay: float = 0.0,
        loss: Callable[..., torch.Tensor] | None = None,
    ) -> None:
        self.network = network
        self.loss = loss or batch_loss
        self.rate = rate
        self.momentum = momentum
        self.decay = decay
        self.weights = dict(network.named_parameters())
        self.velocity = {name: torch.zeros_like(weight) for name, weight in self.weights.items()}

    def reset(self, generator: torch.Generator) -> None:
        reset(self.network, generator)
        for velocity in self.velocity.values():
            velocity.zero_()

    def update(self, images: torch.Tensor, targets: torch.Tensor) -> float:
        """One step on the cross-entropy of a batch; returns the loss."""
        loss = self.loss(self.network, images, targets)
        learned = list(self.weights.values())
        gradients = torch.autograd.grad(loss, learned, allow_unused=True, materialize_grads=True)
        with torch.no_grad():
            for (name, weight), gradient in zip(self.weights.items(), gradients, strict=True):
                velocity = self.velocity[name].mul_(self.momentum).add_(gradient).add_(weight, alpha=self.decay)
                weight.sub_(velocity, alpha=self.rate)
        return loss.item()

    def state(self) -> dict[str, Any]:
        weights = {name: weight.detach().clone() for name, weight in self.weights.items()}
        return {"weights": weights, "velocity": {name: v.clone() for name, v in self.velocity.items()}}

    @torch.no_grad()
    def restore(self, state: Mapping[str, Any]) -> None:
        for name, weight in self.weights.items():
            weight.copy_(state["weights"][name])
            self.velocity[name].copy_(state["velocity"][name])
