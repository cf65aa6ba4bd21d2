"""The auto-encoder that gives KFS its start (appendix A): one decoder, and an encoder that mirrors it and is discarded.

2,000 steps of batch 256, Adam 0.01, mean squared error between an image and its reconstruction.
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from tinyset.data.imageset import ImageSet
from tinyset.errors import RunError
from tinyset.files import load_tree, save_tree
from tinyset.networks.base import reset
from tinyset.parameterizations.decoders import Decoders, from_patches, to_patches
from tinyset.progress import Progress
from tinyset.rng import generator, seeded_globals


class AutoEncoder(nn.Module):
    """2x2 stride-2 convolutions and the decoder that undoes them. Like the decoder, the encoder is one affine map of a patch."""

    def __init__(self, channels: Sequence[int]) -> None:
        super().__init__()
        up = list(reversed(channels))
        self.encoder = nn.Sequential(*(nn.Conv2d(a, b, 2, stride=2) for a, b in pairwise(up)))
        self.decoder = Decoders(channels, 1)

    def encode_patches(self, patches: torch.Tensor) -> torch.Tensor:
        """Codes P x C_0 of patches P x (f f C)."""
        factor, size = self.decoder.factor, patches.shape[1]
        unit = torch.eye(size, device=patches.device, dtype=patches.dtype)
        probes = from_patches(torch.cat([torch.zeros_like(unit[:1]), unit])[:, None], 1, 1, factor)
        answers = self.encoder(probes).flatten(1)
        return torch.addmm(answers[:1], patches, answers[1:] - answers[:1])

    def encode(self, images: torch.Tensor) -> torch.Tensor:
        """Codes B x C_0 x h x w of images B x C x f h x f w."""
        batch, _, height, width = images.shape
        factor = self.decoder.factor
        codes = self.encode_patches(to_patches(images, factor).flatten(0, 1))
        return codes.view(batch, height // factor, width // factor, -1).permute(0, 3, 1, 2)

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        """Reconstructed patches: the loss does not care how they are laid out."""
        matrices, offsets = self.decoder.affine()
        return torch.sigmoid(torch.addmm(offsets[0], self.encode_patches(patches), matrices[0]))

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
    with seeded_globals(seed):  # torch's layers draw at construction; the user's state stays
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
        patches = to_patches(padded(real.images[index].to(device), multiple), multiple).flatten(0, 1)
        loss = F.mse_loss(model(patches), patches)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            progress.update(step + 1, loss=loss.item())
    if cache is not None:
        save_tree(cache, {"weights": {k: v.detach() for k, v in model.state_dict().items()}})
    return model
