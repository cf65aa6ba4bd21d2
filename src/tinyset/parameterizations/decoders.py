"""The tiny decoders of KFS: 2x2 stride-2 transposed convolutions, nothing between them, a sigmoid at the end.

    f(theta; phi_d) = sigmoid(T_L(... T_1(theta)))        T_l: ConvTranspose2d(kernel 2, stride 2), tables 3 and 4 of the paper

With kernel = stride every output pixel belongs to one input position, so T_l is a matrix product followed by a
rearrangement. Written so, all D decoders are one batched product, and the images come out channels-last.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import nn


class Decoders(nn.Module):
    """D decoders of the same shape. `weights[l]` is D x C_in x C_out x 2 x 2, `biases[l]` is D x C_out."""

    def __init__(self, channels: Sequence[int], count: int) -> None:
        super().__init__()
        self.channels = tuple(channels)
        self.count = count
        pairs = list(zip(channels, channels[1:], strict=False))
        self.weights = nn.ParameterList(torch.zeros(count, a, b, 2, 2) for a, b in pairs)
        self.biases = nn.ParameterList(torch.zeros(count, b) for _, b in pairs)

    def forward(self, codes: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
        """Images B x C x 8h x 8w (4h x 4w for High-R) of `codes` (B x C_0 x h x w), the b-th by decoder `which[b]`."""
        batch, _, height, width = codes.shape
        maps = codes.permute(0, 2, 3, 1)
        for weight, bias in zip(self.weights, self.biases, strict=True):
            c_in, c_out = weight.shape[1:3]
            matrices = weight[which].reshape(batch, c_in, c_out * 4)
            maps = torch.bmm(maps.reshape(batch, height * width, c_in), matrices)
            maps = maps.view(batch, height, width, c_out, 2, 2) + bias[which][:, None, None, :, None, None]
            height, width = 2 * height, 2 * width
            maps = maps.permute(0, 1, 4, 2, 5, 3).reshape(batch, height, width, c_out)
        return torch.sigmoid(maps).permute(0, 3, 1, 2)

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
