"""What the networks of the objectives are fed: normalised images of both kinds, drawn by name and step."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from tinyset.augment import Siamese
from tinyset.errors import UserError
from tinyset.networks import build
from tinyset.objectives.base import Context
from tinyset.parameterizations.base import Parameterization
from tinyset.rng import Name, generator
from tinyset.whitening import Filter, whitened

Transform = Callable[[torch.Tensor], torch.Tensor]


def make_network(context: Context, synthetic: Parameterization, needs: str | None = None) -> nn.Module:
    """The run's network, weights still to be drawn, in the dtype of `synthetic`; `needs`: a method it must have."""
    channels, height, width = context.real.image_shape
    network = build(context.network, channels=channels, image_size=(height, width), classes=context.real.classes)
    if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in network.modules()):
        raise UserError(
            f"--network {context.network}: batch statistics of one class mislead matching; choose norm=instance, "
            "group, layer or none."
        )
    if needs is not None and not hasattr(network, needs):
        raise UserError(f"--network {context.network}: this objective needs a network with a `{needs}` method.")
    return network.to(context.device, next(synthetic.parameters()).dtype).eval()


class Inputs:
    """Normalised images B x C x H x W and targets B x classes, in the dtype and on the device of `synthetic`.

    Every draw is named: `real_of_class(3, 256, "real", step)` is the same batch whenever it is asked for.
    """

    def __init__(self, context: Context, synthetic: Parameterization, whitening: Filter | None = None) -> None:
        self.context = context
        self.device = context.device
        self.dtype = next(synthetic.parameters()).dtype
        self.mean, self.std = (
            torch.tensor(values, device=self.device, dtype=self.dtype).view(1, -1, 1, 1)
            for values in context.real.stats
        )
        self.filter = None if whitening is None else torch.tensor(whitening, device=self.device, dtype=self.dtype)

    def normalise(self, pixels: torch.Tensor) -> torch.Tensor:
        images = (pixels - self.mean) / self.std
        return images if self.filter is None else whitened(images, self.filter)

    def draw(self, *names: Name) -> torch.Generator:
        return generator(self.context.seed, *names)

    def real(self, index: torch.Tensor) -> torch.Tensor:
        return self.normalise(self.context.real.images[index].to(self.device, self.dtype) / 255)

    def real_of_class(self, class_: int, size: int, *names: Name) -> torch.Tensor:
        """`size` different real images of a class, or all it has."""
        members = self.context.real.by_class[class_]
        order = torch.randperm(len(members), generator=self.draw(*names, class_))
        return self.real(members[order[:size]])

    def real_mixed(self, size: int, *names: Name) -> tuple[torch.Tensor, torch.Tensor]:
        """`size` different real images of all classes, and their one-hot labels."""
        index = torch.randperm(len(self.context.real), generator=self.draw(*names))[:size]
        return self.real(index), self.one_hot(self.context.real.labels[index])

    def synthetic_index(self, synthetic: Parameterization, class_: int, size: int | None, *names: Name) -> torch.Tensor:
        """Which synthetic images of a class are looked at: all of them, or `size` of them."""
        count = synthetic.counts[class_]
        if size is None or size >= count:
            return torch.arange(count)
        return torch.randperm(count, generator=self.draw(*names, class_))[:size].sort().values

    def synthetic_mixed(
        self, synthetic: Parameterization, size: int | None, *names: Name
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Synthetic images of all classes, class after class, and their targets: all of them, or `size` of them."""
        total = sum(synthetic.counts)
        flat = torch.arange(total)
        if size is not None and size < total:
            flat = torch.randperm(total, generator=self.draw(*names))[:size].sort().values
        images, targets, first = [], [], 0
        for c, count in enumerate(synthetic.counts):
            index = flat[(flat >= first) & (flat < first + count)] - first
            if len(index):
                images.append(synthetic.decode(c, index))
                targets.append(synthetic.targets(c, index))
            first += count
        return self.normalise(torch.cat(images)), torch.cat(targets)

    def one_hot(self, labels: torch.Tensor) -> torch.Tensor:
        return F.one_hot(labels.to(self.device), self.context.real.classes).to(self.dtype)

    def siamese(self, strategy: str, *names: Name) -> Transform:
        """One draw of differentiable siamese augmentation: the same transform for every batch it is applied to."""
        if strategy == "none":
            return lambda images: images
        family = Siamese(strategy, mirror=self.context.mirror)
        draw = family.draw(self.draw(*names))
        return lambda images: family.apply(images, draw)


def add_gradient(loss: torch.Tensor, parameters: list[nn.Parameter]) -> None:
    """d loss / d parameters, added to their `.grad`; nothing else on the way receives one."""
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is not None:
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient


def learnables(synthetic: Parameterization) -> list[nn.Parameter]:
    return [parameter for parameter in synthetic.parameters() if parameter.requires_grad]
