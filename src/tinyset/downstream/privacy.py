"""What a condensed set gives away: can training images be told from others by it? A probe, not a proof.

Membership inference (Yeom et al. 2018): a network is trained on the set, and an image is called a member of the real training
split where its loss is at most t. The threshold t is fitted on one half of the images and judged on the other; members and
others are as many of every class. Nearest neighbours: how far each synthetic image is from the same training and other images;
and the smallest distance to any image of the whole training split: a copy has none.

    attack(t) = 1/2 ( P[loss <= t | member] + P[loss > t | other] )          50 % is guessing
    distance(x, R) = min_{r in R} |x - r| / sqrt(P)                          P numbers of an image, pixels in [0, 1]
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tinyset.artifact import PrivacyReport
from tinyset.batches import Normalisation, Normaliser
from tinyset.condensed import CondensedSet
from tinyset.data.imageset import ImageSet, Splits
from tinyset.errors import UserError
from tinyset.evaluation import TrainingSet, from_artifact, from_images
from tinyset.evaluation.rows import check
from tinyset.machine import pick_device
from tinyset.networks import build, redraw
from tinyset.progress import Progress, Silent
from tinyset.protocols import protocol as named_protocol
from tinyset.rng import generator
from tinyset.selection import select
from tinyset.training import train

CHUNK = 512
MOST = 2000  # synthetic images that are compared with all training images
Z = 1.96  # of a 95 % interval


def privacy(
    condensed: CondensedSet,
    data: Splits,
    *,
    network: str = "convnet3",
    protocol: str | None = None,
    images: int = 2000,
    repeats: int = 1,
    seed: int = 0,
    device: str = "auto",
    baselines: Sequence[str] = (),
    progress: Progress | None = None,
) -> list[PrivacyReport]:
    """The report of the set, then of `baselines` (random, herding) at its bytes.

    `images`: members and others, each. `repeats`: networks that are attacked, from the seeds seed, seed + 1, ...
    """
    check(condensed, data)
    if data.test is None:
        raise UserError(f"{data.name} has no test split: keep a part of it for testing with --holdout 0.1.")
    if repeats < 1 or images < 4:
        raise UserError("--repeats must be 1 or more, and --images 4 or more.")
    members, others = alike(data.train, data.test, images, seed)
    settings: dict[str, Any] = {
        "network": network,
        "protocol": protocol or condensed.protocol,
        "repeats": repeats,
        "seed": seed,
        "device": device,
    }
    sets = [from_artifact(condensed)] + [real_images(name, condensed, data, seed, network) for name in baselines]
    return [probe(of, data, members, others, settings, progress or Silent()) for of in sets]


def probe(
    of: TrainingSet, data: Splits, members: ImageSet, others: ImageSet, settings: dict[str, Any], progress: Progress
) -> PrivacyReport:
    """One set's report."""
    seeds = range(settings["seed"], settings["seed"] + settings["repeats"])
    found = []
    for s in seeds:
        judge = trained(of, members.classes, s, settings, progress)
        losses = [loss_of_each(judge, part, of.normalisation) for part in (members, others)]
        found.append(attack(losses[0], losses[1], s))
    accuracy, judged = sum(share for share, _ in found) / len(found), found[0][1]
    pixels = of.images.float() / 255 if of.images.dtype == torch.uint8 else of.images
    near, far = (nearest(pixels, part.images) for part in (members, others))
    smallest = float(nearest(pixels[:: -(-len(pixels) // MOST)], data.train.images).min())
    nearer = float((near < far).double().mean() + (near == far).double().mean() / 2)
    return PrivacyReport(
        set=of.key[:64],
        name=of.name,
        data=data.name,
        bytes=of.bytes,
        network=settings["network"],
        protocol=settings["protocol"],
        seed=settings["seed"],
        repeats=settings["repeats"],
        attack_percent=_percent(accuracy),
        attack_interval=_interval(accuracy, judged),
        attack_images=judged,
        synthetic_images=len(pixels),
        real_images=len(members),
        train_distance=round(float(near.mean()), 5),
        held_out_distance=round(float(far.mean()), 5),
        smallest_train_distance=round(min(float(near.min()), smallest), 5),
        reference_distance=round(float(nearest(others.images.float() / 255, members.images).mean()), 5),
        nearer_to_train_percent=_percent(nearer),
        nearer_interval=_interval(nearer, len(pixels)),
    )


def alike(train_part: ImageSet, test_part: ImageSet, count: int, seed: int) -> tuple[ImageSet, ImageSet]:
    """As many images of every class from both, `count` in all where there are so many."""
    chosen: list[list[torch.Tensor]] = [[], []]
    for c in range(train_part.classes):
        pools = (train_part.by_class[c], test_part.by_class[c])
        number = min(-(-count // train_part.classes), *map(len, pools))
        for side, pool in enumerate(pools):
            order = torch.randperm(len(pool), generator=generator(seed, "privacy images", side, c))
            chosen[side].append(pool[order[:number]])
    if sum(map(len, chosen[0])) < 4:
        raise UserError("There are too few images in the training and the test split to compare them.")
    return train_part.subset(torch.cat(chosen[0])), test_part.subset(torch.cat(chosen[1]))


def real_images(name: str, condensed: CondensedSet, data: Splits, seed: int, network: str) -> TrainingSet:
    """A selection of real images, one byte a number, at the bytes of the set."""
    each = max(1, condensed.bytes // (len(condensed.class_names) * math.prod(condensed.image_shape)))
    counts = [min(each, count) for count in data.train.counts]
    index = select(name, data.train, counts, seed=seed, network=network, mirror=data.mirror)
    return from_images(data.train, index, name=f"{name}, {each} per class", mirror=data.mirror)


def trained(of: TrainingSet, classes: int, seed: int, settings: dict[str, Any], progress: Progress) -> nn.Module:
    spec = settings["network"]
    channels, height, width = of.images.shape[1:]
    shape: dict[str, Any] = {"channels": channels, "image_size": (height, width), "classes": classes}
    network = build(spec, **shape)
    redraw(network, spec, seed, **shape)
    train(
        network,
        of.images,
        of.targets,
        named_protocol(settings["protocol"]),
        normalisation=of.normalisation,
        mirror=of.mirror,
        seed=seed,
        device=pick_device(settings["device"]),
        progress=progress,
        task=f"{of.name}: {spec}, seed {seed}",
    )
    return network.eval()


@torch.no_grad()
def loss_of_each(network: nn.Module, real: ImageSet, normalisation: Normalisation) -> torch.Tensor:
    device = next(network.parameters()).device
    normalise = Normaliser(normalisation, real.images.dtype, device)
    losses = []
    for images, labels in zip(real.images.split(CHUNK), real.labels.split(CHUNK), strict=True):
        logits = network(normalise(images.to(device)))
        losses.append(F.cross_entropy(logits, labels.to(device), reduction="none").cpu())
    return torch.cat(losses)


def attack(members: torch.Tensor, others: torch.Tensor, seed: int) -> tuple[float, int]:
    """The share of right answers on the halves the threshold was not fitted on, and how many were asked."""
    halves = [
        part[torch.randperm(len(part), generator=generator(seed, "privacy halves"))] for part in (members, others)
    ]
    fit, judge = ([half[i::2] for half in halves] for i in (0, 1))
    threshold = best_threshold(*fit)
    right = (judge[0] <= threshold).double().mean() + (judge[1] > threshold).double().mean()
    return float(right / 2), len(judge[0]) + len(judge[1])


def best_threshold(members: torch.Tensor, others: torch.Tensor) -> float:
    """The t of the largest attack(t), half way to the next loss."""
    at = torch.cat([members, others]).sort().values
    hit = torch.searchsorted(members.sort().values, at, right=True) / len(members)
    miss = torch.searchsorted(others.sort().values, at, right=True) / len(others)
    best = int((hit - miss).argmax())
    return float(at[best : best + 2].mean())


def nearest(images: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    """Each image's root-mean-square pixel distance to the nearest of the real ones (uint8)."""
    flat = images.flatten(1)
    found = torch.full((len(flat),), math.inf)
    for chunk in real.split(CHUNK):
        found = torch.minimum(found, torch.cdist(flat, chunk.flatten(1).float() / 255).min(1).values)
    return found / math.sqrt(flat.shape[1])


def _interval(share: float, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of `count`, in percent."""
    centre = (share + Z**2 / (2 * count)) / (1 + Z**2 / count)
    half = Z / (1 + Z**2 / count) * math.sqrt(share * (1 - share) / count + Z**2 / (4 * count**2))
    return _percent(centre - half), _percent(centre + half)


def _percent(share: float) -> float:
    return round(100 * share, 2)
