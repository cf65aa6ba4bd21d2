"""Trajectory matching, MTT (Cazenavette et al. 2022): a student of the synthetic set should land where an expert did.

    theta_0     = theta*_t                                                  the expert after t epochs
    theta_{n+1} = theta_n - alpha grad_theta l(A S_n; theta_n)              n = 0 .. N-1
    L(S, alpha) = | theta_N - theta*_{t+M} |^2 / | theta*_t - theta*_{t+M} |^2

| symbol | here |
|---|---|
| theta* | `self.experts`: weights of networks trained on real images, kept after every epoch |
| t, M | a start drawn from 0 .. `last_start`, and `expert_epochs` epochs further |
| N | `student_steps` |
| alpha | `self.rate`: the student's learning rate, learned (rate name "student_rate") |
| S_n, A | the synthetic images of step n (all, or `student_batch`), augmented per sample |

L is 0 where the student arrives and 1 where it did not move. Its gradient is of second order, through all N steps. We
keep only theta_0 .. theta_N and go back one step at a time,

    v_N = dL/dtheta_N,    (v_n, dS, dalpha) += vector-Jacobian product of step n with v_{n+1},

so memory does not grow with N; the price is one more forward pass per step, about a quarter of the time.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import nn
from torch.func import functional_call

from tinyset.augment import Siamese
from tinyset.config import Settings
from tinyset.files import cache_dir
from tinyset.objectives.base import Losses, Objective
from tinyset.objectives.experts import Experts, split_weights
from tinyset.objectives.inputs import Inputs, learnables, make_network
from tinyset.parameterizations.base import Parameterization

LEAST_RATE = 1e-6
Batch = Callable[[int], tuple[torch.Tensor, torch.Tensor]]


class TrajectoryOptions(Settings):
    student_steps: int = Field(50, ge=1)  # N
    student_batch: int | None = Field(None, ge=1)  # synthetic images per student step; None: all
    student_rate: float = Field(0.01, gt=0)  # where alpha starts
    expert_epochs: int = Field(2, ge=1)  # M
    last_start: int = Field(2, ge=0)  # the largest t
    experts: int = Field(10, ge=1)
    expert_rate: float = Field(0.01, gt=0)
    expert_batch: int = Field(256, ge=1)
    epoch_steps: int | None = Field(None, ge=1)  # SGD steps that count as one epoch; None: a pass over the images
    expert_seed: int = Field(0, ge=0)  # experts do not depend on the seed of the run, so that runs share them
    augment: str = "none"


class TrajectoryMatching(Objective):
    Options = TrajectoryOptions
    options: TrajectoryOptions
    divides = "preparation"

    def prepare(self, synthetic: Parameterization) -> None:
        options = self.options
        self.inputs = Inputs(self.context, synthetic)
        self.network = make_network(self.context, synthetic)
        self.rate = nn.Parameter(
            torch.tensor(options.student_rate, device=self.context.device, dtype=self.inputs.dtype)
        )
        self.experts = Experts(
            self.context,
            make_network(self.context, synthetic),
            rate=options.expert_rate,
            batch=options.expert_batch,
            epoch_steps=options.epoch_steps,
            augment=options.augment,
            seed=options.expert_seed,
            root=cache_dir(),
        )
        self.count = self.experts.ensure(options.experts, options.last_start + options.expert_epochs, self.context.stop)

    def step(self, synthetic: Parameterization, step: int) -> Losses:
        options, inputs = self.options, self.inputs
        with torch.no_grad():
            self.rate.clamp_(min=LEAST_RATE)
        draw = inputs.draw("expert", step)
        expert = int(torch.randint(self.count, (1,), generator=draw))
        t = int(torch.randint(options.last_start + 1, (1,), generator=draw))

        def batch(n: int) -> tuple[torch.Tensor, torch.Tensor]:
            images, targets = inputs.synthetic_mixed(synthetic, options.student_batch, "student", step, n)
            if options.augment != "none":
                family = Siamese(options.augment, mirror=self.context.mirror)
                images = family.apply(images, family.draw(inputs.draw("augment", step, n), len(images)))
            return images, targets

        loss = match_trajectory(
            self.network,
            self.experts.load(expert, t),
            self.experts.load(expert, t + options.expert_epochs),
            batch,
            options.student_steps,
            self.rate,
            learnables(synthetic),
        )
        return Losses(loss)

    def parameters(self) -> dict[str, list[nn.Parameter]]:
        return {"student_rate": [self.rate]}

    def state(self) -> dict[str, Any]:
        return {"student_rate": self.rate.detach().clone()}

    def restore(self, state: Mapping[str, Any]) -> None:
        with torch.no_grad():
            self.rate.copy_(state["student_rate"])


def student_step(
    network: nn.Module, theta: torch.Tensor, batch: tuple[torch.Tensor, torch.Tensor], alpha: torch.Tensor, graph: bool
) -> torch.Tensor:
    """theta - alpha grad_theta l(S_n; theta)"""
    images, targets = batch
    loss = F.cross_entropy(functional_call(network, split_weights(network, theta), (images,)), targets)
    (gradient,) = torch.autograd.grad(loss, theta, create_graph=graph)
    return theta - alpha * gradient


def match_trajectory(
    network: nn.Module,
    start: torch.Tensor,
    target: torch.Tensor,
    batch: Batch,
    steps: int,
    alpha: nn.Parameter,
    parameters: list[nn.Parameter],
) -> float:
    """L, and its gradient added to `.grad` of `parameters` and of `alpha`."""
    thetas = [start]
    for n in range(steps):
        with torch.no_grad():
            images_targets = batch(n)
        theta = thetas[-1].detach().requires_grad_()
        thetas.append(student_step(network, theta, images_targets, alpha, graph=False).detach())
    moved = (start - target).square().sum()
    loss = (thetas[-1] - target).square().sum() / moved
    v = 2 * (thetas[-1] - target) / moved
    learned = [alpha, *parameters]
    for n in reversed(range(steps)):
        theta = thetas.pop(n).detach().requires_grad_()
        after = student_step(network, theta, batch(n), alpha, graph=True)
        v, *gradients = torch.autograd.grad(after, [theta, *learned], v, allow_unused=True)
        for parameter, gradient in zip(learned, gradients, strict=True):
            if gradient is not None:
                parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
    return loss.item()
