"""Whitening by a small filter: what neighbouring pixels and colours of real images have in common is taken out of all images.

    y = w * x,      w = the middle rows of (K + reg mean(diag K) 1)^(-1/2), so scaled that y varies as much as x

| symbol | here |
|---|---|
| x, y | a normalised image, its borders mirrored outwards, and the same image whitened |
| K | covariance of the k x k patches of the real images, all colours of a patch in one row |
| reg | .1: directions in which real images hardly vary are not blown up |

The ZCA of KIP and MTT (`parameterizations/zca.py`) with one local filter for a matrix of all pixels: C C k k numbers,
225 of them for colours, where that has 3,072 x 3,072. Networks learn faster from whitened images: docs/methods/kfr.md.
"""

import math

import torch
import torch.nn.functional as F

from tinyset.data.imageset import ImageSet

Filter = tuple[tuple[tuple[tuple[float, ...], ...], ...], ...]  # C x C x k x k

SIDE = 5  # k: 225 numbers for colours; 9 did no better (records/validation)
IMAGES, STRIDE = 2000, 4  # patches come from so many images, evenly spread over the set, and every so many pixels
DIGITS = 6  # a filter is stored as text


@torch.no_grad()
def fit(real: ImageSet, regularisation: float) -> Filter:
    """The filter of these images, summed in float64: about a second for 32 x 32 RGB."""
    channels, height, width = real.image_shape
    side = min(SIDE, (min(height, width) - 1) // 2 * 2 + 1)
    index = torch.linspace(0, len(real) - 1, min(IMAGES, len(real))).long()
    mean, std = (torch.tensor(values).view(1, -1, 1, 1) for values in real.stats)
    images = (real.images[index].float() / 255 - mean) / std
    rows = torch.zeros(channels * side * side, channels * side * side, dtype=torch.float64)
    count = 0
    for part in images.split(500):
        patches = F.unfold(part, side, stride=STRIDE).transpose(1, 2).flatten(0, 1).double()
        rows += patches.T @ patches
        count += len(patches)
    values, basis = torch.linalg.eigh(rows / count)
    floor = regularisation * values.mean()
    whole = basis @ torch.diag((values.clamp_min(0) + floor).rsqrt()) @ basis.T
    middle = torch.arange(channels) * side * side + side * side // 2
    kernel = whole[middle].view(channels, channels, side, side).float()
    kernel = kernel / (whitened(images, kernel).std() / images.std())
    return tuple(
        tuple(tuple(tuple(float(f"{v:.{DIGITS}g}") for v in row) for row in plane) for plane in group)
        for group in kernel.tolist()
    )


def numbers(kernel: Filter) -> int:
    """How many there are."""
    return sum(len(row) for group in kernel for plane in group for row in plane)


def check(kernel: Filter, image_shape: tuple[int, int, int]) -> None:
    """ValueError where a stranger's filter is not one for images of this shape."""
    channels, height, width = image_shape
    side = len(kernel[0][0]) if kernel and kernel[0] else 0
    if side % 2 == 0 or side // 2 >= min(height, width):
        raise ValueError(f"whitening needs an odd side below that of the images, not {side}")
    rows = [row for group in kernel for plane in group for row in plane]
    square = len(kernel) == channels and all(len(group) == channels for group in kernel)
    if not square or len(rows) != channels * channels * side or any(len(row) != side for row in rows):
        raise ValueError(f"whitening needs {channels} x {channels} x {side} x {side} numbers")
    if not all(math.isfinite(value) for row in rows for value in row):
        raise ValueError("whitening needs finite numbers")


def whitened(images: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
    """Normalised images B x C x H x W through the filter; channels-last, ten times as fast on its way back."""
    reach = kernel.shape[-1] // 2
    wide = F.pad(images, (reach,) * 4, mode="reflect").contiguous(memory_format=torch.channels_last)
    return F.conv2d(wide, kernel.to(images))
