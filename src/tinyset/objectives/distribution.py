"""Distribution matching: equation (1) of KFS (Lee et al. 2022), after DM (Zhao & Bilen 2023).

    L(Theta, phi) = 1/C sum_c 1/2 | mu_c - 1/(D M) sum_{d,m} g(f(theta_{c,m}; phi_d)) |^2
    mu_c          = 1/N sum_n g(x_{c,n})

| symbol | here |
|---|---|
| g | `Embedder`: a network with random weights, another one each step |
| mu_c | `means[c]`: from the bank (KFS), or of a sampled batch of real images (DM) |
| f(theta_{c,m}; phi_d) | `synthetic.decode(c, index)` |

The gradient with respect to every embedding of class c is the same vector, (mean - mu_c) / (C D M): means come first and
back-propagation can go chunk by chunk.

`batch = n` is the unbiased sampled step, beyond the paper: for A and B of n/2 images each, drawn *independently* from the grid,

    E[ 1/2 (mean_A - mu) . (mean_B - mu) ] = 1/2 |mean - mu|^2,

so its gradient is unbiased at the cost of a mini-batch. One sample used twice, the usual practice, has the bias of equation (2).
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import nn

from tinyset.augment import Siamese
from tinyset.bank import Bank
from tinyset.config import Settings
from tinyset.division import Division, OrderedSum
from tinyset.engine import (
    Cotangent,
    Embedder,
    Summary,
    Transform,
    chunks_of,
    class_gradient,
    even_chunk,
)
from tinyset.files import cache_dir
from tinyset.networks import build, reset
from tinyset.objectives.base import Losses, Objective
from tinyset.objectives.experts import Experts
from tinyset.objectives.stages import Stages
from tinyset.parameterizations.base import Parameterization
from tinyset.processes import team
from tinyset.rng import generator

Targets = Mapping[int, torch.Tensor] | torch.Tensor  # by class


class DistributionOptions(Settings):
    real: Literal["bank", "batch"] = "bank"  # where the real means come from
    networks: int = 100  # K: size of the bank
    stages: list[
        Annotated[int, Field(ge=0)]
    ] = []  # epochs after which the bank's networks are used; []: random weights
    stage_steps: int = Field(20, ge=1)  # training steps of such an epoch
    stage_rate: float = Field(0.03, gt=0)
    stage_batch: int = Field(128, ge=1)
    real_per_class: int | None = None  # real images behind a mean of the bank; None: all
    batch: int | Literal["full"] = "full"  # synthetic images per class and step
    sampling: Literal["pairs", "biased", "subset"] = "pairs"  # what a batch is: ours, the usual one, the paper's remedy
    real_batch: int = 256  # real images per class behind a mean where real = batch
    augment: str = "none"  # a siamese strategy, the same draw for real and synthetic (real = batch)
    scale: Literal["mean", "sum"] = "mean"  # 1/C sum 1/2 |.|^2 (KFS) or sum |.|^2 (DM)


class DistributionMatching(Objective):
    Options = DistributionOptions
    options: DistributionOptions
    divides = "steps"

    def prepare(self, synthetic: Parameterization) -> None:
        context, options = self.context, self.options
        channels, height, width = context.real.image_shape
        network = build(context.network, channels=channels, image_size=(height, width), classes=context.real.classes)
        largest = max(max(len(g) for g in self._groups(n, 0, c)[0]) for c, n in enumerate(synthetic.counts))
        self.embed = Embedder(
            network,
            context.real.stats,
            device=context.device,
            chunk=even_chunk(largest, context.real.image_shape, context.chunk),
            compile=context.compile,
            dtype=next(synthetic.parameters()).dtype,
            precision=context.precision,
            note=context.progress.note,
        )
        held = largest if options.batch == "full" else 2 * largest
        self.one_pass = held * self.embed.activation_bytes(context.real.image_shape) <= context.memory_limit_bytes
        chunks = [len(chunks_of(self._groups(n, 0, c)[0], self.embed.chunk)) for c, n in enumerate(synthetic.counts)]
        self.division = Division.of(team(), chunks)
        if (unused := team().size - sum(chunks)) > 0:
            context.progress.note(f"{unused} processes have nothing to do: a lower --chunk makes more pieces of work.")
        self.bank: Bank | None = None
        if options.real == "bank":
            self.bank = Bank(
                context.real,
                context.network,
                self.embed.with_chunk(even_chunk(1 << 20, context.real.image_shape)),
                root=cache_dir(),
                real_per_class=options.real_per_class,
                weights=self._stages(network) if options.stages else None,
                progress=context.progress,
            )
            self.networks = self.bank.ensure(options.networks, context.stop)

    def _stages(self, network: nn.Module) -> Stages:
        """The experts train a network of their own: that of the engine is frozen."""
        options, own = self.options, copy.deepcopy(network).requires_grad_(True)
        way: dict[str, Any] = {
            "rate": options.stage_rate,
            "batch": options.stage_batch,
            "epoch_steps": options.stage_steps,
        }
        return Stages(Experts(self.context, own, **way, augment="none", seed=0, root=cache_dir()), options.stages)

    def step(self, synthetic: Parameterization, step: int) -> Losses:
        means, transform = self._targets(step)
        classes, mine = synthetic.classes, self.division
        gradients = Gradients(synthetic)
        per_class = torch.zeros(classes, dtype=torch.float64)
        for c in mine.classes:
            mu = means[c].double()
            groups, through = self._groups(synthetic.counts[c], step, c)
            summaries, found = class_gradient(
                self.embed,
                synthetic,
                c,
                groups,
                self._cotangent(mu, len((through or groups)[0]), classes),
                one_pass=self.one_pass,
                transform=transform,
                through=through,
                team=mine.helpers,
            )
            gradients.add(c, found, mine.speaks)
            if mine.speaks:
                per_class[c] = 0.5 * (summaries[0].mean - mu) @ (summaries[-1].mean - mu)
        gradients.finish()
        losses = team().sum_(per_class).tolist()
        total = sum(losses) / classes if self.options.scale == "mean" else 2 * sum(losses)
        return Losses(total, tuple(losses))

    def _cotangent(self, mu: torch.Tensor, count: int, classes: int) -> Cotangent:
        """d L / d embedding for `count` embeddings that share the gradient of one class's mean."""
        weight = 1 / classes if self.options.scale == "mean" else 2.0

        def gradient(_: torch.Tensor, group: int, summaries: Sequence[Summary]) -> torch.Tensor:
            # of a pair (A, B), A's embeddings see B's residual; a single group sees its own, twice
            residual = summaries[len(summaries) - 1 - group].mean - mu
            return weight * residual / (count * len(summaries))

        return gradient

    def _groups(self, count: int, step: int, class_: int) -> tuple[list[torch.Tensor], list[torch.Tensor] | None]:
        """The samples of a class's grid at this step, and what to back-propagate through (None: the same)."""
        batch, sampling = self.options.batch, self.options.sampling
        everything = torch.arange(count)
        if batch == "full" or batch >= 2 * count:
            return [everything], None
        draw = generator(self.context.seed, "synthetic sample", step, class_)
        if sampling == "pairs":
            half = max(1, batch // 2)
            return [torch.randperm(count, generator=draw)[:half] for _ in range(2)], None
        sample = torch.randperm(count, generator=draw)[:batch]
        return ([sample], None) if sampling == "biased" else ([everything], [sample])

    def _targets(self, step: int) -> tuple[Targets, Transform | None]:
        """The real means F of our classes under this step's network, whose weights are now in `self.embed`."""
        seed, real = self.context.seed, self.context.real
        if self.bank is not None:
            turn, at = divmod(step, self.networks)
            order = torch.randperm(self.networks, generator=generator(seed, "network order", turn))
            return self.bank.load(int(order[at])), None
        reset(self.embed.network, generator(seed, "network", step))
        transform = self._augmentation(step)
        means = {}
        for c in self.division.classes:
            members = real.by_class[c]
            order = torch.randperm(len(members), generator=generator(seed, "real sample", step, c))
            images = real.images[members[order[: self.options.real_batch]]].to(self.context.device)
            pixels = images.to(self.embed.dtype) / 255
            means[c] = self._mean_embedding(pixels if transform is None else transform(pixels))
        return means, transform

    def _augmentation(self, step: int) -> Transform | None:
        """One siamese draw per step, the same for real and synthetic images; it acts on normalised pixels."""
        if self.options.augment == "none":
            return None
        siamese = Siamese(self.options.augment, mirror=self.context.mirror)
        draw = siamese.draw(generator(self.context.seed, "augment", step))
        embed = self.embed
        return lambda pixels: embed.pixels(siamese.apply(embed.normalised(pixels), draw))

    @torch.no_grad()
    def _mean_embedding(self, images: torch.Tensor) -> torch.Tensor:
        total = sum(self.embed(chunk).sum(0, dtype=torch.float64) for chunk in images.split(self.embed.chunk))
        assert isinstance(total, torch.Tensor)
        return total / len(images)


class Gradients:
    """The gradients of the classes on their way into `.grad`: a class's own rows at once, what all share in float64."""

    def __init__(self, synthetic: Parameterization) -> None:
        self.synthetic = synthetic
        self.learned = {name: p for name, p in synthetic.named_parameters() if p.requires_grad}
        self.shared = {name: p for name, p in self.learned.items() if name not in synthetic.rows(0)}
        self.sum = OrderedSum(team(), synthetic.classes, list(self.shared.values()))

    def add(self, class_: int, gradients: Sequence[torch.Tensor], speaks: bool) -> None:
        """What `class_gradient` gave. Of the processes that have it one `speaks`."""
        found = dict(zip(self.learned, gradients, strict=True))
        for name, rows in self.synthetic.rows(class_).items():
            if name in found:
                _add(self.learned[name], rows, found[name])
        if speaks:
            self.sum.add(class_, [found[name] for name in self.shared])

    def finish(self) -> None:
        for parameter, gradient in zip(self.shared.values(), self.sum.total(), strict=True):
            _add(parameter, slice(None), gradient)


def _add(parameter: torch.nn.Parameter, rows: slice, gradient: torch.Tensor) -> None:
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    parameter.grad[rows] += gradient.to(parameter.dtype)
