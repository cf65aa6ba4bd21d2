"""Gradient matching: DC (Zhao et al. 2021), DSA (Zhao & Bilen 2021) and IDC (Kim et al. 2022).

    L(S) = sum_c D( grad_theta l(A(S_c); theta), grad_theta l(A(T_c); theta) )

    D(g, h) = sum_layers sum_rows 1 - g_row . h_row / (|g_row| |h_row|)      cosine (DC, DSA)
    D(g, h) = sum_layers |g_layer - h_layer|^2                                mse (IDC)

| symbol | here |
|---|---|
| S_c, T_c | synthetic images of class c (all, or `synthetic_batch`), and `real_batch` real ones |
| theta | `self.learner`: drawn anew every `outer` steps, trained by `inner` SGD steps between two image updates |
| l | mean cross-entropy |
| A | one siamese augmentation, the same draw for S_c and T_c |
| layers | weights of two or more dimensions (`layers` = weights) or of convolutions only (conv); biases never |
| rows | output units: row r of a weight is all that feeds output r |

theta is trained on the synthetic set (DC, DSA) or on real images (IDC). One class at a time: its graph is freed
before the next is built.

`pool` = K goes beyond the papers, for short runs: theta, A and T_c are those of step k mod K, so that the real gradients, which
cost most of a step, are computed once and kept. Possible wherever theta does not depend on S.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import nn

from tinyset.augment import cutmix
from tinyset.config import Settings
from tinyset.errors import UserError
from tinyset.objectives.base import Losses, Objective
from tinyset.objectives.inputs import Inputs, add_gradient, learnables, make_network
from tinyset.objectives.learner import Learner, batch_loss, compiled_loss
from tinyset.parameterizations.base import Parameterization

Distance = Literal["cosine", "mse"]
NO_ZERO = 1e-6  # added to the product of norms, as in the papers' code


class GradientOptions(Settings):
    distance: Distance = "cosine"
    layers: Literal["weights", "conv"] = "weights"  # which gradients are compared
    train_on: Literal["synthetic", "real"] = "synthetic"  # what theta is trained on between image updates
    outer: int = Field(1, ge=1)  # image updates before theta is drawn anew
    inner: int = Field(1, ge=0)  # SGD steps of theta between two image updates
    real_batch: int = Field(256, ge=1)  # per class
    synthetic_batch: int | None = Field(None, ge=1)  # per class; None: all
    augment: str = "none"  # a siamese strategy such as color_crop_cutout_flip_scale_rotate
    network_rate: float = Field(0.01, gt=0)
    network_momentum: float = Field(0.0, ge=0, lt=1)
    network_decay: float = Field(0.0, ge=0)
    network_batch: int = Field(256, ge=1)  # images per SGD step of theta
    network_cutmix: float = Field(0.0, ge=0, le=1)  # probability of CutMix in those steps
    pool: int | None = Field(None, ge=1)  # K; None: every step has its own network and real images

    @model_validator(mode="after")
    def _pool_is_possible(self) -> Self:
        if self.pool is not None and self.train_on == "synthetic" and self.outer > 1:
            raise ValueError(
                "a pool needs networks that do not depend on the synthetic set: outer = 1 or train_on = real"
            )
        if self.pool is not None and self.pool % self.outer:
            raise ValueError(f"pool = {self.pool} must be a multiple of outer = {self.outer}")
        return self


@dataclass(frozen=True)
class Kept:
    """One element of the pool."""

    weights: list[torch.Tensor]  # theta
    wanted: list[list[torch.Tensor]]  # for each class, the real gradient of each layer


class GradientMatching(Objective):
    Options = GradientOptions
    options: GradientOptions

    def prepare(self, synthetic: Parameterization) -> None:
        options = self.options
        self.inputs = Inputs(self.context, synthetic)
        self.learner = Learner(
            make_network(self.context, synthetic),
            rate=options.network_rate,
            momentum=options.network_momentum,
            decay=options.network_decay,
        )
        self.real_loss = compiled_loss(self.context)
        if options.train_on == "real":  # batches of one shape
            self.learner.loss = self.real_loss
        self.kept: dict[int, Kept] = {}
        if not matched_weights(self.learner.network, options.layers):
            raise UserError(f"--network {self.context.network} has no convolution to match: --option layers=weights.")
        self._check_memory()

    def step(self, synthetic: Parameterization, step: int) -> Losses:
        inputs, options = self.inputs, self.options
        k = step if options.pool is None else step % options.pool
        kept = None
        if options.pool is None:
            self._advance_network(synthetic, k)
        else:
            kept = self._from_pool(synthetic, k)
        per_class = []
        for c in range(synthetic.classes):
            augment = inputs.siamese(options.augment, "augment", k, c)
            wanted = self._real_gradient(k, c) if kept is None else kept.wanted[c]
            index = inputs.synthetic_index(synthetic, c, options.synthetic_batch, "synthetic", step)
            images = augment(inputs.normalise(synthetic.decode(c, index)))
            gradient = self._gradient(images, synthetic.targets(c, index), batch_loss, create_graph=True)
            loss = distance(gradient, wanted, options.distance)
            add_gradient(loss, learnables(synthetic))
            per_class.append(loss.item())
        return Losses(sum(per_class), tuple(per_class))

    def _real_gradient(self, k: int, class_: int) -> list[torch.Tensor]:
        inputs, options = self.inputs, self.options
        augment = inputs.siamese(options.augment, "augment", k, class_)
        real = augment(inputs.real_of_class(class_, options.real_batch, "real", k))
        return self._gradient(real, inputs.one_hot(torch.full((len(real),), class_)), self.real_loss)

    def _gradient(
        self,
        images: torch.Tensor,
        targets: torch.Tensor,
        loss_of: Callable[..., torch.Tensor],
        create_graph: bool = False,
    ) -> list[torch.Tensor]:
        """grad_theta l, for the layers that are compared."""
        weights = matched_weights(self.learner.network, self.options.layers)
        loss = loss_of(self.learner.network, images, targets)
        return list(torch.autograd.grad(loss, weights, create_graph=create_graph))

    def _advance_network(self, synthetic: Parameterization, step: int) -> None:
        """theta of this step. Training sees the images as the last update left them, hence before and not after it."""
        options, inputs = self.options, self.inputs
        episode, position = divmod(step, options.outer)
        if position == 0:
            self.learner.reset(inputs.draw("network", episode))
            return
        for i in range(options.inner):
            with torch.no_grad():
                if options.train_on == "real":
                    images, targets = inputs.real_mixed(options.network_batch, "network batch", step, i)
                else:
                    images, targets = inputs.synthetic_mixed(synthetic, options.network_batch, "network batch", step, i)
                images = inputs.siamese(options.augment, "network augment", step, i)(images)
                if options.network_cutmix:
                    draw = inputs.draw("network cutmix", step, i)
                    images, targets = cutmix(images, targets, draw, options.network_cutmix)
            self.learner.update(images, targets)

    def _from_pool(self, synthetic: Parameterization, k: int) -> Kept:
        """Element k, its theta put into the network. An episode of `outer` elements is computed from its beginning."""
        if k not in self.kept:
            first = k - k % self.options.outer
            for i in range(first, first + self.options.outer):
                self._advance_network(synthetic, i)
                weights = [weight.detach().clone() for weight in self.learner.network.parameters()]
                self.kept[i] = Kept(weights, [self._real_gradient(i, c) for c in range(synthetic.classes)])
        with torch.no_grad():
            for weight, value in zip(self.learner.network.parameters(), self.kept[k].weights, strict=True):
                weight.copy_(value)
        return self.kept[k]

    def _check_memory(self) -> None:
        network, pool = self.learner.network, self.options.pool
        matched = sum(weight.nbytes for weight in matched_weights(network, self.options.layers))
        element = matched * self.context.real.classes + sum(weight.nbytes for weight in network.parameters())
        if pool is not None and pool * element > self.context.memory_limit_bytes:
            raise UserError(
                f"--option pool={pool} would keep {pool * element / 1e9:.1f} GB of real gradients: lower it to "
                f"{self.context.memory_limit_bytes // element} or raise --memory-limit."
            )

    def state(self) -> dict[str, Any]:
        return {"network": self.learner.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.learner.restore(state["network"])


def matched_weights(network: nn.Module, layers: str) -> list[nn.Parameter]:
    least = 4 if layers == "conv" else 2
    return [weight for weight in network.parameters() if weight.ndim >= least]


def distance(gradient: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor], kind: Distance) -> torch.Tensor:
    """D(g, h), summed over layers."""
    if kind == "mse":
        return torch.stack([(g - h).square().sum() for g, h in zip(gradient, wanted, strict=True)]).sum()
    total = []
    for g, h in zip(gradient, wanted, strict=True):
        g_rows, h_rows = g.flatten(1), h.flatten(1)
        norms = g_rows.norm(dim=1) * h_rows.norm(dim=1)
        total.append((1 - (g_rows * h_rows).sum(1) / (norms + NO_ZERO)).sum())
    return torch.stack(total).sum()
