"""MLP, LeNet and AlexNet in the small-image forms of the condensation papers (Zhao et al. 2021)."""

import torch
from torch import nn

from tinyset.networks.base import Network
from tinyset.networks.layers import check_size, first_padding


class MLP(Network):
    """Two hidden layers of 128; 411,146 parameters for 32x32 RGB and 10 classes."""

    def __init__(self, *, channels: int, image_size: tuple[int, int], classes: int, width: int = 128) -> None:
        super().__init__()
        inputs = channels * image_size[0] * image_size[1]
        self.hidden = nn.ModuleList([nn.Linear(inputs, width), nn.Linear(width, width)])
        self.classifier = nn.Linear(width, classes)

    def blocks(self, images: torch.Tensor) -> list[torch.Tensor]:
        outputs = [images.flatten(1)]
        for layer in self.hidden:
            outputs.append(layer(outputs[-1]).relu())
        return outputs[1:]


class LeNet(Network):
    """LeNet-5 with ReLU and max pooling; 62,006 parameters for 32x32 RGB and 10 classes."""

    def __init__(self, *, channels: int, image_size: tuple[int, int], classes: int) -> None:
        super().__init__()
        check_size("LeNet", image_size, 16)
        extra, (height, width) = first_padding(image_size)
        self.convolutions = nn.ModuleList(
            [
                nn.Sequential(nn.Conv2d(channels, 6, 5, padding=extra), nn.ReLU(), nn.MaxPool2d(2)),
                nn.Sequential(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
            ]
        )
        height, width = (((side - 4) // 2 - 4) // 2 for side in (height, width))
        self.hidden = nn.ModuleList([nn.Linear(16 * height * width, 120), nn.Linear(120, 84)])
        self.classifier = nn.Linear(84, classes)

    def blocks(self, images: torch.Tensor) -> list[torch.Tensor]:
        outputs = [images]
        for block in self.convolutions:
            outputs.append(block(outputs[-1]))
        for layer in self.hidden:
            outputs.append(layer(outputs[-1].flatten(1)).relu())
        return outputs[1:]


class AlexNet(Network):
    """Five convolutions (128-192-256-192-192), one linear layer; 1,872,202 parameters for 32x32 RGB and 10 classes."""

    def __init__(self, *, channels: int, image_size: tuple[int, int], classes: int) -> None:
        super().__init__()
        check_size("AlexNet", image_size, 8)
        extra, (height, width) = first_padding(image_size)
        self.convolutions = nn.ModuleList(
            [
                nn.Sequential(nn.Conv2d(channels, 128, 5, padding=2 + extra), nn.ReLU(), nn.MaxPool2d(2)),
                nn.Sequential(nn.Conv2d(128, 192, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
                nn.Sequential(nn.Conv2d(192, 256, 3, padding=1), nn.ReLU()),
                nn.Sequential(nn.Conv2d(256, 192, 3, padding=1), nn.ReLU()),
                nn.Sequential(nn.Conv2d(192, 192, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            ]
        )
        self.classifier = nn.Linear(192 * (height // 8) * (width // 8), classes)

    def blocks(self, images: torch.Tensor) -> list[torch.Tensor]:
        outputs = [images]
        for block in self.convolutions:
            outputs.append(block(outputs[-1]))
        return outputs[1:]
