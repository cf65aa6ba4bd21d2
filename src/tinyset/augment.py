"""Augmentation in plain torch on normalised tensors: differentiable, batched, drawn from explicit generators.

Differentiable siamese augmentation (DSA; Zhao & Bilen 2021): one family of the strategy is drawn per call. In matching
its parameters are the same for every sample, so the real and the synthetic batch see one transform (`Siamese`); in
training each sample has its own parameters (`augment_batch`). Both run through the same functions: a parameter is a
tensor of one number or of B. Zero fill is zero after normalisation, as in the papers.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F

from tinyset.errors import UserError

Strategy = Literal["none", "flip-shift", "dsa", "dsa-nocutout"]

SHIFT = 0.125  # of the side: 4 pixels at 32
SCALE = 1.2
ROTATE_DEGREES = 15.0
CUTOUT = 0.5  # of the side
UNIFORMS = 3  # numbers a family needs at most


@dataclass(frozen=True)
class Draw:
    """What was drawn: a family and its parameters as uniform numbers in [0, 1), S x 3; S is 1 (siamese) or a batch."""

    family: str
    uniforms: torch.Tensor


class Siamese:
    """DSA. `draw` once, `apply` to as many batches as should see the same transform."""

    def __init__(self, strategy: str = "color_crop_cutout_flip_scale_rotate", mirror: bool = True) -> None:
        families = [name for name in strategy.split("_") if name]
        for name in families:
            if name not in FAMILIES:
                raise UserError(f"Unknown augmentation {name!r} in {strategy!r}: choose among {', '.join(FAMILIES)}.")
        self.families = tuple(name for name in families if mirror or name != "flip")

    def draw(self, generator: torch.Generator, samples: int = 1) -> Draw:
        """One family; its parameters for the whole batch, or for each of `samples`."""
        if not self.families:
            return Draw("none", torch.zeros(samples, UNIFORMS))
        family = self.families[int(torch.randint(len(self.families), (1,), generator=generator))]
        return Draw(family, torch.rand(samples, UNIFORMS, generator=generator))

    def apply(self, images: torch.Tensor, draw: Draw) -> torch.Tensor:
        if draw.family == "none":
            return images
        uniforms = draw.uniforms.to(device=images.device, dtype=images.dtype)
        return FAMILIES[draw.family](images, *uniforms.unbind(1))


def augment_batch(
    images: torch.Tensor, strategy: Strategy, generator: torch.Generator, mirror: bool = True
) -> torch.Tensor:
    """A training batch with parameters drawn per sample."""
    if strategy == "none":
        return images
    if strategy == "flip-shift":
        uniforms = torch.rand(len(images), UNIFORMS, generator=generator).to(images.device, images.dtype)
        return _crop(_flip(images, uniforms[:, 2]) if mirror else images, uniforms[:, 0], uniforms[:, 1])
    families = {"dsa": "color_crop_cutout_flip_scale_rotate", "dsa-nocutout": "color_crop_flip_scale_rotate"}
    if strategy not in families:
        raise UserError(f"Unknown augmentation {strategy!r}: choose none, flip-shift, dsa or dsa-nocutout.")
    siamese = Siamese(families[strategy], mirror)
    return siamese.apply(images, siamese.draw(generator, len(images)))


def mirrored(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Each image left-right mirrored or not, by a coin of its own."""
    return _flip(images, torch.rand(len(images), generator=generator).to(images.device, images.dtype))


def cutmix(
    images: torch.Tensor, targets_BC: torch.Tensor, generator: torch.Generator, probability: float = 0.5
) -> tuple[torch.Tensor, torch.Tensor]:
    """CutMix (Yun et al. 2019): a box from a permuted batch, its area uniform in [0, 1]; targets mixed by area.

    One box and one permutation per batch; with probability 1 - `probability` the batch is left alone.
    """
    dice, area, at_y, at_x = torch.rand(4, generator=generator, dtype=torch.float64).tolist()
    order = torch.randperm(len(images), generator=generator).to(images.device)
    if dice >= probability:
        return images, targets_BC
    height, width = images.shape[2:]
    top, bottom = _span(at_y, height, math.sqrt(area))
    left, right = _span(at_x, width, math.sqrt(area))
    mixed = images.clone()
    mixed[:, :, top:bottom, left:right] = images[order, :, top:bottom, left:right]
    share = (bottom - top) * (right - left) / (height * width)
    return mixed, (1 - share) * targets_BC + share * targets_BC[order]


