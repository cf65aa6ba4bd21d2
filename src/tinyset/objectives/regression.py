"""Ridge regression on networks that learn from the synthetic set, after FRePo (Zhou, Nezhadarya & Ba 2022): beyond the paper.

    L(S) = 1/(2T) | y_t - phi_t W |^2,        W = (phi_s' phi_s + rho 1)^-1 phi_s' y_s

| symbol | here |
|---|---|
| s | synthetic images, `synthetic_batch` of them or all, mirrored at random where the data may be, and `context` more |
| t, T | `real_batch` real images, mirrored likewise |
| y | labels as centred one-hot rows, e_c - 1/C |
| phi | [features of the network over sqrt F, 1] |
| rho | `regularisation` times the mean of the diagonal of phi_s' phi_s, the 1 left out |

Where KIP asks random networks, these have learned from S itself, as the networks of an evaluation will have: `pool`
networks of staggered ages take turns. In its turn a network takes `pool_steps` steps of SGD on S and is then looked
through; when it has taken `pool_age` steps, a new random one takes its place.

Of a large set a step moves only `synthetic_batch` images. Asked to do without the others they would all become typical (400
of 1,040: 52 % where all of them gave 55 %, `records/validation`); `context` others stand beside them unmoved.

The first `matching_steps` steps are plain distribution matching (`distribution.py`) on a bank of `networks` random networks,
with `matching_rate` times the rates: the codes come from real images that happened to be chosen, and matching spreads them
over their classes faster than the regression would.

The regression wants to generalise, not to interpolate: with rho of the size of the features' own energy it predicts as well
as the network it looks through, with a thousandth of it worse than nothing (`records/validation`), and learning to please
that would teach the wrong thing.
"""

from collections.abc import Mapping
from typing import Any, Literal

import torch
from pydantic import Field

from tinyset.augment import augment_batch, cutmix, mirrored
from tinyset.config import Settings
from tinyset.engine import Embedder, even_chunk
from tinyset.objectives.base import Losses, Objective, Phase
from tinyset.objectives.distribution import DistributionMatching, DistributionOptions
from tinyset.objectives.inputs import Inputs, make_network
from tinyset.objectives.kernel import centred, learn_through, plus_diagonal, scaled
from tinyset.objectives.learner import Learner, compiled_loss
from tinyset.parameterizations.base import Parameterization
from tinyset.rng import Name
from tinyset.whitening import fit


class RegressionOptions(Settings):
    real_batch: int = Field(1000, ge=1)  # T
    synthetic_batch: int | None = Field(None, ge=2)  # of a step, over all classes; None: all
    context: int = Field(0, ge=0)  # synthetic images of the regression beside those that are moved by a step
    regularisation: float = Field(1.0, gt=0)
    pool: int = Field(8, ge=1)  # networks
    pool_age: int = Field(300, ge=1)  # steps a network learns before it is replaced
    pool_steps: int = Field(2, ge=0)  # between two looks through a network
    pool_batch: int = Field(256, ge=1)
    pool_rate: float = Field(0.01, gt=0)
    pool_cutmix: float = Field(0.0, ge=0, le=1)  # share of the batches a network learns from that are mixed
    matching_steps: int = Field(0, ge=0)
    matching_rate: float = Field(5.0, gt=0)
    whiten: float = Field(0.0, ge=0)  # reg of the filter that real and synthetic images go through; 0: none
    networks: int = Field(60, ge=1)  # these three of the matching
    real_per_class: int | None = Field(None, ge=1)
    batch: int | Literal["full"] = "full"


