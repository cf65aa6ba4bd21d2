"""KFS: per-class latent codes x shared decoders. M codes and D decoders make M D images of a class.

The image i of a class is f(theta_{i // D}; phi_{i % D}), cropped where the image is not a multiple of 8 (Low-R) or 4.

Beyond the paper, a set may have F *families*: the codes of each class fall into F equal parts, and each part has D decoders of
its own. Code m of M is of family k = m F // M, and its images are those of the decoders k D to k D + D - 1.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, Self

import torch
from torch import nn

from tinyset.errors import UserError
from tinyset.parameterizations.base import Parameterization
from tinyset.parameterizations.decoders import Decoders
from tinyset.parameterizations.labels import NAME, label_groups, label_parameters, label_tensors, restore_labels

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
        families: int = 1,
    ) -> None:
        super().__init__()
        self.image_shape = image_shape
        self.codes_per_class = tuple(codes)
        self.per_code = decoders  # D
        self.families = families
        self.counts = tuple(m * decoders for m in codes)
        self.offsets = tuple(accumulate(codes, initial=0))[:-1]
        self.codes = nn.Parameter(torch.zeros(sum(codes), *code_shape))
        self.decoders = Decoders(channels, families * decoders)

    def decode(self, class_: int, index: torch.Tensor | None = None) -> torch.Tensor:
        if (
            run := _run_of(index, self.counts[class_])
        ) is not None:  # no gathers: twice as fast, and so is its way back
            first = run.start // self.per_code
            parts = self._by_family(class_, range(first, -(-run.stop // self.per_code)))
            made = [self.decoders.grid(codes, among) for codes, among in parts]
            images = made[0] if len(made) == 1 else torch.cat(made)  # mostly there is one family: nothing to copy
            images = images[run.start - first * self.per_code :][: len(run)]
        else:
            assert index is not None
            index = index.to(self.codes.device)
            code = index // self.per_code
            family = code * self.families // self.codes_per_class[class_]
            which = family * self.per_code + index % self.per_code
            images = self.decoders(self.codes[self.offsets[class_] + code], which)
        return images[..., : self.image_shape[1], : self.image_shape[2]]

    def _by_family(self, class_: int, run: range) -> Iterator[tuple[torch.Tensor, slice]]:
        """The codes `run` of a class, cut where a family ends, with the decoders of each part."""
        offset, each = self.offsets[class_], max(1, self.codes_per_class[class_] // self.families)
        for family in range(run.start // each, -(-run.stop // each)) or range(1):  # a class may have no codes
            first, last = max(run.start, family * each), min(run.stop, (family + 1) * each)
            own = slice(family * self.per_code, (family + 1) * self.per_code)
            yield self.codes[offset + first : offset + last], own

    @torch.no_grad()
    def decode_into(self, out: torch.Tensor, class_: int, index: torch.Tensor) -> None:
        run, decoders = _run_of(index, self.counts[class_]), self.per_code
        whole = run is not None and run.start % decoders == run.stop % decoders == 0 and out.is_contiguous()
        if run is None or not whole or self.image_shape[1:] != self.padded_size:
            return super().decode_into(out, class_, index)
        done = 0
        for codes, among in self._by_family(class_, range(run.start // decoders, run.stop // decoders)):
            self.decoders.grid(codes, among, out[done : done + len(codes) * decoders])
            done += len(codes) * decoders

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
            "decoders": self.per_code,
            "image_shape": list(self.image_shape),
            **({"families": self.families} if self.families > 1 else {}),
        }

    def tensors(self) -> dict[str, torch.Tensor]:
        return {"codes": self.codes.detach(), **self.decoders.tensors(), **label_tensors(self)}

    @classmethod
    def restore(cls, spec: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> Self:
        counts, code_shape, channels = spec["codes_per_class"], tuple(spec["code_shape"]), spec["channels"]
        families = spec.get("families", 1)
        if families < 1 or any(count % families for count in counts):
            raise UserError(f"Codes of {families} families must be as many in each: a class has {min(counts)}.")
        # refused before anything is allocated where the tensors are not what the description says
        expect_shape(tensors, "codes", (sum(counts), *code_shape))
        for i, (c_in, c_out) in enumerate(pairwise(channels)):
            expect_shape(tensors, f"decoders.{i}.weight", (families * spec["decoders"], c_in, c_out, 2, 2))
            expect_shape(tensors, f"decoders.{i}.bias", (families * spec["decoders"], c_out))
        shape = _image_shape(spec, code_shape, channels)
        made = cls(shape, counts, code_shape, channels, spec["decoders"], families)
        with torch.no_grad():
            made.codes.copy_(tensors["codes"])
        made.decoders.load(tensors)
        restore_labels(made, tensors)
        return made

    def without(self, decoders: Sequence[int] = (), codes: int = 0) -> "Codes":
        """The same without these decoders (of every family), and without the last `codes` codes of each class (of each family
        an equal part)."""
        spec, tensors, count = self.spec(), self.tensors(), self.per_code
        kept = [d for d in range(count) if d not in decoders]
        counts = [m - codes for m in self.codes_per_class]
        if codes % self.families:
            raise UserError(f"The codes of {self.families} families can be dropped {self.families} at a time only.")
        if not kept or min(counts) < 1:
            raise UserError("Dropping these would leave a class without images.")
        rows = [row for c in range(self.classes) for row in self._first_rows(c, counts[c])]
        among = [family * count + d for family in range(self.families) for d in kept]
        fewer = {name: tensor[among] for name, tensor in tensors.items() if name.startswith("decoders.")}
        fewer["codes"] = tensors["codes"][rows]
        if NAME in tensors:  # a row per image: code row x decoder d
            fewer[NAME] = tensors[NAME][[row * count + d for row in rows for d in kept]]
        return Codes.restore({**spec, "codes_per_class": counts, "decoders": len(kept)}, fewer)

    def _first_rows(self, class_: int, count: int) -> list[int]:
        """Of the `codes` of all classes those of a class's first `count`, an equal part of each family."""
        each, kept = self.codes_per_class[class_] // self.families, count // self.families
        return [self.offsets[class_] + family * each + m for family in range(self.families) for m in range(kept)]

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
    decoders = spec["decoders"] * spec.get("families", 1)
    if factor > MOST_FACTOR or decoders * channels[0] * factor**2 * depth > MOST_NUMBERS:
        raise UserError(f"{spec['decoders']} decoders of {tuple(channels)} would not fit in memory.")
    if depth != channels[-1] or channels[0] != code_shape[0] or not covered:
        raise UserError(
            f"Codes of {tuple(code_shape)} and decoders of {tuple(channels)} do not make {spec['image_shape']}."
        )
    return depth, height, width
