"""VGG-11 for small images (Simonyan & Zisserman 2015): one linear layer after a global average."""

import torch
from torch import nn

from tinyset.networks.base import Network
from tinyset.networks.layers import check_size, first_padding, global_average, make_norm

WIDTHS = ((64,), (128,), (256, 256), (512, 512), (512, 512))  # each group ends with 2x2 max pooling


class VGG11(Network):
    """9,231,114 parameters for RGB and 10 classes. Norm: instance as in the condensation papers, or batch."""

    def __init__(self, *, channels: int, image_size: tuple[int, int], classes: int, norm: str = "instance") -> None:
        super().__init__()
        extra, size = first_padding(image_size)
        check_size("VGG-11", size, 32)
        groups = []
        before = channels
        for i, widths in enumerate(WIDTHS):
            layers: list[nn.Module] = []
            for width in widths:
                layers.append(nn.Conv2d(before, width, 3, padding=1 + (extra if before == channels and i == 0 else 0)))
                layers += [make_norm(norm, width), nn.ReLU()]
                before = width
            groups.append(nn.Sequential(*layers, nn.MaxPool2d(2)))
        self.groups = nn.ModuleList(groups)
        self.classifier = nn.Linear(before, classes)

    def blocks(self, images: torch.Tensor) -> list[torch.Tensor]:
        outputs = [images]
        for group in self.groups:
            outputs.append(group(outputs[-1]))
        outputs[-1] = global_average(outputs[-1])  # one position at 32x32 already
        return outputs[1:]
