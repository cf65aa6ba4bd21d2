"""One matching step: draw a network, decode, embed, back-propagate, move codes and decoders."""

from itertools import pairwise
from typing import Any

import torch
from torch import nn

from benchmarks.contenders import Run
from benchmarks.contenders.shapes import CLASSES, IMAGE, LOW_R, NETWORK, STATS, real_images, synthetic_set
from tinyset.networks import build, reset
from tinyset.rng import generator


def ours(codes: int = 13, decoders: int = 8, batch: int | str = "full", warm: bool = True, **context: Any) -> Run:
    """The objective as `tinyset condense` runs it, with a bank of four networks."""
    from tinyset.objectives.base import Context
    from tinyset.objectives.distribution import DistributionMatching, DistributionOptions

    synthetic = synthetic_set(codes, decoders)
    objective = DistributionMatching(
        Context(real=real_images(200), network=NETWORK, seed=0, device=torch.device("cpu"), compile=True, **context),
        DistributionOptions(networks=4, batch=batch),
    )
    objective.prepare(synthetic)
    rates = {"codes": 0.1, "decoders": 0.01}
    optimizer = torch.optim.Adam([{"params": p, "lr": rates[name]} for name, p in synthetic.groups().items()])
    step = 0

    def run() -> float:
        nonlocal step
        optimizer.zero_grad()
        objective.step(synthetic, step)
        optimizer.step()
        step += 1
        return sum(count if batch == "full" else min(count, int(batch)) for count in synthetic.counts)

    if warm:
        run()
    return run


class PlainDecoder(nn.Sequential):
    """Table 3 of the paper, as anyone would write it."""

    def __init__(self) -> None:
        layers = [nn.ConvTranspose2d(a, b, 2, stride=2) for a, b in pairwise(LOW_R)]
        super().__init__(*layers, nn.Sigmoid())


def plain(codes: int = 13, decoders: int = 8) -> Run:
    """The step of the public implementations: NCHW, eager, default allocator, one loss over all classes, one backward.

    Real means are stored, as in ours. Network weights need no gradient, as in theirs.
    """
    latent = torch.randn(CLASSES, codes, LOW_R[0], 4, 4).requires_grad_()
    modules = nn.ModuleList(PlainDecoder() for _ in range(decoders))
    network = build(NETWORK, channels=3, image_size=IMAGE[1:], classes=CLASSES).requires_grad_(False)
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in STATS)
    optimizer = torch.optim.Adam([{"params": [latent], "lr": 0.1}, {"params": modules.parameters(), "lr": 0.01}])
    real_means = torch.randn(CLASSES, 2048)
    step = 0

    def run() -> float:
        nonlocal step
        reset(network, generator(0, "network", step))
        loss = torch.zeros(())
        for c in range(CLASSES):
            images = torch.cat([decoder(latent[c]) for decoder in modules])
            embedding = network.features((images - mean) / std)  # type: ignore[operator]
            loss = loss + 0.5 * (real_means[c] - embedding.mean(0)).square().sum() / CLASSES
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        return CLASSES * codes * decoders

    run()
    return run
