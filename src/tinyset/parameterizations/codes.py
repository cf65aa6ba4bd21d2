"""KFS: per-class latent codes x shared decoders. M codes and D decoders make M D images of a class.

The image i of a class is f(theta_{i // D}; phi_{i % D}), cropped where the image is not a multiple of 8 (Low-R) or 4.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn

from tinyset.budget import CodePlan
from tinyset.data.imageset import ImageSet
from tinyset.errors import UserError
from tinyset.interrupts import Stop
from tinyset.parameterizations.autoencoder import padded, pretrain
from tinyset.parameterizations.base import Parameterization
from tinyset.parameterizations.decoders import Decoders
from tinyset.parameterizations.labels import NAME, label_groups, label_parameters, label_tensors, restore_labels
from tinyset.parameterizations.pixels import choose
from tinyset.progress import Progress
from tinyset.rng import derive, generator

MOST_FACTOR, MOST_NUMBERS = 64, 1 << 28  # of decoders as matrices: a stranger's file must not fill the memory


class Codes(Parameterization):
    kind = "codes"

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        codes: Sequence[int],
        code_shape: tuple[int, int, int],
        channels: Sequence[int],
        decoders: int,
    ) -> None:
        super().__init__()
        self.image_shape = image_shape
        self.codes_per_class = tuple(codes)
        self.counts = tuple(m * decoders for m in codes)
        self.offsets = tuple(accumulate(codes, initial=0))[:-1]
        self.codes = nn.Parameter(torch.zeros(sum(codes), *code_shape))
        self.decoders = Decoders(channels, decoders)

    def decode(self, class_: int, index: torch.Tensor | None = None) -> torch.Tensor:
        device, decoders = self.codes.device, self.decoders.count
        offset = self.offsets[class_]
        if (
            run := _run_of(index, self.counts[class_])
        ) is not None:  # no gathers: twice as fast, and so is its way back
            first = run.start // decoders
            images = self.decoders.grid(self.codes[offset + first : offset - (-run.stop // decoders)])
            images = images[run.start - first * decoders :][: len(run)]
        else:
            assert index is not None
            index = index.to(device)
            images = self.decoders(self.codes[offset + index // decoders], index % decoders)
        return images[..., : self.image_shape[1], : self.image_shape[2]]

    @torch.no_grad()
    def decode_into(self, out: torch.Tensor, class_: int, index: torch.Tensor) -> None:
        run, decoders = _run_of(index, self.counts[class_]), self.decoders.count
        whole = run is not None and run.start % decoders == run.stop % decoders == 0 and out.is_contiguous()
        if run is None or not whole or self.image_shape[1:] != self.padded_size:
            return super().decode_into(out, class_, index)
        first = self.offsets[class_] + run.start // decoders
        self.decoders.grid(self.codes[first : first + len(run) // decoders], out)

    @property
    def padded_size(self) -> tuple[int, int]:
        """Height and width before images are cropped."""
        return self.codes.shape[2] * self.decoders.factor, self.codes.shape[3] * self.decoders.factor

    def groups(self) -> dict[str, list[nn.Parameter]]:
        return {"codes": [self.codes], "decoders": self.decoders.parameter_list(), **label_groups(self)}

    def spec(self) -> dict[str, Any]:
        return {
            "codes_per_class": list(self.codes_per_class),
            "code_shape": list(self.codes.shape[1:]),
            "channels": list(self.decoders.channels),
            "decoders": self.decoders.count,
            "image_shape": list(self.image_shape),
        }

    def tensors(self) -> dict[str, torch.Tensor]:
        return {"codes": self.codes.detach(), **self.decoders.tensors(), **label_tensors(self)}

    @classmethod
    def restore(cls, spec: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> Self:
        counts, code_shape, channels = spec["codes_per_class"], tuple(spec["code_shape"]), spec["channels"]
        # refused before anything is allocated where the tensors are not what the description says
        expect_shape(tensors, "codes", (sum(counts), *code_shape))
        for i, (c_in, c_out) in enumerate(pairwise(channels)):
            expect_shape(tensors, f"decoders.{i}.weight", (spec["decoders"], c_in, c_out, 2, 2))
            expect_shape(tensors, f"decoders.{i}.bias", (spec["decoders"], c_out))
        made = cls(_image_shape(spec, code_shape, channels), counts, code_shape, channels, spec["decoders"])
        with torch.no_grad():
            made.codes.copy_(tensors["codes"])
        made.decoders.load(tensors)
        restore_labels(made, tensors)
        return made

    def without(self, decoders: Sequence[int] = (), codes: int = 0) -> "Codes":
        """The same without these decoders, and without the last `codes` codes of each class."""
        spec, tensors, count = self.spec(), self.tensors(), self.decoders.count
        kept = [d for d in range(count) if d not in decoders]
        counts = [m - codes for m in self.codes_per_class]
        if not kept or min(counts) < 1:
            raise UserError("Dropping these would leave a class without images.")
        rows = [row for first, m in zip(self.offsets, counts, strict=True) for row in range(first, first + m)]
        fewer = {name: tensor[kept] for name, tensor in tensors.items() if name.startswith("decoders.")}
        fewer["codes"] = tensors["codes"][rows]
        if NAME in tensors:  # a row per image: code row x decoder d
            fewer[NAME] = tensors[NAME][[row * count + d for row in rows for d in kept]]
        return Codes.restore({**spec, "codes_per_class": counts, "decoders": len(kept)}, fewer)

    def rows(self, class_: int) -> dict[str, slice]:
        first = self.offsets[class_]
        return {"codes": slice(first, first + self.codes_per_class[class_]), **super().rows(class_)}

    def class_parameters(self, class_: int) -> int:
        return self.codes_per_class[class_] * self.codes[0].numel() + label_parameters(self, class_)

    def shared_parameters(self) -> int:
        return sum(p.numel() for p in self.decoders.parameter_list())


def _run_of(index: torch.Tensor | None, count: int) -> range | None:
    """The range that `index` (all `count` images where None) is, where it is one."""
    if index is None:
        return range(count)
    if len(index) < 2 or int(index[-1]) - int(index[0]) != len(index) - 1:
        return None
    run = range(int(index[0]), int(index[-1]) + 1)
    return run if torch.equal(index, torch.arange(run.start, run.stop, device=index.device)) else None


def expect_shape(tensors: Mapping[str, torch.Tensor], name: str, shape: tuple[int, ...]) -> None:
    if tuple(tensors[name].shape) != shape:
        raise UserError(f"The tensor {name!r} has shape {tuple(tensors[name].shape)}, not {shape}.")


def _image_shape(spec: Mapping[str, Any], code_shape: Sequence[int], channels: Sequence[int]) -> tuple[int, int, int]:
    depth, height, width = spec["image_shape"]
    factor = 2 ** (len(channels) - 1)
    covered = height <= code_shape[1] * factor and width <= code_shape[2] * factor
    if factor > MOST_FACTOR or spec["decoders"] * channels[0] * factor**2 * depth > MOST_NUMBERS:
        raise UserError(f"{spec['decoders']} decoders of {tuple(channels)} would not fit in memory.")
    if depth != channels[-1] or channels[0] != code_shape[0] or not covered:
        raise UserError(
            f"Codes of {tuple(code_shape)} and decoders of {tuple(channels)} do not make {spec['image_shape']}."
        )
    return depth, height, width


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
