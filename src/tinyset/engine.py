"""The one embedding engine: images in, embeddings out, gradients back to the images only.

Normalisation is part of it, the network's weights are swapped in place and nothing is compiled again for them. On CPUs the
ConvNet of the papers runs on kernels of our own (`kernels/`); other networks, and GPUs, on `torch.compile`, channels-last.
The exact full-batch gradient of a class costs one pass where the activations fit the memory limit and two where they do
not; decoded images and activations never exist for more than one chunk then.

Legend: B images of a chunk, F features, n images of a group (all M D images of a class for a full batch).
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from tinyset.division import OrderedSum
from tinyset.errors import UserError
from tinyset.kernels import Features, suits
from tinyset.machine import compiled, keep_memory
from tinyset.parameterizations.base import Parameterization
from tinyset.processes import ALONE, Team

MOST_PER_CHUNK = 64  # images of 32x32 per forward pass; larger chunks only cost cache misses and memory
COMPILE_FROM_IMAGES = 50_000  # compiling costs about 30 s: worth it from this many images on
Transform = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Summary:
    """What is known of one group of embeddings once all of them were seen."""

    count: int
    total: torch.Tensor  # F, float64: the sum over the group

    @property
    def mean(self) -> torch.Tensor:
        return self.total / self.count


# The gradient of the loss with respect to embeddings B x F of group g, given the summaries of all groups.
Cotangent = Callable[[torch.Tensor, int, Sequence[Summary]], torch.Tensor]


class Embedder:
    """A frozen network as a function from pixels (uint8, or floats in [0, 1]) to features."""

    def __init__(
        self,
        network: nn.Module,
        stats: tuple[Sequence[float], Sequence[float]],
        *,
        device: torch.device,
        chunk: int,
        compile: bool = False,
        dtype: torch.dtype = torch.float32,
        precision: str = "float32",
        note: Callable[[str], None] | None = None,
    ) -> None:
        if not hasattr(network, "features"):
            raise UserError(f"{type(network).__name__} has no `features` method: it cannot be matched against.")
        if any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in network.modules()):
            raise UserError(
                "A network with batch statistics gives an image an embedding that depends on its neighbours: "
                "choose norm=instance, group, layer or none for matching."
            )
        keep_memory()
        self.network = network.to(device, dtype).to(memory_format=torch.channels_last).eval().requires_grad_(False)  # type: ignore[call-overload]
        self.chunk = chunk
        self.device = device
        self.dtype = dtype
        self.precision = precision  # "bf16": torch's autocast decides what is computed in it
        self._mean, self._scale = (torch.tensor(v, device=device, dtype=dtype).view(1, -1, 1, 1) for v in stats)
        self._forward: Transform
        plain = dtype == torch.float32 and precision == "float32"
        if compile and device.type == "cpu" and plain and suits(self.network):
            self.runs_on, self._forward = "kernels", Features(self.network, stats)
        else:
            self._forward = compiled(self._features, enabled=compile, note=note)
            self.runs_on = "torch" if self._forward == self._features else "torch.compile"
        self._pad = self.runs_on == "torch.compile"  # a compiled graph wants one shape: short chunks are padded to it

    def _features(self, images: torch.Tensor) -> torch.Tensor:
        if images.dtype == torch.uint8:
            images = images.to(self.dtype) / 255
        images = self.normalised(images).contiguous(memory_format=torch.channels_last)
        if self.precision == "float32":
            return self.network.features(images)
        with torch.autocast(self.device.type, torch.bfloat16):
            return self.network.features(images).to(self.dtype)

    def normalised(self, pixels: torch.Tensor) -> torch.Tensor:
        return (pixels - self._mean) / self._scale

    def pixels(self, normalised: torch.Tensor) -> torch.Tensor:
        return normalised * self._scale + self._mean

    def with_chunk(self, chunk: int) -> "Embedder":
        """The same network (weights included) for chunks of another size."""
        sibling = copy.copy(self)
        sibling.chunk = chunk
        return sibling

    def activation_bytes(self, image_shape: tuple[int, int, int]) -> int:
        """Bytes kept per image for the way back."""
        own = self._forward if isinstance(self._forward, Features) else None
        return activation_bytes(self.network, image_shape, own)

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """Features B x F of at most `chunk` images."""
        count = len(images)
        images = images.contiguous(memory_format=torch.channels_last)
        if self._pad and count < self.chunk:
            images = F.pad(images, (0, 0, 0, 0, 0, 0, 0, self.chunk - count))
            images = images.contiguous(memory_format=torch.channels_last)
        return self._forward(images)[:count]


def even_chunk(count: int, image_shape: tuple[int, int, int], limit: int | None = None) -> int:
    """The chunk size for groups of up to `count` images: a fixed rule of shapes, so that bytes are repeatable."""
    most = limit or max(1, MOST_PER_CHUNK * 32 * 32 // (image_shape[1] * image_shape[2]))
    return math.ceil(count / math.ceil(count / most))


def activation_bytes(network: nn.Module, image_shape: tuple[int, int, int], features: Transform | None = None) -> int:
    """Bytes autograd keeps per image for the way back, counted on a pass of one image (by `features` where given)."""
    weights = {p.untyped_storage().data_ptr() for p in network.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}  # a tensor that two functions keep is kept once

    def count(tensor: torch.Tensor) -> None:  # nothing is packed: a graph that holds its own output is never freed
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()

    like = next(network.parameters())
    image = torch.zeros(1, *image_shape, device=like.device, dtype=like.dtype, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(count, lambda nothing: nothing):
        (features or network.features)(image)  # type: ignore[operator]
    return max(sum(s.nbytes() for at, s in kept.items() if at not in weights), 4 * math.prod(image_shape))


def class_gradient(
    embed: Embedder,
    synthetic: Parameterization,
    class_: int,
    groups: Sequence[torch.Tensor],
    cotangent: Cotangent,
    *,
    one_pass: bool,
    transform: Transform | None = None,
    through: Sequence[torch.Tensor] | None = None,
    team: Team = ALONE,
) -> tuple[list[Summary], list[torch.Tensor]]:
    """Summaries of the groups of a class, and the gradient of its loss for every parameter of `synthetic` (float64).

    Of a parameter that has rows of each class (`Parameterization.rows`) it is the gradient of this class's rows.

    `groups`: indices of the class's synthetic images; the full batch is one group of all of them.
    `through`: back-propagate through these indices instead (means still over `groups`); the cotangent does the scaling.
    `transform`: an augmentation; being a fixed draw it acts alike in both passes.
    `team`: the processes that share the chunks; all get the same result, and it does not depend on their number.
    """
    rows = synthetic.rows(class_)
    learned = {name: p for name, p in synthetic.named_parameters() if p.requires_grad}
    parameters, cuts = list(learned.values()), [rows.get(name, slice(None)) for name in learned]
    there = chunks_of(groups, embed.chunk)
    back = there if through is None else chunks_of(through, embed.chunk)

    def embeddings(index: torch.Tensor) -> torch.Tensor:
        images = synthetic.decode(class_, index)
        return embed(images if transform is None else transform(images))

    keep_graph = one_pass and through is None
    sums: dict[int, torch.Tensor] = {}
    graphs: dict[int, torch.Tensor] = {}
    with torch.set_grad_enabled(keep_graph):
        for at in team.share(len(there)):
            embedding = embeddings(there[at][1])
            sums[at] = embedding.detach().sum(0, dtype=torch.float64)
            if keep_graph:
                graphs[at] = embedding
    summaries = [Summary(len(group), torch.zeros_like(next(iter(sums.values())))) for group in groups]
    for (g, _), total in zip(there, team.rows(sums, len(there)), strict=True):
        summaries[g].total.add_(total)

    gradients = OrderedSum(team, len(back), [p[cut] for p, cut in zip(parameters, cuts, strict=True)])
    for at in team.share(len(back)):
        g, index = back[at]
        # popped, so that a chunk's activations are freed as soon as they are used
        embedding = graphs.pop(at) if keep_graph else embeddings(index)
        direction = cotangent(embedding.detach(), g, summaries).to(embedding.dtype).expand_as(embedding)
        parts = torch.autograd.grad(embedding, parameters, direction, allow_unused=True)
        gradients.add(at, [None if part is None else part[cut] for part, cut in zip(parts, cuts, strict=True)])
    return summaries, gradients.total()


def chunks_of(groups: Sequence[torch.Tensor], chunk: int) -> list[tuple[int, torch.Tensor]]:
    """Group after group, its number and the indices of each chunk of it."""
    return [(g, index) for g, group in enumerate(groups) for index in group.split(chunk)]
