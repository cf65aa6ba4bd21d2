"""ResNet-10 and ResNet-18 (He et al. 2016) with the small-image stem: one 3x3 convolution, no pooling.

Norm: instance as in the condensation papers (their "ResNet18"), or batch ("ResNet18BN"). `width` is that of the first
stage: 64; the CIFAR-10 ResNet-10 of IDC is `resnet10:width=32`.
"""

from collections.abc import Sequence

import torch
from torch import nn

from tinyset.errors import UserError
from tinyset.networks.base import Network
from tinyset.networks.layers import check_size, first_padding, global_average, make_norm

# oneDNN (torch 2.13, AVX2) writes outside its buffers in the backward pass of a strided 1x1 convolution of fewer than 8
# channels in channels-last order: found as a crash
NARROWEST = 8


def _convolution(before: int, after: int, size: int, stride: int = 1, extra: int = 0) -> nn.Conv2d:
    return nn.Conv2d(before, after, size, stride, size // 2 + extra, bias=False)


class BasicBlock(nn.Module):
    def __init__(self, before: int, after: int, stride: int, norm: str) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            _convolution(before, after, 3, stride),
            make_norm(norm, after),
            nn.ReLU(),
            _convolution(after, after, 3),
            make_norm(norm, after),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(_convolution(before, after, 1, stride), make_norm(norm, after))

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        return (self.branch(maps) + self.shortcut(maps)).relu()


class ResNet(Network):
    """ResNet-18 has 11,173,962 parameters for RGB and 10 classes, ResNet-10 4,903,242."""

    def __init__(
        self,
        *,
        channels: int,
        image_size: tuple[int, int],
        classes: int,
        stages: Sequence[int],
        width: int = 64,
        norm: str = "instance",
    ) -> None:
        super().__init__()
        extra, size = first_padding(image_size)
        check_size("ResNet", size, 16)
        if width < NARROWEST:
            raise UserError(f"A ResNet needs a width of {NARROWEST} or more, not {width}.")
        stem = nn.Sequential(_convolution(channels, width, 3, extra=extra), make_norm(norm, width), nn.ReLU())
        made: list[nn.Module] = [stem]
        before = width
        for i, count in enumerate(stages):
            after = width * 2**i
            blocks = []
            for k in range(count):
                blocks.append(BasicBlock(before, after, 2 if i > 0 and k == 0 else 1, norm))
                before = after
            made.append(nn.Sequential(*blocks))
        self.stages = nn.ModuleList(made)
        self.classifier = nn.Linear(before, classes)

    def blocks(self, images: torch.Tensor) -> list[torch.Tensor]:
        outputs = [images]
        for stage in self.stages:
            outputs.append(stage(outputs[-1]))
        outputs[-1] = global_average(outputs[-1])
        return outputs[1:]
