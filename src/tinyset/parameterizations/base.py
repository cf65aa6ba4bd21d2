"""How synthetic images are stored: the first of the two axes on which every method is a point."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import torch
from torch import nn

from tinyset.parameterizations.labels import project_labels


class Parameterization(nn.Module, ABC):
    """Learnable tensors that decode to labelled synthetic images with pixels in [0, 1].

    Its parameters (`nn.Parameter`) are what an optimizer moves; `tensors` and `spec` are what an artifact stores.
    """

    kind: ClassVar[str]
    image_shape: tuple[int, int, int]
    counts: tuple[int, ...]  # synthetic images per class
    soft_labels: nn.Parameter | None  # N x C probabilities, class after class, where labels are learned

    def __init__(self) -> None:
        super().__init__()
        self.register_parameter("soft_labels", None)

    @property
    def classes(self) -> int:
        return len(self.counts)

    @abstractmethod
    def decode(self, class_: int, index: torch.Tensor | None = None) -> torch.Tensor:
        """The synthetic images `index` (all where None) of a class, B x C x H x W in [0, 1], differentiable."""

    @torch.no_grad()
    def decode_into(self, out: torch.Tensor, class_: int, index: torch.Tensor) -> None:
        """The same images, written into `out`."""
        out.copy_(self.decode(class_, index))

    @abstractmethod
    def groups(self) -> dict[str, list[nn.Parameter]]:
        """Parameters by the name of their learning rate, for example {"codes": [...], "decoders": [...]}."""

    @abstractmethod
    def spec(self) -> dict[str, Any]:
        """What `restore` needs beside the tensors; plain JSON."""

    @abstractmethod
    def tensors(self) -> dict[str, torch.Tensor]:
        """The stored tensors by name, as float32 (or integer) tensors."""

    @classmethod
    @abstractmethod
    def restore(cls, spec: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> Self:
        """The inverse of `spec` and `tensors`."""

    def project(self) -> None:
        """Called after each optimizer step: back into the feasible set (pixels clamp to [0, 1], labels are shares)."""
        project_labels(self)

    def rows(self, class_: int) -> dict[str, slice]:
        """Of each parameter that has rows for every class, by its name: those of this class. All other parameters are shared."""
        first = sum(self.counts[:class_])
        return {} if self.soft_labels is None else {"soft_labels": slice(first, first + self.counts[class_])}

    def class_parameters(self, class_: int) -> int:
        """How many stored numbers belong to this class alone."""
        raise NotImplementedError

    def shared_parameters(self) -> int:
        """How many stored numbers all classes share."""
        return 0

    def targets(self, class_: int, index: torch.Tensor | None = None) -> torch.Tensor:
        """The labels of the same images as B x C probabilities: one-hot, or learned."""
        count = self.counts[class_]
        some = next(self.parameters())
        index = torch.arange(count, device=some.device) if index is None else index.to(some.device)
        if self.soft_labels is None:
            hot = torch.tensor([class_], device=some.device).expand(len(index))
            return nn.functional.one_hot(hot, self.classes).to(some.dtype)
        return self.soft_labels[sum(self.counts[:class_]) + index]

    @torch.no_grad()
    def decode_all(self, chunk: int = 1024) -> tuple[torch.Tensor, torch.Tensor]:
        """Every synthetic image and its label, class after class."""
        images = [
            self.decode(c, index) for c, count in enumerate(self.counts) for index in torch.arange(count).split(chunk)
        ]
        labels = torch.repeat_interleave(torch.arange(self.classes), torch.tensor(self.counts))
        return torch.cat(images), labels
