"""Mean embeddings of real images under one random network after the other."""

import torch

from benchmarks.contenders import Run
from benchmarks.contenders.shapes import CLASSES, IMAGE, NETWORK, STATS, real_images
from tinyset.networks import build, reset
from tinyset.rng import generator

IMAGES = 2048


def ours() -> Run:
    """`tinyset bank`, one network per round; its file is written too."""
    from tinyset.bank import open_bank

    bank = open_bank(real_images(IMAGES), NETWORK, device=torch.device("cpu"), networks=1000)
    networks = 0

    def run() -> float:
        nonlocal networks
        networks += 1
        bank.ensure(networks)
        return IMAGES

    run()
    return run


def plain(batch: int = 256) -> Run:
    """NCHW, eager, default allocator: each class in batches of 256, as the public implementations sample them."""
    real = real_images(IMAGES)
    network = build(NETWORK, channels=3, image_size=IMAGE[1:], classes=CLASSES).requires_grad_(False)
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in STATS)
    images = (real.images.float() / 255 - mean) / std  # theirs are normalised once and kept as floats
    networks = 0

    @torch.no_grad()
    def run() -> float:
        nonlocal networks
        networks += 1
        reset(network, generator(0, "network", networks))
        for members in real.by_class:
            sum(network.features(images[index]).sum(0) for index in members.split(batch)) / len(members)  # type: ignore[operator]
        return IMAGES

    run()
    return run
