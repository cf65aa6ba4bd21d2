"""`ImageSet`: labelled images as every room of the house knows them. `Splits`: a training and a test `ImageSet`."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch

from tinyset.errors import UserError

CHUNK = 4096  # images per pass over data that may be larger than memory


@dataclass(frozen=True)
class ImageSet:
    """N images of C classes. `images` is uint8, N x channels x H x W, and may be memory-mapped."""

    images: torch.Tensor
    labels: torch.Tensor
    class_names: tuple[str, ...]
    known_stats: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    known_fingerprint: str | None = None

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8 or self.images.ndim != 4:
            raise UserError(f"Images must be uint8 of shape N x C x H x W, not {tuple(self.images.shape)}.")
        if len(self.images) != len(self.labels):
            raise UserError(f"There are {len(self.images)} images and {len(self.labels)} labels.")

    def __len__(self) -> int:
        return len(self.images)

    @property
    def classes(self) -> int:
        return len(self.class_names)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    @cached_property
    def by_class(self) -> tuple[torch.Tensor, ...]:
        """For each class the indices of its images, in order."""
        return tuple(torch.nonzero(self.labels == c).flatten() for c in range(self.classes))

    @cached_property
    def counts(self) -> tuple[int, ...]:
        return tuple(torch.bincount(self.labels, minlength=self.classes).tolist())

    @cached_property
    def stats(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Per-channel mean and standard deviation of the pixels in [0, 1]: the published ones where there are any."""
        if self.known_stats is not None:
            return self.known_stats
        total = torch.zeros(self.images.shape[1], dtype=torch.float64)
        square = torch.zeros_like(total)
        for chunk in self.images.split(CHUNK):
            pixels = chunk.double() / 255
            total += pixels.sum((0, 2, 3))
            square += pixels.square().sum((0, 2, 3))
        count = len(self) * self.images.shape[2] * self.images.shape[3]
        mean = total / count
        std = (square / count - mean.square()).clamp_min(1e-4).sqrt()
        return tuple(round(v, 4) for v in mean.tolist()), tuple(round(v, 4) for v in std.tolist())

    @cached_property
    def fingerprint(self) -> str:
        """A hash of pixels, labels and names: two sets with one fingerprint are the same data."""
        if self.known_fingerprint is not None:
            return self.known_fingerprint
        digest = hashlib.sha256(repr((tuple(self.images.shape), self.class_names)).encode())
        digest.update(self.labels.to(torch.int64).contiguous().numpy().data)
        for chunk in self.images.split(CHUNK):
            digest.update(chunk.contiguous().numpy().data)
        return digest.hexdigest()

    def subset(self, index: torch.Tensor) -> "ImageSet":
        """The images at `index`, with the statistics of the whole."""
        return ImageSet(self.images[index], self.labels[index], self.class_names, self.stats)


@dataclass(frozen=True)
class Splits:
    """What a source gives: `.train`, `.test` (None where there is no test split) and what to know about them."""

    name: str
    train: ImageSet
    test: ImageSet | None = None
    mirror: bool = True  # may images be flipped left-right? not digits, not text
    notes: Sequence[str] = field(default_factory=tuple)

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.train.class_names
