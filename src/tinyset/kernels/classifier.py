"""A ConvNet that learns on the kernels: logits forward, gradients of the weights back; nothing is compiled per shape."""

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from tinyset.kernels.convnet import Features, Prepared, call, channels_last, strides, through_norm
from tinyset.networks.convnet import ConvNet


class Classifier:
    """`classifier(images)` is `network(images)`: the logits B x C of normalised images.

    Convolution biases get no gradient: instance norm takes them away again. The images get none either.
    """

    def __init__(self, network: ConvNet) -> None:
        colours = network.layers[0][0].in_channels  # type: ignore[index]
        self.network, self.features = network, Features(network, ([0.0] * colours, [1.0] * colours))

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        learned = [p for layer, norm in self.features.blocks for p in (layer.weight, norm.weight, norm.bias)]
        maps = _Learning.apply(self.features.checked(images), self.features, *learned)
        return self.network.classifier(maps.flatten(1))


class _Learning(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, maps: torch.Tensor, features: Features, *learned: torch.Tensor) -> torch.Tensor:
        kept: list[torch.Tensor | None] = []
        weights = features.weights()
        for number, own in enumerate(weights):
            pooled, given, statistics = features.block(number, maps, own, keep=False)
            kept += [maps, given, statistics]
            maps = pooled
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(*kept)
            ctx.features, ctx.weights = features, weights
        return maps

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        features: Features = ctx.features
        found: list[torch.Tensor] = []
        for number in reversed(range(len(ctx.weights))):
            own, (maps, given, statistics) = ctx.weights[number], ctx.saved_tensors[3 * number : 3 * number + 3]
            sums = torch.empty_like(statistics)
            if number == 0:
                weight = _first(features, maps, own, statistics, gradient, sums)
            else:
                middle = through_norm(gradient, own, given, statistics, sums)
                weight = _later(features.blocks[number][0].weight, maps, middle)
                gradient = features.through_convolution(number, middle, own)
            shift, gain = sums.sum(0)
            found = [weight, gain, shift, *found]
        return None, None, *found


def _first(
    features: Features,
    pixels: torch.Tensor,
    own: Prepared,
    statistics: torch.Tensor,
    gradient: torch.Tensor,
    sums: torch.Tensor,
) -> torch.Tensor:
    """The gradient of the first convolution's weights, and into `sums` that of its norm's shift and gain."""
    batch, colours, height, width = pixels.shape
    channels = statistics.shape[2]
    each = torch.empty(batch, 9 * colours, channels)
    norm = (statistics, channels_last(gradient), own.gain, own.shift)
    sizes = (batch, height, width, colours, channels, features.pad)
    call("first_gradient", *features.head(pixels), own.forward, *norm, each, sums, *sizes)
    return each.sum(0).view(3, 3, colours, channels).permute(3, 2, 0, 1)


def _later(like: torch.Tensor, maps: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """The gradient of a later convolution's weights, from its input and the gradient of what it gave."""
    batch, source, height, width = maps.shape
    weight = torch.empty_like(like)
    call("winograd_gradient", maps, gradient, weight, strides(weight), batch, height, width, source, len(like))
    return weight
