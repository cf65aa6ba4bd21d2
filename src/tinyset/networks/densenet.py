"""DenseNet-121 (Huang et al. 2017) with the small-image stem: one 3x3 convolution, no pooling.

`growth` 32 is DenseNet-121 proper; the lighter CIFAR form that IDC evaluates with is `densenet121:growth=12`.
"""

import torch
from torch import nn

from tinyset.networks.base import Network
from tinyset.networks.layers import check_size, first_padding, global_average, make_norm

LAYERS = (6, 12, 24, 16)


class DenseLayer(nn.Module):
    """norm -> ReLU -> 1x1 (4 x growth) -> norm -> ReLU -> 3x3 (growth), put in front of its input."""

    def __init__(self, before: int, growth: int, norm: str) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            make_norm(norm, before),
            nn.ReLU(),
            nn.Conv2d(before, 4 * growth, 1, bias=False),
            make_norm(norm, 4 * growth),
            nn.ReLU(),
            nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.branch(maps), maps], 1)


class DenseNet121(Network):
    """6,956,298 parameters for RGB and 10 classes (1,000,618 with growth 12)."""

    def __init__(
        self,
        *,
        channels: int,
        image_size: tuple[int, int],
        classes: int,
        growth: int = 32,
        norm: str = "batch",
    ) -> None:
        super().__init__()
        extra, size = first_padding(image_size)
        check_size("DenseNet-121", size, 16)
        width = 2 * growth
        self.stem = nn.Conv2d(channels, width, 3, padding=1 + extra, bias=False)
        groups = []
        for i, count in enumerate(LAYERS):
            layers: list[nn.Module] = []
            for _ in range(count):
                layers.append(DenseLayer(width, growth, norm))
                width += growth
            layers += [make_norm(norm, width), nn.ReLU()]
            if i < len(LAYERS) - 1:  # the transition halves the width and the side
                layers += [nn.Conv2d(width, width // 2, 1, bias=False), nn.AvgPool2d(2)]
                width //= 2
            groups.append(nn.Sequential(*layers))
        self.groups = nn.ModuleList(groups)
        self.classifier = nn.Linear(width, classes)

    def blocks(self, images: torch.Tensor) -> list[torch.Tensor]:
        outputs = [self.stem(images)]
        for group in self.groups:
            outputs.append(group(outputs[-1]))
        outputs[-1] = global_average(outputs[-1])
        return outputs[1:]
