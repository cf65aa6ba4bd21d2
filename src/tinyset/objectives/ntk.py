"""The empirical neural tangent kernel of a finite network, by `torch.func`.

    K(x, x') = sum_r  d(o_r . f(x))/dtheta . d(o_r . f(x'))/dtheta  =  phi(x) . phi(x')

| symbol | here |
|---|---|
| f(x) | the logits of the network, C numbers |
| o_r | directions in the space of logits, R x C (`directions`) |
| phi(x) | the R gradients side by side: one row of the Jacobian, R P numbers |

With all C unit directions (over sqrt C) K is the mean over outputs; with one random sign vector (over sqrt C) it is the
same in expectation at 1/C of the cost.
"""

import torch
from torch import nn
from torch.func import functional_call, jacrev, vmap


def directions(classes: int, generator: torch.Generator | None, like: torch.Tensor) -> torch.Tensor:
    """All outputs where `generator` is None, else one random combination of them."""
    if generator is None:
        chosen = torch.eye(classes)
    else:
        chosen = torch.randint(2, (1, classes), generator=generator) * 2.0 - 1
    return chosen.to(like) / classes**0.5


def tangents(
    network: nn.Module, images: torch.Tensor, outputs_RC: torch.Tensor, chunk: int | None = None
) -> torch.Tensor:
    """phi of each image, B x R P; differentiable with respect to the images."""
    theta = {name: weight.detach() for name, weight in network.named_parameters()}

    def logits(weights: dict[str, torch.Tensor], image: torch.Tensor) -> torch.Tensor:
        return outputs_RC @ functional_call(network, weights, (image[None],))[0]

    rows = vmap(jacrev(logits), in_dims=(None, 0), chunk_size=chunk)(theta, images)
    return torch.cat([rows[name].flatten(1) for name in theta], 1)
