"""Images as themselves: one stored number per pixel value, in [0, 1] or, with ZCA, in whitened coordinates."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import torch
from torch import nn

from tinyset.data.imageset import ImageSet
from tinyset.errors import UserError
from tinyset.parameterizations.base import Parameterization
from tinyset.parameterizations.labels import (
    label_groups,
    label_parameters,
    label_tensors,
    project_labels,
    restore_labels,
)
from tinyset.parameterizations.zca import ZCA

Init = Literal["noise", "real"]


class Pixels(Parameterization):
    """The image i of class c is `images[sum(counts[:c]) + i]`."""

    kind = "pixels"

    def __init__(self, image_shape: tuple[int, int, int], counts: Sequence[int], zca: ZCA | None = None) -> None:
        super().__init__()
        self.image_shape = image_shape
        self.counts = tuple(counts)
        self.offsets = tuple(sum(self.counts[:c]) for c in range(len(self.counts)))
        self.images = nn.Parameter(torch.zeros(sum(self.counts), *image_shape))
        self.zca = zca

    @classmethod
    def create(
        cls,
        real: ImageSet,
        counts: Sequence[int],
        init: Init,
        generator: torch.Generator,
        *,
        zca: bool = False,
    ) -> Self:
        """Noise, or `counts[c]` different real images of each class c."""
        made = cls(real.image_shape, counts, ZCA.fit(real) if zca else None)
        made.assign(start_images(real, counts, init, generator))
        return made

    @torch.no_grad()
    def assign(self, images: torch.Tensor) -> None:
        """Store these images: N x C x H x W in [0, 1], class after class."""
        images = images.to(self.images)
        self.images.copy_(images if self.zca is None else self.zca.whiten(images))

    def decode(self, class_: int, index: torch.Tensor | None = None) -> torch.Tensor:
        first = self.offsets[class_]
        stored = self.images[first : first + self.counts[class_]]
        if index is not None:
            stored = stored.index_select(0, index.to(stored.device))
        return stored if self.zca is None else clamp_through(self.zca.unwhiten(stored))

    @torch.no_grad()
    def project(self) -> None:
        project_labels(self)
        if self.zca is None:
            self.images.clamp_(0, 1)
        else:
            self.images.copy_(self.zca.whiten(self.zca.unwhiten(self.images).clamp_(0, 1)))

    def groups(self) -> dict[str, list[nn.Parameter]]:
        return {"images": [self.images], **label_groups(self)}

    def spec(self) -> dict[str, Any]:
        return {"image_shape": list(self.image_shape), "counts": list(self.counts), "zca": self.zca is not None}

    def tensors(self) -> dict[str, torch.Tensor]:
        zca = {} if self.zca is None else self.zca.tensors()
        return {"images": self.images.detach(), **zca, **label_tensors(self)}

    @classmethod
    def restore(cls, spec: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> Self:
        images = stored_images(tensors, spec["counts"], spec["image_shape"])
        made = cls(tuple(spec["image_shape"]), spec["counts"], ZCA.restore(tensors) if spec.get("zca") else None)
        with torch.no_grad():
            made.images.copy_(images)
        restore_labels(made, tensors)
        return made

    def rows(self, class_: int) -> dict[str, slice]:
        first = self.offsets[class_]
        return {"images": slice(first, first + self.counts[class_]), **super().rows(class_)}

    def class_parameters(self, class_: int) -> int:
        return self.images[0].numel() * self.counts[class_] + label_parameters(self, class_)

    def shared_parameters(self) -> int:
        return 0 if self.zca is None else self.zca.numbers()


def stored_images(
    tensors: Mapping[str, torch.Tensor], counts: Sequence[int], image_shape: Sequence[int]
) -> torch.Tensor:
    """The stored images, refused before anything is allocated where they are not what the description says."""
    images = tensors["images"]
    if tuple(images.shape) != (sum(counts), *image_shape) or len(image_shape) != 3 or min(counts, default=0) < 0:
        raise UserError(f"The stored images have shape {tuple(images.shape)}, not {(sum(counts), *image_shape)}.")
    return images


def clamp_through(images: torch.Tensor) -> torch.Tensor:
    """Clamped to [0, 1], with the gradient of the identity: rounding must not freeze a pixel at the border."""
    return images + (images.detach().clamp(0, 1) - images.detach())


def start_images(real: ImageSet, counts: Sequence[int], init: Init, generator: torch.Generator) -> torch.Tensor:
    """`counts[c]` images of each class in [0, 1]: standard normal after normalisation, as DC has it, or real ones."""
    if init == "real":
        return real.images[torch.cat([choose(real, c, count, generator) for c, count in enumerate(counts)])] / 255
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in real.stats)
    return (torch.randn(sum(counts), *real.image_shape, generator=generator) * std + mean).clamp_(0, 1)


def choose(real: ImageSet, class_: int, count: int, generator: torch.Generator) -> torch.Tensor:
    """`count` different images of a class by index; where it has fewer, each as often as the next."""
    members = real.by_class[class_]
    if len(members) == 0:
        raise UserError(f"The class {real.class_names[class_]!r} has no images to start from.")
    rounds = -(-count // len(members))
    order = torch.cat([torch.randperm(len(members), generator=generator) for _ in range(max(1, rounds))])
    return members[order[:count]]
