"""The auto-encoder that gives KFS its start (appendix A): one decoder, and an encoder that mirrors it and is discarded.

2,000 steps of batch 256, Adam 0.01, mean squared error between an image and its reconstruction.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from tinyset.data.imageset import ImageSet
from tinyset.errors import RunError
from tinyset.files import load_tree, save_tree
from tinyset.networks.base import reset
from tinyset.parameterizations.decoders import Decoders
from tinyset.progress import Progress
from tinyset.rng import generator


class AutoEncoder(nn.Module):
    def __init__(self, channels: Sequence[int]) -> None:
        super().__init__()
        up = list(reversed(channels))
        self.encoder = nn.Sequential(*(nn.Conv2d(a, b, 2, stride=2) for a, b in zip(up, up[1:], strict=False)))
        self.decoder = Decoders(channels, 1)

    def encode(self, images: torch.Tensor) -> torch.Tensor:
        return self.encoder(images)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        codes = self.encode(images)
        return self.decoder(codes, torch.zeros(len(codes), dtype=torch.long, device=codes.device))

    @torch.no_grad()
    def reset_from(self, draw: torch.Generator) -> None:
        reset(self.encoder, draw)
        for weight, bias in zip(self.decoder.weights, self.decoder.biases, strict=True):
            bound = (weight.shape[2] * 4) ** -0.5  # ConvTranspose2d's default: fan-in over output channels
            weight.copy_((torch.rand(weight.shape, generator=draw) * 2 - 1) * bound)
            bias.copy_((torch.rand(bias.shape, generator=draw) * 2 - 1) * bound)


def padded(images: torch.Tensor, multiple: int) -> torch.Tensor:
    """uint8 images as floats in [0, 1], their edge pixels repeated to the next multiple of `multiple`."""
    pixels = images.float() / 255
    height, width = images.shape[-2:]
    bottom, right = -height % multiple, -width % multiple
    return F.pad(pixels, (0, right, 0, bottom), mode="replicate") if bottom or right else pixels


def pretrain(
    real: ImageSet,
    channels: Sequence[int],
    *,
    steps: int,
    batch: int,
    rate: float,
    seed: int,
    device: torch.device,
    cache: Path | None,
    progress: Progress,
) -> AutoEncoder:
    """A trained auto-encoder, from `cache` where an equal one was trained before."""
    model = AutoEncoder(channels).to(device)
    if cache is not None and cache.exists():
        try:
            model.load_state_dict(load_tree(cache, "auto-encoder")["weights"])
            return model
        except (RunError, RuntimeError, KeyError):
            progress.note(f"The cached auto-encoder {cache} is damaged and is trained again.")
    model.reset_from(generator(seed, "autoencoder"))
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    multiple = 2 ** (len(channels) - 1)
    progress.start("auto-encoder", steps)
    for step in range(steps):
        index = torch.randint(len(real), (batch,), generator=generator(seed, "autoencoder", step))
        images = padded(real.images[index].to(device), multiple)
        loss = F.mse_loss(model(images), images)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            progress.update(step + 1, loss=loss.item())
    if cache is not None:
        save_tree(cache, {"weights": {k: v.detach() for k, v in model.state_dict().items()}})
    return model
