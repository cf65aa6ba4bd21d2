"""CAFE: layer-wise feature alignment, discrimination, and a loop that decides when to move on (Wang et al. 2022).

    L(S)   = sum_c sum_l w_l | m_l(A S_c) - m_l(A T_c) |^2  +  beta L_d(S)
    L_d(S) = - sum_{(x,y) in T} log softmax_k( f_L(A x) . m_L(A S_k) )_y

| symbol | here |
|---|---|
| f_l, m_l | output of block l of the network, flattened; its mean over a set of images |
| w_l | `shallow_weight` for l < L, `deep_weight` for the last block L |
| S_c, T_c | synthetic images of class c, and `real_batch` real ones; T: all the T_c |
| A | one siamese augmentation per class, the same draw for S_c and T_c |
| beta | `discrimination`: real features are told apart by the synthetic class centres m_L(S_k) |

The loop: between image updates the network learns from S until its accuracy on a few real images has moved by more than
`inner_range` within a window; once that accuracy stays within `outer_range` over a window of image updates, the
network has nothing left to say and a new one is drawn.

L_d joins all classes, but only through their centres: its gradient for them comes first, then one class at a time.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import nn

from tinyset.config import Settings
from tinyset.machine import compiled
from tinyset.objectives.base import Losses, Objective
from tinyset.objectives.inputs import Inputs, Transform, add_gradient, learnables, make_network
from tinyset.objectives.learner import Learner
from tinyset.parameterizations.base import Parameterization


class FeatureOptions(Settings):
    shallow_weight: float = Field(0.1, ge=0)
    deep_weight: float = Field(1.0, ge=0)
    discrimination: float = Field(0.01, ge=0)
    real_batch: int = Field(256, ge=1)  # per class
    synthetic_batch: int | None = Field(None, ge=1)  # per class; None: all
    augment: str = "none"
    network_rate: float = Field(0.01, gt=0)
    network_batch: int = Field(256, ge=1)
    query: int = Field(32, ge=1)  # real images per class whose accuracy is watched
    window: int = Field(10, ge=2)  # accuracies looked at together
    inner_range: float = Field(0.03, ge=0)
    outer_range: float = Field(0.04, ge=0)
    inner_limit: int = Field(20, ge=1)  # SGD steps between two image updates at most
    outer_limit: int = Field(50, ge=1)  # image updates of one network at most


class FeatureAlignment(Objective):
    Options = FeatureOptions
    options: FeatureOptions

    def prepare(self, synthetic: Parameterization) -> None:
        self.inputs = Inputs(self.context, synthetic)
        network = make_network(self.context, synthetic, needs="blocks")
        self.learner = Learner(network, rate=self.options.network_rate)
        self.real_blocks = compiled(_blocks, enabled=self.context.compile, note=self.context.progress.note)
        self.accuracies: list[float] = []  # of this network, one per image update

    def step(self, synthetic: Parameterization, step: int) -> Losses:
        self._advance_network(synthetic, step)
        inputs, options, classes = self.inputs, self.options, range(synthetic.classes)
        augment = [inputs.siamese(options.augment, "augment", step, c) for c in classes]
        index = [inputs.synthetic_index(synthetic, c, options.synthetic_batch, "synthetic", step) for c in classes]
        wanted, features, labels = self._real(augment, step)
        with torch.no_grad():
            centres = torch.stack([self._means(synthetic, c, index[c], augment[c])[-1] for c in classes])
        discrimination = discrimination_loss(features, labels, centres.requires_grad_())
        (towards,) = torch.autograd.grad(discrimination, centres)
        per_class = []
        for c in classes:
            means = self._means(synthetic, c, index[c], augment[c])
            loss = alignment_loss(means, wanted[c], options.shallow_weight, options.deep_weight)
            add_gradient(loss + options.discrimination * towards[c] @ means[-1], learnables(synthetic))
            per_class.append(loss.item())
        return Losses(sum(per_class) + options.discrimination * discrimination.item(), tuple(per_class))

    def _means(
        self, synthetic: Parameterization, class_: int, index: torch.Tensor, augment: Transform
    ) -> list[torch.Tensor]:
        """m_l(A S_c) for every block l."""
        images = augment(self.inputs.normalise(synthetic.decode(class_, index)))
        return [block.mean(0) for block in _blocks(self.learner.network, images)]

    @torch.no_grad()
    def _real(
        self, augment: Sequence[Transform], step: int
    ) -> tuple[list[list[torch.Tensor]], torch.Tensor, torch.Tensor]:
        """m_l(A T_c) for every class and block; the last features of all of T and their labels."""
        means, features = [], []
        for c, transform in enumerate(augment):
            images = transform(self.inputs.real_of_class(c, self.options.real_batch, "real", step))
            blocks = self.real_blocks(self.learner.network, images)
            means.append([block.mean(0) for block in blocks])
            features.append(blocks[-1])
        labels = torch.repeat_interleave(torch.arange(len(features)), torch.tensor([len(f) for f in features]))
        return means, torch.cat(features), labels.to(self.inputs.device)

    def _advance_network(self, synthetic: Parameterization, step: int) -> None:
        """The dynamic bi-level loop, entered after every image update: keep, train or replace the network."""
        options = self.options
        if step > 0:
            self.accuracies.append(self._accuracy("query", step))
        settled = spread(self.accuracies, options.window) < options.outer_range
        if step == 0 or settled or len(self.accuracies) >= options.outer_limit:
            self.learner.reset(self.inputs.draw("network", step))
            self.accuracies = []
            return
        moved: list[float] = []
        for i in range(options.inner_limit):
            with torch.no_grad():
                images, targets = self.inputs.synthetic_mixed(
                    synthetic, options.network_batch, "network batch", step, i
                )
                images = self.inputs.siamese(options.augment, "network augment", step, i)(images)
            self.learner.update(images, targets)
            moved.append(self._accuracy("inner query", step, i))
            if options.inner_range < spread(moved, options.window) < float("inf"):
                return

    @torch.no_grad()
    def _accuracy(self, *names: str | int) -> float:
        """Of the network on `query` real images of each class."""
        hits = [
            (self.learner.network(self.inputs.real_of_class(c, self.options.query, *names)).argmax(1) == c)
            for c in range(self.context.real.classes)
        ]
        return torch.cat(hits).double().mean().item()

    def state(self) -> dict[str, Any]:
        return {"network": self.learner.state(), "accuracies": list(self.accuracies)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.learner.restore(state["network"])
        self.accuracies = [float(value) for value in state["accuracies"]]


def _blocks(network: nn.Module, images: torch.Tensor) -> list[torch.Tensor]:
    """f_l: the output of every block, B x F_l."""
    return [block.flatten(1) for block in network.blocks(images)]  # type: ignore[operator]


def alignment_loss(
    means: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor], shallow_weight: float, deep_weight: float
) -> torch.Tensor:
    """sum_l w_l | m_l(S_c) - m_l(T_c) |^2"""
    weights = [shallow_weight] * (len(means) - 1) + [deep_weight]
    return torch.stack([w * (m - t).square().sum() for w, m, t in zip(weights, means, wanted, strict=True)]).sum()


def discrimination_loss(features_NF: torch.Tensor, labels_N: torch.Tensor, centres_CF: torch.Tensor) -> torch.Tensor:
    """L_d: real features classified by the synthetic class centres, summed over real images as in the authors' code."""
    return F.cross_entropy(features_NF @ centres_CF.T, labels_N, reduction="sum")


def spread(values: Sequence[float], window: int) -> float:
    """max - min of the last `window` values; infinite while there are fewer."""
    recent = values[-window:]
    return max(recent) - min(recent) if len(recent) == window else float("inf")
