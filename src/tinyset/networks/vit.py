"""A small vision transformer (Dosovitskiy et al. 2021): class token, learned positions, pre-norm blocks.

8 x 8 patches whatever the image size. With `dim=192,depth=12,heads=3,patch=16` at 224 pixels it is ViT-Ti/16.
"""

import torch
import torch.nn.functional as F
from torch import nn

from tinyset.errors import UserError
from tinyset.networks.base import Network

GRID = 8  # patches along a side, where the patch size is not given


class Tokens(nn.Module):
    """Patches -> tokens, a class token before them, positions added."""

    def __init__(self, channels: int, dim: int, patch: tuple[int, int], count: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(channels, dim, patch, stride=patch)
        self.token = nn.Parameter(torch.zeros(1, 1, dim))
        self.positions = nn.Parameter(torch.zeros(1, count + 1, dim))

    def reset_from(self, generator: torch.Generator) -> None:
        for parameter in (self.token, self.positions):
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.02)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(images).flatten(2).transpose(1, 2)
        return torch.cat([self.token.expand(len(images), -1, -1), tokens], 1) + self.positions


class Block(nn.Module):
    """x + attention(norm x), then x + mlp(norm x)."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_mlp = nn.LayerNorm(dim, eps=1e-6), nn.LayerNorm(dim, eps=1e-6)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        batch, count, dim = tokens.shape
        qkv = self.qkv(self.norm_attention(tokens)).reshape(batch, count, 3, self.heads, dim // self.heads)
        attended = F.scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4).unbind(0))
        tokens = tokens + self.out(attended.transpose(1, 2).reshape(batch, count, dim))
        return tokens + self.mlp(self.norm_mlp(tokens))


class ViT(Network):
    """Default (dim 192, depth 6, heads 3): 2,693,578 parameters for 32x32 RGB and 10 classes."""

    def __init__(
        self,
        *,
        channels: int,
        image_size: tuple[int, int],
        classes: int,
        dim: int = 192,
        depth: int = 6,
        heads: int = 3,
        patch: int | None = None,
    ) -> None:
        super().__init__()
        height, width = image_size
        size = (patch, patch) if patch else (max(1, height // GRID), max(1, width // GRID))
        if height < size[0] or width < size[1] or dim % heads:
            raise UserError(
                f"ViT: patches of {size[0]}x{size[1]} in {height}x{width}, dim {dim}, heads {heads} do not fit."
            )
        self.tokens = Tokens(channels, dim, size, (height // size[0]) * (width // size[1]))
        self.layers = nn.ModuleList([Block(dim, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.classifier = nn.Linear(dim, classes)

    def blocks(self, images: torch.Tensor) -> list[torch.Tensor]:
        """Token maps of every layer, and last the normed class token."""
        outputs = [self.tokens(images)]
        for layer in self.layers:
            outputs.append(layer(outputs[-1]))
        return [*outputs[1:], self.norm(outputs[-1][:, 0])]
