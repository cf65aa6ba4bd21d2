"""The embedding of a ConvNet and its gradient to the pixels by the kernels of `convnet.cpp`, on the CPU in float32.

Equal to `network.features` up to rounding (1e-6 of the embedding's norm), two to three times as fast as torch's own
convolutions, and nothing is compiled per network: weights may be swapped in place.
"""

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeGuard

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from tinyset.kernels.build import library
from tinyset.networks.convnet import ConvNet

PANEL, PLACES = 16, 36  # columns of a matrix product at once; numbers of a Winograd tile


class Prepared(NamedTuple):
    """A block's weights as the kernels want them. Copies: a gradient pending while weights are swapped keeps its own."""

    forward: torch.Tensor
    backward: torch.Tensor
    gain: torch.Tensor
    shift: torch.Tensor


def suits(network: nn.Module) -> TypeGuard[ConvNet]:
    """Whether the kernels know this network: 3x3 convolutions, instance norm, ReLU, average pooling, widths in sixteens."""
    if not isinstance(network, ConvNet) or library() is None:
        return False
    return all(_block_suits(block, first=number == 0) for number, block in enumerate(network.layers))


def _block_suits(block: nn.Module, first: bool) -> bool:
    convolution, norm, activation, pooling = block.children()
    if not isinstance(convolution, nn.Conv2d) or not isinstance(norm, nn.GroupNorm):
        return False
    plain = convolution.kernel_size == (3, 3) and convolution.out_channels % PANEL == 0
    padded = first or convolution.padding == (1, 1)
    instance = norm.num_groups == norm.num_channels
    return plain and padded and instance and isinstance(activation, nn.ReLU) and isinstance(pooling, nn.AvgPool2d)


