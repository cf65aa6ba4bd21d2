"""ZCA whitening as a reversible change of coordinates (KIP and MTT store whitened images).

    z = U diag(1/s) U' (x - m),    x = U diag(s) U' z + m,    s = sqrt(eigenvalues + reg * their mean)

| symbol | meaning |
|---|---|
| x, z | an image of P pixel values, and the same image whitened |
| m | the mean of the real images |
| U, eigenvalues | of the covariance of the real images, U U' = 1 |
| reg | .1: directions in which real images hardly vary are not blown up |

The two matrices are made from U and s, so U, s and m are all an artifact needs: P^2 + 2P numbers, and they are counted.
"""

from collections.abc import Mapping
from typing import Self

import torch
from torch import nn

from tinyset.data.imageset import CHUNK, ImageSet
from tinyset.errors import UserError

REGULARISATION = 0.1


class ZCA(nn.Module):
    mean: torch.Tensor
    basis: torch.Tensor
    scale: torch.Tensor

    def __init__(self, mean: torch.Tensor, basis: torch.Tensor, scale: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("basis", basis)
        self.register_buffer("scale", scale)

    @classmethod
    @torch.no_grad()
    def fit(cls, real: ImageSet, regularisation: float = REGULARISATION) -> Self:
        """The coordinates of these images, summed in float64. About 30 s for 32 x 32 RGB on one core."""
        count, pixels = len(real), real.images[0].numel()
        total = torch.zeros(pixels, dtype=torch.float64)
        square = torch.zeros(pixels, pixels, dtype=torch.float64)
        for chunk in real.images.split(CHUNK):
            flat = chunk.flatten(1).double() / 255
            total += flat.sum(0)
            square += flat.T @ flat
        mean = total / count
        eigenvalues, basis = torch.linalg.eigh(square / count - torch.outer(mean, mean))
        eigenvalues = eigenvalues.clamp_min(0)
        floor = regularisation * float(eigenvalues.mean()) or 1.0  # images without any variation: leave them be
        return cls(mean.float(), basis.float(), (eigenvalues + floor).sqrt().float())

    def whiten(self, images: torch.Tensor) -> torch.Tensor:
        flat = (images.flatten(1) - self.mean) @ self.basis / self.scale @ self.basis.T
        return flat.reshape(images.shape)

    def unwhiten(self, whitened: torch.Tensor) -> torch.Tensor:
        flat = whitened.flatten(1) @ self.basis * self.scale @ self.basis.T + self.mean
        return flat.reshape(whitened.shape)

    def numbers(self) -> int:
        return self.mean.numel() + self.basis.numel() + self.scale.numel()

    def tensors(self) -> dict[str, torch.Tensor]:
        return {"zca.mean": self.mean, "zca.basis": self.basis, "zca.scale": self.scale}

    @classmethod
    def restore(cls, tensors: Mapping[str, torch.Tensor]) -> Self:
        mean, basis, scale = (tensors[f"zca.{name}"].clone() for name in ("mean", "basis", "scale"))
        if mean.ndim != 1 or scale.shape != mean.shape or basis.shape != (len(mean), len(mean)):
            raise UserError(f"The stored ZCA matrix of shape {tuple(basis.shape)} does not fit its mean and scale.")
        return cls(mean, basis, scale)
