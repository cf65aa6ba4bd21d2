"""What the library asks of a network, and seeded initialization without torch's global generator."""

import hashlib
import math
from typing import Protocol, runtime_checkable

import torch
from torch import nn

from tinyset.errors import UserError
from tinyset.rng import seeded_globals


class Network(nn.Module):
    """A classifier: `features` (B x F, what distribution matching calls the embedding) and a linear `classifier`."""

    classifier: nn.Module

    def blocks(self, images: torch.Tensor) -> list[torch.Tensor]:
        """The output of every block, shallow to deep; the last one, flattened, is `features`."""
        raise NotImplementedError

    def features(self, images: torch.Tensor) -> torch.Tensor:
        return self.blocks(images)[-1].flatten(1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(images))


@runtime_checkable
class Redrawable(Protocol):
    """A module with parameters that `reset` would not know."""

    def reset_from(self, generator: torch.Generator) -> None: ...


@torch.no_grad()
def reset(network: nn.Module, generator: torch.Generator) -> None:
    """Draw PyTorch's default initialization again, in place, from `generator`: the same seed, the same weights."""
    drawn: set[int] = set()
    for module in network.modules():
        if _reset_module(module, generator):
            drawn.update(id(parameter) for parameter in module.parameters(recurse=False))
    for name, parameter in network.named_parameters():
        if id(parameter) not in drawn:  # else "another random network" would share it with the last one
            raise UserError(f"The parameter {name!r} cannot be drawn again: give its module `reset_from(generator)`.")


def _reset_module(module: nn.Module, generator: torch.Generator) -> bool:
    if isinstance(module, Redrawable):  # parameters of our own modules: positions, class tokens
        module.reset_from(generator)
    elif isinstance(module, nn.Conv2d | nn.Linear | nn.ConvTranspose2d):
        fan_in = module.weight.shape[1] * module.weight[0, 0].numel()
        bound = 1 / math.sqrt(fan_in)  # kaiming_uniform(a=sqrt 5) is this
        _uniform(module.weight, bound, generator)
        if module.bias is not None:
            _uniform(module.bias, bound, generator)
    elif isinstance(module, nn.GroupNorm | nn.BatchNorm2d | nn.LayerNorm):
        if module.weight is not None:
            module.weight.fill_(1)
        if module.bias is not None:
            module.bias.fill_(0)
        if isinstance(module, nn.BatchNorm2d):
            module.reset_running_stats()
    elif callable(reset_parameters := getattr(module, "reset_parameters", None)):  # a user's other torch modules
        seed = int(torch.randint(2**62, (1,), generator=generator))
        with seeded_globals(seed, "reset"):
            reset_parameters()
    else:
        return False
    return True


def _uniform(parameter: torch.Tensor, bound: float, generator: torch.Generator) -> None:
    draw = torch.rand(parameter.shape, generator=generator, dtype=torch.float32)
    parameter.copy_((draw * 2 - 1) * bound)


def weights_hash(network: nn.Module) -> str:
    """A short hash of all weights, stored beside what was computed with them."""
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()[:16]