class Regression(Objective):
    Options = RegressionOptions
    options: RegressionOptions

    def prepare(self, synthetic: Parameterization) -> None:
        context, options = self.context, self.options
        if options.whiten:
            self.whitening = fit(context.real, options.whiten)
        self.inputs = Inputs(context, synthetic, self.whitening)
        student = make_network(context, synthetic, needs="features")
        self.learner = Learner(
            student, rate=options.pool_rate, momentum=0.9, decay=5e-4, loss=compiled_loss(context, student)
        )
        count = min(options.synthetic_batch or sum(synthetic.counts), sum(synthetic.counts))
        self.embed = Embedder(
            make_network(context, synthetic),
            context.real.stats,
            device=context.device,
            chunk=even_chunk(count, context.real.image_shape, context.chunk),
            compile=context.compile,
            dtype=self.inputs.dtype,
            note=context.progress.note,
        )
        self.one_pass = count * self.embed.activation_bytes(context.real.image_shape) <= context.memory_limit_bytes
        self.pool = [self._newborn(k, 0) for k in range(options.pool)]
        self.matching: DistributionMatching | None = None
        if options.matching_steps:
            bank = {"networks": options.networks, "real_per_class": options.real_per_class, "batch": options.batch}
            self.matching = DistributionMatching(context, DistributionOptions.parse(bank, "matching"))
            self.matching.prepare(synthetic)

    def phase(self, step: int, steps: int) -> Phase:
        first = min(self.options.matching_steps, steps)
        return Phase(0, first, self.options.matching_rate) if step < first else Phase(first, steps)

    def _newborn(self, k: int, life: int) -> dict[str, Any]:
        """The k-th place of the pool with its `life`-th network. First lives end one after the other: ages stay mixed."""
        self.learner.reset(self.inputs.draw("pool network", k, life))
        last = self.options.pool_age
        if life == 0:
            last = -(-last * (k + 1) // self.options.pool)
        return {"life": life, "age": 0, "last": last, "network": self.learner.state()}

    def step(self, synthetic: Parameterization, step: int) -> Losses:
        inputs, options = self.inputs, self.options
        if self.matching is not None and step < options.matching_steps:
            return self.matching.step(synthetic, step)
        k = step % options.pool
        images, targets = inputs.synthetic_mixed(synthetic, options.synthetic_batch, "synthetic", step)
        self._learn(k, images.detach(), targets.detach(), step)
        real, labels = inputs.real_mixed(options.real_batch, "real", step)
        phi_t, y_t = self._seen(real, "real mirror", step), centred(labels.double())
        phi_c, y_c = self._beside(synthetic, step) if options.context else (phi_t[:0], y_t[:0])
        images = self._mirrored(images, "synthetic mirror", step)

        def loss_of(phi_s: torch.Tensor, y_s: torch.Tensor) -> torch.Tensor:
            s, y = torch.cat([phi_s, phi_c]), torch.cat([centred(y_s), y_c])
            return ridge_loss(phi_t, y_t, s, y, options.regularisation)

        chunk = self.embed.chunk
        loss = learn_through(self._phi, images, targets, loss_of, synthetic, chunk=chunk, one_pass=self.one_pass)
        return Losses(loss)

    def _phi(self, images: torch.Tensor) -> torch.Tensor:
        return scaled(self.embed(self.embed.pixels(images)))

    def _mirrored(self, images: torch.Tensor, *coins: Name) -> torch.Tensor:
        """At random, where the data may be."""
        return mirrored(images, self.inputs.draw(*coins)) if self.context.mirror else images

    @torch.no_grad()
    def _seen(self, images: torch.Tensor, *coins: Name) -> torch.Tensor:
        """phi of images that are not moved."""
        images = self._mirrored(images, *coins)
        return torch.cat([self._phi(part) for part in images.split(self.embed.chunk)]).double()

    @torch.no_grad()
    def _beside(self, synthetic: Parameterization, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """phi and y of the synthetic images that stand beside those of the step."""
        images, targets = self.inputs.synthetic_mixed(synthetic, self.options.context, "context", step)
        return self._seen(images, "context mirror", step), centred(targets.double())

    def _learn(self, k: int, images: torch.Tensor, targets: torch.Tensor, step: int) -> None:
        """Network k, a few steps older, is the one that is looked through."""
        options, own = self.options, self.pool[k]
        if own["age"] >= own["last"]:
            own = self._newborn(k, own["life"] + 1)
        self.learner.restore(own["network"])
        for i in range(options.pool_steps):
            draw = self.inputs.draw("pool batch", step, i)
            index = torch.randperm(len(images), generator=draw)[: options.pool_batch]
            batch = augment_batch(images[index], "flip-shift", draw, self.context.mirror)
            batch, wanted = cutmix(batch, targets[index], draw, options.pool_cutmix)
            self.learner.update(batch, wanted)
        self.pool[k] = {**own, "age": own["age"] + options.pool_steps, "network": self.learner.state()}
        self.embed.network.load_state_dict(self.learner.network.state_dict())

    def state(self) -> dict[str, Any]:
        return {"pool": self.pool}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.pool = [dict(own) for own in state["pool"]]


def ridge_loss(
    phi_t: torch.Tensor, y_t: torch.Tensor, phi_s: torch.Tensor, y_s: torch.Tensor, regularisation: float
) -> torch.Tensor:
    """1/(2T) | y_t - [phi_t 1] W |^2"""
    s, t = _with_one(phi_s), _with_one(phi_t)
    return 0.5 * (y_t - t @ ridge_weights(s, y_s, regularisation)).square().sum() / len(y_t)


def ridge_weights(s: torch.Tensor, y: torch.Tensor, regularisation: float) -> torch.Tensor:
    """W = (s's + rho 1)^-1 s'y = s'(s s' + rho 1)^-1 y, whichever system is smaller."""
    images, features = s.shape
    if images < features:
        rho = regularisation * s[:, :-1].square().sum(0).mean()
        return s.T @ torch.linalg.solve(plus_diagonal(s @ s.T, rho), y)
    second = s.T @ s
    rho = regularisation * second.diagonal()[:-1].mean()
    return torch.linalg.solve(plus_diagonal(second, rho), s.T @ y)


def _with_one(phi: torch.Tensor) -> torch.Tensor:
    return torch.cat([phi, phi.new_ones(len(phi), 1)], 1)