def _span(centre: float, side: int, ratio: float) -> tuple[int, int]:
    middle, half = int(centre * side), int(ratio * side) // 2
    return max(middle - half, 0), min(middle + half, side)


# The families: (images B x C x H x W, three uniform tensors of length 1 or B) -> images.


def _color(images: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    images = images + (_per_image(a) - 0.5)  # brightness
    grey = images.mean(1, keepdim=True)
    images = (images - grey) * (_per_image(b) * 2) + grey  # saturation
    mean = images.mean((1, 2, 3), keepdim=True)
    return (images - mean) * (_per_image(c) + 0.5) + mean  # contrast


def _crop(images: torch.Tensor, a: torch.Tensor, b: torch.Tensor, _: torch.Tensor | None = None) -> torch.Tensor:
    """Shift by up to `SHIFT` of the side, zero fill."""
    height, width = images.shape[2:]
    pad_y, pad_x = int(height * SHIFT + 0.5), int(width * SHIFT + 0.5)
    padded = F.pad(images, (pad_x, pad_x, pad_y, pad_y))
    dy, dx = _integer(a, 2 * pad_y + 1), _integer(b, 2 * pad_x + 1)
    if len(dy) == 1:
        top, left = int(dy), int(dx)
        return padded[:, :, top : top + height, left : left + width]
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # a view: B x C x shifts x shifts x H x W
    return windows[torch.arange(len(images), device=images.device), :, dy, dx]


def _cutout(images: torch.Tensor, a: torch.Tensor, b: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    """Zero in a square of half the side, cut off at the borders."""
    inside = [_inside(u, side, images.device) for u, side in ((a, images.shape[2]), (b, images.shape[3]))]
    hole = inside[0][:, None, :, None] & inside[1][:, None, None, :]
    return images.masked_fill(hole, 0)


def _inside(uniform: torch.Tensor, side: int, device: torch.device) -> torch.Tensor:
    size = int(side * CUTOUT + 0.5)
    start = _integer(uniform, side + 1 - size % 2)[:, None] - size // 2
    at = torch.arange(side, device=device)
    return (at >= start) & (at < start + size)


def _flip(images: torch.Tensor, a: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
    return torch.where(_per_image(a) < 0.5, images.flip(3), images)


def _scale(images: torch.Tensor, a: torch.Tensor, b: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    sx, sy = (u * (SCALE - 1 / SCALE) + 1 / SCALE for u in (a, b))
    zero = torch.zeros_like(sx)
    return _affine(images, torch.stack([sx, zero, zero, zero, sy, zero], 1))


def _rotate(images: torch.Tensor, a: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
    angle = (a * 2 - 1) * math.radians(ROTATE_DEGREES)
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    return _affine(images, torch.stack([cos, -sin, zero, sin, cos, zero], 1))


def _affine(images: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    theta = rows.reshape(-1, 2, 3).expand(len(images), 2, 3)
    grid = F.affine_grid(theta, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, align_corners=False)


def _per_image(uniform: torch.Tensor) -> torch.Tensor:
    return uniform[:, None, None, None]


def _integer(uniform: torch.Tensor, count: int) -> torch.Tensor:
    """Uniform in 0 .. count-1. Rounding may lift u * count to count, hence the clamp."""
    return (uniform * count).long().clamp_max(count - 1)


Family = Callable[..., torch.Tensor]
FAMILIES: dict[str, Family] = {
    "color": _color,
    "crop": _crop,
    "cutout": _cutout,
    "flip": _flip,
    "scale": _scale,
    "rotate": _rotate,
}
