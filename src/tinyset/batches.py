"""Training batches from data resident as one tensor: shuffled, normalised, augmented; a pure function of seed and step.

Batches have one fixed shape, `min(N, batch)`; the last batch of an epoch holds the rest, as in the papers. A rest of one
image waits for the next epoch's shuffle: batch norm cannot take it.
"""

import torch
import torch.nn.functional as F

from tinyset.augment import augment_batch, cutmix
from tinyset.protocols import Protocol
from tinyset.rng import generator

Normalisation = tuple[tuple[float, ...], tuple[float, ...]]


def channels_last(images: torch.Tensor) -> torch.Tensor:
    return images.contiguous(memory_format=torch.channels_last)


def normalisers(
    normalisation: Normalisation, images: torch.Tensor, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and 1/std in the units of the pixels: (x - mean) * scale is the normalised image."""
    unit = 255.0 if images.dtype == torch.uint8 else 1.0
    mean, std = (torch.tensor(v, dtype=torch.float32, device=device).reshape(1, -1, 1, 1) for v in normalisation)
    return mean * unit, 1 / (std * unit)


class Batches:
    """Batch k of a training: a pure function of the seed and k."""

    def __init__(
        self,
        images: torch.Tensor,
        labels: torch.Tensor,
        protocol: Protocol,
        normalisation: Normalisation,
        mirror: bool,
        seed: int,
        classes: int
        | None = None,  # of the network, where it has more than the labels show (CutMix makes rows of them)
    ) -> None:
        self.images, self.labels, self.protocol, self.mirror, self.seed = images, labels, protocol, mirror, seed
        self.mean, self.scale = normalisers(normalisation, images, images.device)
        self.size = protocol.batch_size(len(images))
        self.per_epoch = protocol.steps_per_epoch(len(images))
        self.classes = labels.shape[1] if labels.ndim == 2 else classes or int(labels.max()) + 1
        self._epoch, self._order = -1, torch.empty(0)

    def at(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        epoch, k = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            order = torch.randperm(len(self.images), generator=generator(self.seed, "epoch", epoch))
            self._epoch, self._order = epoch, order.to(self.images.device)
        chosen = self._order[k * self.size : (k + 1) * self.size]
        batch = (channels_last(self.images[chosen]).to(torch.float32) - self.mean) * self.scale
        targets = self.labels[chosen]
        draws = generator(self.seed, "augment", step)
        batch = augment_batch(batch, self.protocol.augmentation, draws, self.mirror)
        if self.protocol.cutmix:
            if targets.ndim == 1:
                targets = F.one_hot(targets, self.classes).to(torch.float32)
            batch, targets = cutmix(batch, targets, draws, self.protocol.cutmix)
        return channels_last(batch), targets
