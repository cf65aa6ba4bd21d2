"""CIFAR-10 shapes filled with noise: what is timed does not look at the pixels."""

import math

import torch
from torch import nn

from tinyset.data.imageset import ImageSet
from tinyset.parameterizations.codes import Codes
from tinyset.rng import generator

CLASSES, IMAGE = 10, (3, 32, 32)
STATS = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
NETWORK = "convnet3"
LOW_R = (12, 9, 6, 3)


def real_images(count: int) -> ImageSet:
    images = torch.randint(0, 256, (count, *IMAGE), generator=generator(0, "real"), dtype=torch.uint8)
    names = tuple(f"class {c}" for c in range(CLASSES))
    return ImageSet(images, torch.arange(count) % CLASSES, names, known_stats=STATS)


def synthetic_set(codes: int, decoders: int) -> Codes:
    """`codes` Low-R codes per class x `decoders` decoders: 13 x 8 is the paper's set at 1 image per class."""
    made = Codes(IMAGE, (codes,) * CLASSES, (LOW_R[0], 4, 4), LOW_R, decoders)
    draw = generator(0, "synthetic")
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=draw))
    return made


@torch.no_grad()
def convolution_flops(network: nn.Module, image_shape: tuple[int, int, int] = IMAGE) -> int:
    """Floating-point operations of the convolutions for one image forward; the way back to the image costs as many."""
    flops = 0

    def count(module: nn.Conv2d, _: object, output: torch.Tensor) -> None:
        nonlocal flops
        flops += 2 * module.weight[0].numel() * math.prod(output.shape[1:])

    hooks = [m.register_forward_hook(count) for m in network.modules() if isinstance(m, nn.Conv2d)]
    network(torch.zeros(1, *image_shape))
    for hook in hooks:
        hook.remove()
    return flops
