"""ConvNet: the network of every table of the condensation papers (Gidaris & Komodakis 2018; Zhao et al. 2021).

Each block: 3x3 convolution (pad 1) -> norm -> activation -> 2x2 pooling; then a linear layer.
"Instance norm" is GroupNorm with one channel per group, affine.
"""

from collections.abc import Callable

import torch
from torch import nn

from tinyset.errors import UserError
from tinyset.networks.base import Network
from tinyset.networks.layers import first_padding, make_norm, make_pooling

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "leakyrelu": lambda: nn.LeakyReLU(0.01),
    "sigmoid": nn.Sigmoid,
    "swish": nn.SiLU,
}


class ConvNet(Network):
    def __init__(
        self,
        *,
        channels: int,
        image_size: tuple[int, int],
        classes: int,
        depth: int = 3,
        width: int = 128,
        norm: str = "instance",
        activation: str = "relu",
        pooling: str = "avg",
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise UserError(f"Unknown activation {activation!r}: choose one of {', '.join(ACTIVATIONS)}.")
        if not 1 <= depth <= 8 or width < 1:
            raise UserError(f"A ConvNet needs a depth of 1 to 8 and a width of 1 or more, not {depth} and {width}.")
        extra, (height, width_px) = first_padding(image_size)
        layers = []
        for i in range(depth):
            layers.append(
                nn.Sequential(
                    nn.Conv2d(channels if i == 0 else width, width, 3, padding=1 + extra if i == 0 else 1),
                    make_norm(norm, width),
                    ACTIVATIONS[activation](),
                    make_pooling(pooling),
                )
            )
            if pooling != "none":
                height, width_px = height // 2, width_px // 2
        if min(height, width_px) < 1:
            raise UserError(f"Images of {image_size[0]}x{image_size[1]} are too small for a ConvNet of depth {depth}.")
        self.layers = nn.ModuleList(layers)
        self.classifier = nn.Linear(width * height * width_px, classes)

    def blocks(self, images: torch.Tensor) -> list[torch.Tensor]:
        outputs = []
        for layer in self.layers:
            images = layer(images)
            outputs.append(images)
        return outputs
