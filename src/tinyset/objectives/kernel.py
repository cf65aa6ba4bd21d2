"""Kernel ridge regression, KIP (Nguyen et al. 2021): the synthetic set as the support of a regression on the real one.

    L(S) = 1/(2T) | y_t - K_ts (K_ss + reg tr(K_ss)/n 1)^-1 y_s |^2,          K_ab = phi(a) phi(b)'

| symbol | here |
|---|---|
| s, n | synthetic images, and how many |
| t, T | real images: a batch (`real` = batch), or all of them through their moments (moments) |
| y | labels as centred one-hot rows, e_c - 1/C; y_s is learned where the synthetic set learns its labels |
| phi | `kernel` = features: the last-layer features of a random network over sqrt F; ntk: its tangents (`ntk.py`) |
| reg | `regularisation`: 1e-6 of the mean of the kernel's diagonal |

Kernels, solve and loss are float64. With A = phi(s)' (K_ss + ...)^-1 y_s (F x C) the sum over real images needs only
Q = phi(t)' y_t and G = phi(t)' phi(t), which are stored once per network (`moments.py`):

    L = 1/(2T) ( |y_t|^2 - 2 <A, Q> + <A, G A> )

Each step has another random network. phi(s) is computed in chunks: the gradient for phi(s) comes first, then each chunk
is computed again with its graph.
"""

from collections.abc import Callable
from typing import Literal

import torch
from pydantic import Field

from tinyset.config import Settings
from tinyset.engine import Embedder, even_chunk
from tinyset.errors import UserError
from tinyset.files import cache_dir
from tinyset.networks import reset
from tinyset.objectives.base import Losses, Objective
from tinyset.objectives.inputs import Inputs, add_gradient, learnables, make_network
from tinyset.objectives.moments import Moment, Moments
from tinyset.objectives.ntk import directions, tangents
from tinyset.parameterizations.base import Parameterization
from tinyset.parameterizations.labels import learn_labels

Feature = Callable[[torch.Tensor], torch.Tensor]  # normalised images -> phi, B x F
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # phi(s), y_s -> L
CHUNK = 64  # images whose graph is alive at once


class KernelOptions(Settings):
    kernel: Literal["features", "ntk"] = "features"
    real: Literal["batch", "moments"] = "batch"
    real_batch: int = Field(500, ge=1)  # T where real = batch
    real_per_class: int | None = Field(None, ge=1)  # real images behind the moments; None: all
    networks: int | None = Field(None, ge=1)  # how many random networks take turns; None: another one each step
    synthetic_batch: int | None = Field(None, ge=1)  # n of a step; None: all
    regularisation: float = Field(1e-6, gt=0)
    learn_labels: bool = False
    outputs: Literal["one", "all"] = "one"  # of the network, behind the ntk
    augment: str = "none"


class KernelRegression(Objective):
    Options = KernelOptions
    options: KernelOptions

    def prepare(self, synthetic: Parameterization) -> None:
        context, options = self.context, self.options
        if options.learn_labels:
            learn_labels(synthetic)
        self.inputs = Inputs(context, synthetic)
        self.network = make_network(context, synthetic, needs="features" if options.kernel == "features" else None)
        self.network.requires_grad_(False)
        self.networks = options.networks
        self.moments: Moments | None = None
        if options.real == "moments":
            if options.kernel == "ntk" or options.augment != "none":
                raise UserError(
                    "real = moments needs kernel = features and augment = none: moments are of plain features."
                )
            chunk = even_chunk(1 << 20, context.real.image_shape, context.chunk)
            self.moments = Moments(
                context.real,
                context.network,
                Embedder(
                    self.network,
                    context.real.stats,
                    device=context.device,
                    chunk=chunk,
                    compile=context.compile,
                    dtype=self.inputs.dtype,
                    note=context.progress.note,
                ),
                root=cache_dir(),
                real_per_class=options.real_per_class,
                keep_bytes=context.memory_limit_bytes // 2,
                progress=context.progress,
            )
            self.networks = self.moments.ensure(options.networks or 20, context.stop)

    def step(self, synthetic: Parameterization, step: int) -> Losses:
        """Draw the network, look at the real images under it, learn."""
        options, inputs = self.options, self.inputs
        k = step if self.networks is None else step % self.networks
        reg = options.regularisation
        if self.moments is not None:
            moment = self.moments.load(k)
            return self._learn(synthetic, step, self._phi(step), lambda s, y: moments_loss(moment, s, y, reg))
        reset(self.network, inputs.draw("network", k))
        phi = self._phi(step)
        images, targets = inputs.real_mixed(options.real_batch, "real", step)
        with torch.no_grad():
            phi_t = torch.cat([phi(part) for part in images.split(CHUNK)]).double()
        y_t = centred(targets.double())
        return self._learn(synthetic, step, phi, lambda s, y: batch_loss(phi_t, y_t, s, y, reg))

    def _phi(self, step: int) -> Feature:
        """phi under this step's network; augmentation is one draw for both kinds of images."""
        augment = self.inputs.siamese(self.options.augment, "augment", step)
        if self.options.kernel == "ntk":
            draw = self.inputs.draw("outputs", step) if self.options.outputs == "one" else None
            outputs = directions(self.context.real.classes, draw, self.inputs.mean)
            return lambda images: tangents(self.network, augment(images), outputs)
        return lambda images: scaled(self.network.features(augment(images)))  # type: ignore[operator]

    def _learn(self, synthetic: Parameterization, step: int, phi: Feature, loss_of: Loss) -> Losses:
        images, targets = self.inputs.synthetic_mixed(synthetic, self.options.synthetic_batch, "support", step)
        one_pass = len(images) <= CHUNK
        loss = learn_through(
            phi, images, targets, lambda s, y: loss_of(s, centred(y)), synthetic, chunk=CHUNK, one_pass=one_pass
        )
        return Losses(loss)


