"""The auto-encoder that gives KFS its start (appendix A): one decoder, and an encoder that mirrors it and is discarded.

2,000 steps of batch 256, Adam 0.01, mean squared error between an image and its reconstruction. Trained once, kept in
the cache; a training that was killed goes on from its last `.partial` file with the same bytes.
"""

import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from tinyset.data.imageset import ImageSet
from tinyset.errors import RunError
from tinyset.files import load_tree, save_tree
from tinyset.interrupts import Interrupted, Stop
from tinyset.networks.base import reset
from tinyset.parameterizations.decoders import Decoders, from_patches, to_patches
from tinyset.progress import Progress
from tinyset.rng import generator, seeded_globals

SAVE_EVERY_S = 10.0  # a killed training loses at most this much work


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
    stop: Stop | None = None,
) -> AutoEncoder:
    """A trained auto-encoder, from `cache` where an equal one was trained before. A signal ends it, a time limit does not."""
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
    partial = None if cache is None else cache.with_suffix(".partial")
    first = _go_on(partial, model, optimizer, progress)
    progress.start("auto-encoder", steps)
    saved = time.monotonic()
    for step in range(first, steps):
        leaving = stop is not None and stop.exit_code != 0
        if partial is not None and (leaving or time.monotonic() - saved > SAVE_EVERY_S):
            state = {"weights": model.state_dict(), "optimizer": optimizer.state_dict()["state"], "step": step}
            save_tree(partial, state)
            saved = time.monotonic()
        if stop is not None and leaving:
            told = f"Stopped by {stop.reason} after step {step} of the auto-encoder; --resume goes on from there."
            raise Interrupted(told, stop.exit_code)
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
    if partial is not None:
        partial.unlink(missing_ok=True)
    return model


def _go_on(partial: Path | None, model: AutoEncoder, optimizer: torch.optim.Optimizer, progress: Progress) -> int:
    """Put back what a stopped training left and return the step it was at; 0 where it left nothing."""
    if partial is None or not partial.exists():
        return 0
    try:
        tree = load_tree(partial, "unfinished auto-encoder")
    except RunError as error:
        progress.note(f"{error} The training starts again.")
        return 0
    model.load_state_dict(tree["weights"])
    state = {int(key): value for key, value in tree["optimizer"].items()}
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    return int(tree["step"])