class Features:
    """`features(pixels)`: the embedding B x F of bytes or floats in [0, 1]."""

    def __init__(self, network: ConvNet, stats: tuple[Sequence[float], Sequence[float]]) -> None:
        self.blocks: list[tuple[nn.Conv2d, nn.GroupNorm]] = [(block[0], block[1]) for block in network.layers]  # type: ignore[index]
        self.mean = torch.tensor(stats[0], dtype=torch.float32)
        self.scale = 1 / torch.tensor(stats[1], dtype=torch.float32)
        self.pad = int(self.blocks[0][0].padding[0])
        self._prepared: tuple[list[tuple[int, int]], list[Prepared]] | None = None

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        return _Embedding.apply(self.checked(pixels), self).flatten(1)

    def checked(self, pixels: torch.Tensor) -> torch.Tensor:
        """What the kernels can read, or ValueError before memory is touched."""
        if pixels.ndim != 4 or pixels.shape[1] != self.blocks[0][0].in_channels or pixels.device.type != "cpu":
            raise ValueError(f"pixels of shape {tuple(pixels.shape)} on {pixels.device} do not suit this network")
        if pixels.dtype != torch.uint8:
            pixels = pixels.to(torch.float32)
        return channels_last(pixels)

    def weights(self) -> list[Prepared]:
        """Prepared when they are first needed after a swap."""
        current = [tensor for block in self.blocks for tensor in (block[0].weight, block[1].weight, block[1].bias)]
        versions = [(tensor.data_ptr(), tensor._version) for tensor in current]
        if self._prepared is None or self._prepared[0] != versions:
            prepared = []
            for number, (convolution, norm) in enumerate(self.blocks):
                weight = convolution.weight.detach()
                both = (_winograd(weight, False), _winograd(weight, True)) if number else _panels(weight)
                prepared.append(Prepared(*both, norm.weight.detach().clone(), norm.bias.detach().clone()))
            self._prepared = versions, prepared
        return self._prepared[1]

    def forward(
        self, pixels: torch.Tensor, weights: list[Prepared], keep: bool
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """The last block's pooled maps, and of each block what its convolution gave and its channels' statistics."""
        kept: list[torch.Tensor] = []
        maps = pixels
        for number, own in enumerate(weights):
            maps, given, statistics = self.block(number, maps, own, keep)
            if keep:
                assert given is not None
                kept += [given, statistics]
        return maps, kept

    def block(
        self, number: int, maps: torch.Tensor, own: Prepared, keep: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
        """Pooled maps, what the convolution gave (of the first block only to `keep` it), each channel's statistics."""
        convolution, norm = self.blocks[number]
        batch, source, height, width = maps.shape
        target, grown = convolution.out_channels, 2 * int(convolution.padding[0]) - 2
        given = _maps(batch, target, height + grown, width + grown) if keep or number else None
        pooled = _maps(batch, target, (height + grown) // 2, (width + grown) // 2)
        statistics = torch.empty(batch, 2, target)
        tail = (own.gain, own.shift, norm.eps)
        if number == 0:
            sizes = (batch, height, width, source, target, self.pad)
            call("first_forward", *self.head(maps), own.forward, *tail, given, pooled, statistics, *sizes)
        else:
            call("winograd", maps, own.forward, given, batch, height, width, source, target)
            call("norm_forward", given, *tail, pooled, statistics, batch, height, width, target)
        return pooled, given, statistics

    def head(self, pixels: torch.Tensor) -> tuple[Any, ...]:
        """Pixels as the kernels of the first block take them."""
        return pixels, int(pixels.dtype == torch.uint8), self.mean, self.scale

    def backward(
        self, gradient: torch.Tensor, weights: list[Prepared], kept: Sequence[torch.Tensor], colours: int
    ) -> torch.Tensor:
        """From the gradient of the last pooled maps to the gradient of the pixels."""
        for number in reversed(range(1, len(self.blocks))):
            given, statistics = kept[2 * number : 2 * number + 2]
            middle = through_norm(gradient, weights[number], given, statistics, None)
            gradient = self.through_convolution(number, middle, weights[number])
        given, statistics = kept[:2]
        batch, channels, height, width = given.shape
        own, grown = weights[0], 2 * self.pad - 2
        pixels = _maps(batch, colours, height - grown, width - grown)
        sizes = (batch, height - grown, width - grown, colours, channels, self.pad)
        norm = (given, statistics, channels_last(gradient), own.gain, own.shift)
        call("first_backward", *norm, own.backward, self.scale, pixels, *sizes)
        return pixels

    def through_convolution(self, number: int, gradient: torch.Tensor, own: Prepared) -> torch.Tensor:
        """The gradient of a later convolution's input."""
        batch, channels, height, width = gradient.shape
        source = self.blocks[number][0].in_channels
        back = _maps(batch, source, height, width)
        call("winograd", gradient, own.backward, back, batch, height, width, channels, source)
        return back


def through_norm(
    gradient: torch.Tensor, own: Prepared, given: torch.Tensor, statistics: torch.Tensor, sums: torch.Tensor | None
) -> torch.Tensor:
    """From the gradient of pooled maps to that of what the convolution gave; `sums`: B x 2 x channels for shift and gain."""
    batch, channels, height, width = given.shape
    back = _maps(batch, channels, height, width)
    norm = (given, statistics, channels_last(gradient), own.gain, own.shift)
    call("norm_backward", *norm, back, sums, batch, height, width, channels)
    return back


class _Embedding(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pixels: torch.Tensor, features: Features) -> torch.Tensor:
        weights = features.weights()
        maps, kept = features.forward(pixels, weights, keep=ctx.needs_input_grad[0])
        ctx.save_for_backward(*kept)
        ctx.features, ctx.weights, ctx.colours = features, weights, pixels.shape[1]
        return maps

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.features.backward(gradient, ctx.weights, ctx.saved_tensors, ctx.colours), None


def channels_last(maps: torch.Tensor) -> torch.Tensor:
    return maps.contiguous(memory_format=torch.channels_last)


def _maps(batch: int, channels: int, height: int, width: int) -> torch.Tensor:
    return torch.empty((batch, channels, height, width), memory_format=torch.channels_last)


def _winograd(weight: torch.Tensor, back: bool) -> torch.Tensor:
    source, target = (weight.shape[0], weight.shape[1]) if back else (weight.shape[1], weight.shape[0])
    prepared = torch.empty(PLACES * source * target)
    call("winograd_weights", weight, strides(weight), prepared, source, target, int(back))
    return prepared


def strides(weight: torch.Tensor) -> Any:
    return (ctypes.c_long * 4)(*weight.stride())


def _panels(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The first convolution as matrices whose 9 x colours rows (columns) run over (y, x, colour)."""
    target, colours = weight.shape[:2]
    matrix = weight.permute(2, 3, 1, 0).reshape(9 * colours, target)
    filled = torch.zeros(target, -(-9 * colours // PANEL) * PANEL)
    filled[:, : 9 * colours] = matrix.T
    return _in_panels(matrix), _in_panels(filled)


def _in_panels(matrix: torch.Tensor) -> torch.Tensor:
    return matrix.reshape(len(matrix), -1, PANEL).transpose(0, 1).contiguous()


def call(name: str, *arguments: Any) -> None:
    """Tensors as addresses, whole numbers as long, floats as float, None as null."""
    kernels = library()
    assert kernels is not None
    getattr(kernels, name)(*(_argument(value) for value in arguments))


def _argument(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return ctypes.c_void_p(value.data_ptr())
    if isinstance(value, int):
        return ctypes.c_long(value)
    if isinstance(value, float):
        return ctypes.c_float(value)
    return ctypes.c_void_p(None) if value is None else value
