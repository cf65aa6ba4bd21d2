"""Test images made harder, the same way every time: noise, blur, contrast, shift at several strengths.

A corruption is a name such as `noise:0.1`. The draws depend on the name alone, so every set and every seed of a
training is tested on the same corrupted images.
"""

import torch
import torch.nn.functional as F

from tinyset.errors import UserError
from tinyset.rng import generator

STRENGTHS = {
    "noise": (0.05, 0.1, 0.2),  # standard deviation, of the pixel range
    "blur": (0.5, 1.0, 2.0),  # standard deviation in pixels of a 32-pixel image
    "contrast": (0.75, 0.5, 0.25),  # factor about the mean of the image
    "shift": (0.0625, 0.125, 0.25),  # of the side, along both axes, border pixels repeated
}
CHUNK = 1024


def list_corruptions() -> list[str]:
    return [f"{kind}:{strength:g}" for kind, strengths in STRENGTHS.items() for strength in strengths]


def corrupt(images: torch.Tensor, name: str) -> torch.Tensor:
    """uint8 images N x C x H x W under the corruption `name`; `clean` changes nothing."""
    if name == "clean":
        return images
    kind, strength = _parse(name)
    draws = generator(0, "corruption", name)
    parts = []
    for chunk in images.split(CHUNK):
        pixels = _KINDS[kind](chunk.float() / 255, strength, draws)
        parts.append((pixels * 255).round().clamp(0, 255).to(torch.uint8))
    return torch.cat(parts) if parts else images


def _parse(name: str) -> tuple[str, float]:
    kind, _, text = name.partition(":")
    try:
        strength = float(text)
    except ValueError:
        strength = -1.0
    if kind not in _KINDS or not 0 < strength < 100:
        raise UserError(
            f"Unknown corruption {name!r}: write KIND:STRENGTH, for example {', '.join(list_corruptions()[::3])}."
        )
    return kind, strength


def _noise(images: torch.Tensor, strength: float, draws: torch.Generator) -> torch.Tensor:
    return images + strength * torch.randn(images.shape, generator=draws)


def _blur(images: torch.Tensor, strength: float, _: torch.Generator) -> torch.Tensor:
    """Gaussian, one axis after the other; strength scales with the side so that 64 pixels blur like 32."""
    channels, height, width = images.shape[1:]
    for axis, side in ((2, height), (3, width)):
        sigma = strength * side / 32
        radius = min(max(1, round(3 * sigma)), side - 1)
        at = torch.arange(-radius, radius + 1, dtype=torch.float32)
        kernel = torch.exp(-at.square() / (2 * sigma**2))
        kernel = (kernel / kernel.sum()).reshape((-1, 1) if axis == 2 else (1, -1))
        weights = kernel.expand(channels, 1, *kernel.shape)
        pad = (0, 0, radius, radius) if axis == 2 else (radius, radius, 0, 0)
        images = F.conv2d(F.pad(images, pad, mode="reflect"), weights, groups=channels)
    return images


def _contrast(images: torch.Tensor, strength: float, _: torch.Generator) -> torch.Tensor:
    mean = images.mean((1, 2, 3), keepdim=True)
    return (images - mean) * strength + mean


def _shift(images: torch.Tensor, strength: float, draws: torch.Generator) -> torch.Tensor:
    """By `strength` of the side, up or down and left or right, drawn for each image."""
    height, width = images.shape[2:]
    dy, dx = max(1, round(strength * height)), max(1, round(strength * width))
    padded = F.pad(images, (dx, dx, dy, dy), mode="replicate")
    windows = padded.unfold(2, height, 2 * dy).unfold(3, width, 2 * dx)  # a view of the four corners
    corner = torch.randint(2, (2, len(images)), generator=draws)
    return windows[torch.arange(len(images)), :, corner[0], corner[1]]


_KINDS = {"noise": _noise, "blur": _blur, "contrast": _contrast, "shift": _shift}