def learn_through(
    phi: Feature,
    images: torch.Tensor,
    targets: torch.Tensor,
    loss_of: Loss,
    synthetic: Parameterization,
    *,
    chunk: int,
    one_pass: bool,
) -> float:
    """The loss, and its gradient added to the parameters of `synthetic`: back to phi(s) and y_s, then to images.

    One pass keeps the graphs of all chunks; two compute each chunk again.
    """
    parts = [part.detach().requires_grad_() for part in images.split(chunk)]
    with torch.set_grad_enabled(one_pass):
        rows = [phi(part) for part in parts]
    phi_s = torch.cat(rows).detach().double().requires_grad_()
    y_s = targets.detach().double().requires_grad_()
    loss = loss_of(phi_s, y_s)
    toward_phi, toward_y = torch.autograd.grad(loss, [phi_s, y_s])
    toward_images = []
    for part, row, direction in zip(parts, rows, toward_phi.split(chunk), strict=True):
        row = row if row.requires_grad else phi(part)
        toward_images.append(torch.autograd.grad(row, part, direction.to(row.dtype))[0])
    surrogate = (images * torch.cat(toward_images)).sum()
    if targets.requires_grad:
        surrogate = surrogate + (targets * toward_y.to(targets.dtype)).sum()
    add_gradient(surrogate, learnables(synthetic))
    return loss.item()


def batch_loss(
    phi_t: torch.Tensor, y_t: torch.Tensor, phi_s: torch.Tensor, y_s: torch.Tensor, regularisation: float
) -> torch.Tensor:
    """1/(2T) | y_t - K_ts (K_ss + reg)^-1 y_s |^2"""
    predicted = (phi_t @ phi_s.T) @ dual_weights(phi_s, y_s, regularisation)
    return 0.5 * (y_t - predicted).square().sum() / len(y_t)


def moments_loss(moment: Moment, phi_s: torch.Tensor, y_s: torch.Tensor, regularisation: float) -> torch.Tensor:
    """1/(2T) ( |y_t|^2 - 2 <A, Q> + <A, G A> ), the same sum over all real images behind the moments."""
    features, classes = phi_s.shape[1], y_s.shape[1]
    total = float(moment.counts_C.sum())
    sums_FC = moment.sums_CF.double().T / features**0.5
    q = sums_FC - sums_FC.sum(1, keepdim=True) / classes
    a = phi_s.T @ dual_weights(phi_s, y_s, regularisation)
    squares = (a * (moment.second_FF.double() @ a)).sum() / features
    return 0.5 * ((1 - 1 / classes) - 2 * (a * q).sum() / total + squares / total)


def dual_weights(phi_s: torch.Tensor, y_s: torch.Tensor, regularisation: float) -> torch.Tensor:
    """(K_ss + reg tr(K_ss)/n 1)^-1 y_s"""
    k_ss = phi_s @ phi_s.T
    return torch.linalg.solve(plus_diagonal(k_ss, regularisation * k_ss.diagonal().mean()), y_s)


def plus_diagonal(square: torch.Tensor, ridge: torch.Tensor) -> torch.Tensor:
    """square + ridge 1"""
    return square + ridge * torch.eye(len(square), dtype=square.dtype, device=square.device)


def centred(targets: torch.Tensor) -> torch.Tensor:
    """One-hot rows, or learned ones, minus 1/C."""
    return targets - 1 / targets.shape[1]


def scaled(features: torch.Tensor) -> torch.Tensor:
    return features / features.shape[1] ** 0.5
