"""IDC's tiles (Kim et al. 2022): a stored image holds f x f small images, each up-sampled to full size at decode.

    image(k, r, q) = upsample_bilinear(stored_k[y_r : y_{r+1}, x_q : x_{q+1}])
    y_r = round(r H / f),  x_q = round(q W / f)

| symbol | meaning |
|---|---|
| stored_k | the k-th stored image of the class, H x W |
| f | the tile factor: f^2 synthetic images per stored one |
| r, q | row and column of the tile, 0 .. f-1 |

The synthetic image i of a class is tile i % f^2 of stored image i // f^2. Where f does not divide the side the tiles
differ by one pixel (28 / 3: 9, 10, 9), so every stored number is used and none is padding.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
import torch.nn.functional as F
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
from tinyset.parameterizations.pixels import Init, clamp_through, start_images, stored_images


class Tiles(Parameterization):
    kind = "tiles"

    def __init__(self, image_shape: tuple[int, int, int], stored_counts: Sequence[int], factor: int = 2) -> None:
        super().__init__()
        if not 1 <= factor <= min(image_shape[1:]):
            raise UserError(f"--tile-factor {factor} does not fit images of {image_shape[1]}x{image_shape[2]}.")
        self.image_shape = image_shape
        self.factor = factor
        self.stored_counts = tuple(stored_counts)
        self.counts = tuple(factor**2 * count for count in self.stored_counts)
        self.offsets = tuple(sum(self.stored_counts[:c]) for c in range(len(self.stored_counts)))
        self.images = nn.Parameter(torch.zeros(sum(self.stored_counts), *image_shape))

    @classmethod
    def create(
        cls,
        real: ImageSet,
        stored_counts: Sequence[int],
        init: Init,
        generator: torch.Generator,
        *,
        factor: int = 2,
    ) -> Self:
        """`stored_counts`: stored full-size images per class. Tiles start as noise or as down-sized images."""
        made = cls(real.image_shape, stored_counts, factor)
        if init == "noise":
            made.assign(start_images(real, stored_counts, "noise", generator))
        else:
            made.assign_tiles(start_images(real, made.counts, "real", generator))
        return made

    @torch.no_grad()
    def assign(self, images: torch.Tensor) -> None:
        self.images.copy_(images)

    @torch.no_grad()
    def assign_tiles(self, images: torch.Tensor) -> None:
        """Down-size full-size images, `counts[c]` of each class, into the tiles."""
        for position in range(self.factor**2):
            rows, columns = self._box(position)
            size = (rows.stop - rows.start, columns.stop - columns.start)
            small = F.interpolate(images[position :: self.factor**2], size, mode="bilinear", antialias=True)
            self.images[:, :, rows, columns] = small.clamp(0, 1)

    def decode(self, class_: int, index: torch.Tensor | None = None) -> torch.Tensor:
        device, tiles = self.images.device, self.factor**2
        index = torch.arange(self.counts[class_], device=device) if index is None else index.to(device)
        stored, position = self.offsets[class_] + index // tiles, index % tiles
        parts, places = [], []
        for p in range(tiles):
            place = torch.nonzero(position == p).flatten()
            if len(place):
                rows, columns = self._box(p)
                tile = self.images[:, :, rows, columns].index_select(0, stored[place])
                parts.append(F.interpolate(tile, self.image_shape[1:], mode="bilinear", align_corners=False))
                places.append(place)
        if not parts:
            return self.images[:0]
        return clamp_through(torch.cat(parts).index_select(0, torch.cat(places).argsort()))

    def _box(self, position: int) -> tuple[slice, slice]:
        edges = [[round(i * side / self.factor) for i in range(self.factor + 1)] for side in self.image_shape[1:]]
        row, column = divmod(position, self.factor)
        return slice(edges[0][row], edges[0][row + 1]), slice(edges[1][column], edges[1][column + 1])

    @torch.no_grad()
    def project(self) -> None:
        project_labels(self)
        self.images.clamp_(0, 1)

    def groups(self) -> dict[str, list[nn.Parameter]]:
        return {"images": [self.images], **label_groups(self)}

    def spec(self) -> dict[str, Any]:
        return {"image_shape": list(self.image_shape), "counts": list(self.counts), "factor": self.factor}

    def tensors(self) -> dict[str, torch.Tensor]:
        return {"images": self.images.detach(), **label_tensors(self)}

    @classmethod
    def restore(cls, spec: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> Self:
        stored_counts = [count // spec["factor"] ** 2 for count in spec["counts"]]
        images = stored_images(tensors, stored_counts, spec["image_shape"])
        made = cls(tuple(spec["image_shape"]), stored_counts, spec["factor"])
        if made.counts != tuple(spec["counts"]):
            raise UserError(f"A tile factor of {made.factor} does not make {spec['counts']} images.")
        with torch.no_grad():
            made.images.copy_(images)
        restore_labels(made, tensors)
        return made

    def rows(self, class_: int) -> dict[str, slice]:
        first = self.offsets[class_]
        return {"images": slice(first, first + self.stored_counts[class_]), **super().rows(class_)}

    def class_parameters(self, class_: int) -> int:
        return self.images[0].numel() * self.stored_counts[class_] + label_parameters(self, class_)
