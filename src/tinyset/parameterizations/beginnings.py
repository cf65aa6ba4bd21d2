"""Codes and decoders at step 0: of real images, of a smaller set and more real images, or of several sets side by side."""

from collections.abc import Sequence
from pathlib import Path

import torch

from tinyset.budget import CodePlan
from tinyset.data.imageset import ImageSet
from tinyset.interrupts import Stop
from tinyset.parameterizations.autoencoder import padded, pretrain
from tinyset.parameterizations.codes import Codes
from tinyset.parameterizations.pixels import choose
from tinyset.progress import Progress
from tinyset.rng import derive, generator


def create_codes(
    real: ImageSet,
    plan: CodePlan,
    *,
    init: str = "real",
    pretrain_steps: int,
    pretrain_batch: int,
    pretrain_rate: float,
    noise: float,
    seed: int,
    device: torch.device,
    cache: Path | None,
    progress: Progress,
    stop: Stop | None = None,
) -> Codes:
    """The paper's start: decoders are noisy copies of one pre-trained decoder, codes are encoded real images."""
    if cache is not None:
        key = derive(seed, real.fingerprint, *plan.channels, pretrain_steps, pretrain_batch, pretrain_rate.hex())
        cache = cache / "autoencoders" / f"{key:016x}.safetensors"
    model = pretrain(
        real,
        plan.channels,
        steps=pretrain_steps,
        batch=pretrain_batch,
        rate=pretrain_rate,
        seed=seed,
        device=device,
        cache=cache,
        progress=progress,
        stop=stop,
    )
    made = Codes(real.image_shape, plan.codes, plan.code_shape, plan.channels, plan.decoders).to(device)
    multiple = 2 ** (len(plan.channels) - 1)
    with torch.no_grad():
        for c, (count, offset) in enumerate(zip(plan.codes, made.offsets, strict=True)):
            draw = generator(seed, "codes", c)
            encoded = model.encode(padded(real.images[choose(real, c, count, draw)].to(device), multiple))
            if init == "noise":  # as spread out as codes of real images, and nothing else in common with them
                mean, std = encoded.mean(), encoded.std()
                encoded = mean + std * torch.randn(encoded.shape, generator=draw).to(encoded)
            made.codes[offset : offset + count] = encoded
    made.decoders.load({k: v.expand(plan.decoders, *v.shape[1:]) for k, v in model.decoder.tensors().items()})
    made.decoders.perturb(noise, generator(seed, "decoder noise"))
    return made


def extend_codes(begun: Codes, real: ImageSet, plan: CodePlan, *, seed: int) -> Codes:
    """A larger set from a smaller one: its decoders, its codes, and more codes that its decoders make real images of.

    Decoders part slowly where many codes share them; those of a small set have learned their styles already.
    """
    made = Codes(real.image_shape, plan.codes, plan.code_shape, plan.channels, plan.decoders)
    made.decoders.load(begun.decoders.tensors())
    with torch.no_grad():
        for c, (count, offset) in enumerate(zip(plan.codes, made.offsets, strict=True)):
            images = real.images[choose(real, c, count, generator(seed, "codes", c))]
            own = begun.codes[begun.rows(c)["codes"]]
            encoded = made.decoders.encode(padded(images, made.decoders.factor))
            made.codes[offset : offset + count] = torch.cat([own, encoded[len(own) :]])
    return made


@torch.no_grad()
def side_by_side(sets: Sequence[Codes]) -> Codes:
    """A family of each: of a class first the codes of the first set, and so on; every code keeps the decoders it was made for.

    The sets have one `spec`, and no learned labels.
    """
    like, families = sets[0], sum(made.families for made in sets)
    shape = (like.codes.shape[1], like.codes.shape[2], like.codes.shape[3])
    codes = [m * len(sets) for m in like.codes_per_class]
    made = Codes(like.image_shape, codes, shape, like.decoders.channels, like.per_code, families)
    made.codes.copy_(torch.cat([one.codes[one.rows(c)["codes"]] for c in range(like.classes) for one in sets]))
    stored = [one.decoders.tensors() for one in sets]
    made.decoders.load({name: torch.cat([tensors[name] for tensors in stored]) for name in stored[0]})
    return made
