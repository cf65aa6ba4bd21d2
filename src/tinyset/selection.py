"""Real images as the condensed set: random, herding, k-means. The yardsticks every method must beat.

Each returns, for every class, indices of `counts[c]` different real images. Herding and k-means look at the features of
a network trained on the training split.
"""

import math
from collections.abc import Sequence

import torch

from tinyset.data.imageset import ImageSet
from tinyset.errors import UserError
from tinyset.networks import build, reset
from tinyset.progress import Progress, Silent
from tinyset.protocols import Protocol
from tinyset.rng import derive, generator
from tinyset.training import train

SELECTIONS = ("random", "herding", "kmeans")
TRAINING = Protocol(name="selection", steps=300, augmentation="flip-shift")  # CIFAR-10: 1.5 passes, minutes on a CPU
LLOYD_STEPS = 100
CHUNK = 512


def select(
    name: str,
    real: ImageSet,
    counts: Sequence[int],
    *,
    seed: int,
    network: str = "convnet3",
    device: torch.device | str = "cpu",
    mirror: bool = False,
    training: Protocol = TRAINING,
    compile: bool = False,
    progress: Progress | None = None,
) -> torch.Tensor:
    """Indices of the chosen images, class after class."""
    if name not in SELECTIONS:
        raise UserError(f"Unknown selection {name!r}: choose one of {', '.join(SELECTIONS)}.")
    for c, count in enumerate(counts):
        if count > real.counts[c]:
            raise UserError(
                f"The class {real.class_names[c]!r} has {real.counts[c]} images; {count} different ones were asked for."
            )
    if name == "random":
        return torch.cat(random_selection(real, counts, seed))
    features = trained_features(
        real, network, seed=seed, device=device, mirror=mirror, training=training, compile=compile, progress=progress
    )
    if name == "herding":
        return torch.cat(herding(features, real.labels, counts))
    return torch.cat(kmeans(features, real.labels, counts, seed))


def random_selection(real: ImageSet, counts: Sequence[int], seed: int) -> list[torch.Tensor]:
    chosen = []
    for c, (members, count) in enumerate(zip(real.by_class, counts, strict=True)):
        order = torch.randperm(len(members), generator=generator(seed, "random selection", c))
        chosen.append(members[order[:count]])
    return chosen


def herding(features_NF: torch.Tensor, labels_N: torch.Tensor, counts: Sequence[int]) -> list[torch.Tensor]:
    """Welling (2009): greedily the unused image that brings the running sum nearest to (k+1) times the class mean.

    i_{k+1} = argmin_{i unused} | (k+1) mean - (sum_{j<=k} f_{i_j} + f_i) |
    """
    chosen = []
    for c, count in enumerate(counts):
        members = torch.nonzero(labels_N == c).flatten()
        f = features_NF[members].double()
        mean, total = f.mean(0), torch.zeros_like(f[0])
        used = torch.zeros(len(f), dtype=torch.bool, device=f.device)
        picks = []
        for k in range(count):
            distance = ((k + 1) * mean - (total + f)).norm(dim=1)
            pick = int(distance.masked_fill(used, math.inf).argmin())
            used[pick] = True
            total += f[pick]
            picks.append(pick)
        chosen.append(members[torch.tensor(picks, dtype=torch.long)])
    return chosen


def kmeans(features_NF: torch.Tensor, labels_N: torch.Tensor, counts: Sequence[int], seed: int) -> list[torch.Tensor]:
    """The unused real image nearest to each centre of a k-means clustering of every class."""
    chosen = []
    for c, count in enumerate(counts):
        members = torch.nonzero(labels_N == c).flatten()
        f = features_NF[members].double()
        centres = cluster(f, count, generator(seed, "kmeans", c))
        distance = torch.cdist(centres, f)
        picks: list[int] = []
        for row in distance:
            row[torch.tensor(picks, dtype=torch.long)] = math.inf
            picks.append(int(row.argmin()))
        chosen.append(members[torch.tensor(picks, dtype=torch.long)])
    return chosen


def cluster(f_NF: torch.Tensor, count: int, draw: torch.Generator) -> torch.Tensor:
    """Lloyd's algorithm from a k-means++ start (Arthur & Vassilvitskii 2007): `count` centres."""
    first = int(torch.randint(len(f_NF), (1,), generator=draw))
    centres = f_NF[first : first + 1]
    while len(centres) < count:
        weights = torch.cdist(f_NF, centres).min(1).values.square().cpu()
        if weights.sum() == 0:  # fewer different images than centres
            weights = torch.ones_like(weights)
        following = int(torch.multinomial(weights, 1, generator=draw))
        centres = torch.cat([centres, f_NF[following : following + 1]])
    for _ in range(LLOYD_STEPS):
        nearest = torch.cdist(f_NF, centres).argmin(1)
        belongs = torch.nn.functional.one_hot(nearest, count).to(f_NF)
        sizes = belongs.sum(0)
        moved = torch.where(sizes[:, None] > 0, belongs.T @ f_NF / sizes.clamp_min(1)[:, None], centres)
        if torch.equal(moved, centres):
            break
        centres = moved
    return centres


def trained_features(
    real: ImageSet,
    network: str,
    *,
    seed: int,
    device: torch.device | str = "cpu",
    mirror: bool = False,
    training: Protocol = TRAINING,
    compile: bool = False,
    progress: Progress | None = None,
) -> torch.Tensor:
    """N x F: the last features of a network trained on these images."""
    channels, height, width = real.image_shape
    net = build(network, channels=channels, image_size=(height, width), classes=real.classes)
    if not hasattr(net, "features"):
        raise UserError(f"--network {network}: herding and k-means need a network with a `features` method.")
    reset(net, generator(seed, "selection network"))
    train(
        net,
        real.images,
        real.labels,
        training,
        normalisation=real.stats,
        mirror=mirror,
        seed=derive(seed, "selection"),
        device=device,
        compile=compile,
        progress=progress or Silent(),
        task="train for selection",
    )
    net.eval()
    mean, std = (torch.tensor(values, device=device).view(1, -1, 1, 1) for values in real.stats)
    with torch.no_grad():
        rows = [net.features((chunk.to(device) / 255 - mean) / std).cpu() for chunk in real.images.split(CHUNK)]  # type: ignore[operator]
    return torch.cat(rows)
