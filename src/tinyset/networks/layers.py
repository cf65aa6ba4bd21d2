"""What the architectures share: norms, poolings, and the papers' padding of 28x28 images."""

import torch
from torch import nn

from tinyset.errors import UserError

NORMS = ("instance", "batch", "group", "layer", "none")
POOLINGS = ("avg", "max", "none")


def make_norm(name: str, channels: int) -> nn.Module:
    """ "Instance norm" in the condensation papers is GroupNorm with one channel per group, affine."""
    if name == "instance":
        return nn.GroupNorm(channels, channels)
    if name == "batch":
        return nn.BatchNorm2d(channels)
    if name == "group":
        if channels % 4:
            raise UserError(f"norm=group makes 4 groups: {channels} channels do not divide.")
        return nn.GroupNorm(4, channels)
    if name == "layer":
        return nn.GroupNorm(1, channels)
    if name == "none":
        return nn.Identity()
    raise UserError(f"Unknown norm {name!r}: choose one of {', '.join(NORMS)}.")


def make_pooling(name: str) -> nn.Module:
    if name not in POOLINGS:
        raise UserError(f"Unknown pooling {name!r}: choose one of {', '.join(POOLINGS)}.")
    return {"avg": nn.AvgPool2d(2), "max": nn.MaxPool2d(2), "none": nn.Identity()}[name]


def first_padding(image_size: tuple[int, int]) -> tuple[int, tuple[int, int]]:
    """(extra padding of the first convolution, the size seen after it): 28x28 becomes 32x32, as in the papers."""
    return (2, (32, 32)) if image_size == (28, 28) else (0, image_size)


def check_size(network: str, image_size: tuple[int, int], smallest: int) -> None:
    if min(image_size) < smallest:
        shape = f"{image_size[0]}x{image_size[1]}"
        raise UserError(f"Images of {shape} are too small for {network}: it needs {smallest} pixels.")


def global_average(maps: torch.Tensor) -> torch.Tensor:
    return maps.mean((2, 3), keepdim=True)
