"""Training batches from data resident as one tensor: shuffled, normalised, augmented; a pure function of seed and step.

Batches have one fixed shape, `min(N, batch)`; the last batch of an epoch holds the rest, as in the papers. A rest of one
image waits for the next epoch's shuffle: batch norm cannot take it.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from tinyset.augment import augment_batch, cutmix
from tinyset.protocols import Protocol
from tinyset.rng import generator
from tinyset.whitening import Filter, whitened

Stats = tuple[tuple[float, ...], tuple[float, ...]]  # mean and standard deviation of each channel
Normalisation = Stats | tuple[tuple[float, ...], tuple[float, ...], Filter]
AT_ONCE = 512  # images whitened together


def normalisation_of(mean: Sequence[float], std: Sequence[float], whitening: Filter | None) -> Normalisation:
    stats = tuple(mean), tuple(std)
    return stats if whitening is None else (*stats, whitening)


def channels_last(images: torch.Tensor) -> torch.Tensor:
    return images.contiguous(memory_format=torch.channels_last)


class Normaliser:
    """Pixels (uint8, or floats in [0, 1]) as networks want them: (x - mean) / std, then through the filter if there is one."""

    def __init__(self, normalisation: Normalisation, dtype: torch.dtype, device: torch.device | str) -> None:
        unit = 255.0 if dtype == torch.uint8 else 1.0
        mean, std = (torch.tensor(v, device=device).reshape(1, -1, 1, 1) for v in normalisation[:2])
        self.mean, self.scale = mean * unit, 1 / (std * unit)
        self.filter = torch.tensor(normalisation[2], device=device) if len(normalisation) > 2 else None

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        images = (channels_last(pixels).to(torch.float32) - self.mean) * self.scale
        return images if self.filter is None else channels_last(whitened(images, self.filter))


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
        normalise = Normaliser(normalisation, images.dtype, images.device)
        self.normalise: Callable[[torch.Tensor], torch.Tensor] = normalise
        if normalise.filter is not None:  # once and for all, not in every batch
            self.images = torch.cat([normalise(part) for part in images.split(AT_ONCE)])
            self.normalise = channels_last
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
        batch = self.normalise(self.images[chosen])
        targets = self.labels[chosen]
        draws = generator(self.seed, "augment", step)
        batch = augment_batch(batch, self.protocol.augmentation, draws, self.mirror)
        if self.protocol.cutmix:
            if targets.ndim == 1:
                targets = F.one_hot(targets, self.classes).to(torch.float32)
            batch, targets = cutmix(batch, targets, draws, self.protocol.cutmix)
        return channels_last(batch), targets
