"""The tiny decoders of KFS: 2x2 stride-2 transposed convolutions, nothing between them, a sigmoid at the end.

    f(theta; phi_d) = sigmoid(T_L(... T_1(theta)))        T_l: ConvTranspose2d(kernel 2, stride 2), tables 3 and 4 of the paper

With kernel = stride every output pixel belongs to one code position, and without a non-linearity between the layers a
decoder is one affine map from the C_0 numbers of a position to its patch of 8x8 (4x4) pixels. The map is found by decoding
zero and the C_0 unit codes, all decoders at once; every image is then one small matrix product, and comes out channels-last.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import nn

DARKEST = 0.02  # logits of black and white are infinite: pixels are kept this far from both


class Decoders(nn.Module):
    """D decoders of the same shape. `weights[l]` is D x C_in x C_out x 2 x 2, `biases[l]` is D x C_out."""

    def __init__(self, channels: Sequence[int], count: int) -> None:
        super().__init__()
        self.channels = tuple(channels)
        self.count = count
        pairs = list(pairwise(channels))
        self.weights = nn.ParameterList(torch.zeros(count, a, b, 2, 2) for a, b in pairs)
        self.biases = nn.ParameterList(torch.zeros(count, b) for _, b in pairs)
        self._affine: tuple[list[tuple[int, int]], tuple[torch.Tensor, torch.Tensor]] | None = None

    @property
    def factor(self) -> int:
        """Pixels per code position, each way: 8 for Low-R, 4 for High-R."""
        return 2 ** len(self.weights)

    def affine(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Matrices D x C_0 x (f f C) and offsets D x 1 x (f f C): the logits of a patch are code @ matrix + offset.

        Kept between chunks where no gradient is asked for: decoding would take twice as long.
        """
        if torch.is_grad_enabled():
            return self._composed()
        versions = [(p.data_ptr(), p._version) for p in self.parameter_list()]
        if self._affine is None or self._affine[0] != versions:
            self._affine = versions, self._composed()
        return self._affine[1]

    def _composed(self) -> tuple[torch.Tensor, torch.Tensor]:
        unit = torch.eye(self.channels[0], device=self.weights[0].device, dtype=self.weights[0].dtype)
        probes = torch.cat([torch.zeros_like(unit[:1]), unit])  # 1 + C_0 codes of one position
        maps = probes.expand(self.count, -1, -1)  # D x (positions) x channels
        side, rows = 1, len(probes)
        for weight, bias in zip(self.weights, self.biases, strict=True):
            c_in, c_out = weight.shape[1:3]
            maps = torch.bmm(maps.reshape(self.count, -1, c_in), weight.reshape(self.count, c_in, c_out * 4))
            maps = maps.view(self.count, rows, side, side, c_out, 2, 2) + bias.view(self.count, 1, 1, 1, c_out, 1, 1)
            side *= 2
            maps = maps.permute(0, 1, 2, 5, 3, 6, 4).reshape(self.count, rows, side, side, c_out)
        maps = maps.reshape(self.count, rows, -1)
        return maps[:, 1:] - maps[:, :1], maps[:, :1]

    def forward(self, codes: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
        """Images B x C x f h x f w of `codes` (B x C_0 x h x w), the b-th by decoder `which[b]`."""
        batch, channels, height, width = codes.shape
        matrices, offsets = self.affine()
        positions = codes.permute(0, 2, 3, 1).reshape(batch, height * width, channels)
        pixels = torch.sigmoid(torch.baddbmm(offsets[which], positions, matrices[which]))
        return from_patches(pixels, height, width, self.factor)

    def grid(self, codes: torch.Tensor, among: slice = slice(None), out: torch.Tensor | None = None) -> torch.Tensor:
        """Images (M D) x C x f h x f w of every code by every decoder `among` all, the decoder running fastest.

        One matrix product. `out`: write them there, which needs no gradient.
        """
        count, channels, height, width = codes.shape
        side, colours = self.factor, self.channels[-1]
        matrices, offsets = (part[among] for part in self.affine())
        styles = len(matrices)
        both = torch.cat([offsets, matrices], 1).view(styles, 1 + channels, side, side, colours)
        both = both.permute(1, 0, 4, 2, 3).reshape(1 + channels, -1)  # patches as D x C x f x f: images come out NCHW
        positions = codes.permute(0, 2, 3, 1).reshape(-1, channels)
        pixels = torch.addmm(both[:1], positions, both[1:]).sigmoid_()
        maps = pixels.view(count, height, width, styles, colours, side, side).permute(0, 3, 4, 1, 5, 2, 6)
        if out is not None:
            out.view(maps.shape).copy_(maps)
            return out
        return maps.reshape(count * styles, colours, height * side, width * side)

    @torch.no_grad()
    def encode(self, images: torch.Tensor) -> torch.Tensor:
        """The codes whose logits, averaged over the decoders, are nearest to those of `images`: least squares."""
        matrix, offset = (part.mean(0) for part in self.affine())
        return self.codes_at((self.logits(images) - offset) @ torch.linalg.pinv(matrix), images)

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        """Of the patches of `images`, B x (h w) x (f f C)."""
        return torch.logit(to_patches(images, self.factor), DARKEST)

    def codes_at(self, positions: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
        """Codes B x C_0 x h x w of `images` from the C_0 numbers of each of their positions."""
        height, width = (side // self.factor for side in images.shape[-2:])
        return positions.view(len(images), height, width, -1).permute(0, 3, 1, 2)

    def parameter_list(self) -> list[nn.Parameter]:
        return [*self.weights, *self.biases]

    def tensors(self) -> dict[str, torch.Tensor]:
        stored = {f"decoders.{i}.weight": w.detach() for i, w in enumerate(self.weights)}
        return stored | {f"decoders.{i}.bias": b.detach() for i, b in enumerate(self.biases)}

    @torch.no_grad()
    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            weight.copy_(tensors[f"decoders.{i}.weight"])
            bias.copy_(tensors[f"decoders.{i}.bias"])

    @torch.no_grad()
    def perturb(self, noise: float, generator: torch.Generator) -> None:
        """Multiply every number by 1 + noise * N(0, 1). Copies get equal gradients and would stay copies for ever."""
        for parameter in self.parameter_list():
            parameter.mul_(1 + noise * torch.randn(parameter.shape, generator=generator).to(parameter))


def from_patches(patches: torch.Tensor, height: int, width: int, factor: int) -> torch.Tensor:
    """Patches B x (h w) x (f f C) laid side by side: B x C x f h x f w, channels-last."""
    maps = patches.view(len(patches), height, width, factor, factor, -1)
    maps = maps.permute(0, 1, 3, 2, 4, 5).reshape(len(patches), height * factor, width * factor, -1)
    return maps.permute(0, 3, 1, 2)


def to_patches(images: torch.Tensor, factor: int) -> torch.Tensor:
    """The inverse of `from_patches`."""
    batch, channels, height, width = images.shape
    maps = images.reshape(batch, channels, height // factor, factor, width // factor, factor)
    return maps.permute(0, 2, 4, 3, 5, 1).reshape(batch, -1, factor * factor * channels)
