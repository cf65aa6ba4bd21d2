"""`CondensedSet`: the artifact. A folder of kilobytes that is a torch `Dataset` of synthetic images.

condensed.safetensors   codes, decoders, labels (or pixels, tiles)
config.json             format version, shapes, names, normalisation, provenance: checked by `ArtifactConfig`
README.md, preview.png  for people
"""

import hashlib
import math
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from tinyset import hub
from tinyset.artifact import (
    CARD,
    CONFIG,
    PRIVACY,
    TENSORS,
    ArtifactConfig,
    PrivacyReport,
    read_config,
    read_tensors,
    verify,
)
from tinyset.batches import AT_ONCE, Batches, Normalisation, Normaliser, Stats, normalisation_of
from tinyset.budget import overhead_percent
from tinyset.card import card, preview
from tinyset.data.limits import fits_memory
from tinyset.errors import UserError
from tinyset.files import write_atomic, write_json
from tinyset.parameterizations.base import Parameterization
from tinyset.parameterizations.codes import Codes
from tinyset.protocols import protocol as named_protocol
from tinyset.saving import check_place, serialize, write_set
from tinyset.storage import PRECISIONS, pack, unpack
from tinyset.version import __version__
from tinyset.whitening import numbers

SHIPPED = Path(str(resources.files("tinyset"))) / "shipped"
DECODED_AT_ONCE = 1 << 26  # numbers
Buffer = bytes  # inside the class `bytes` is a property


class CondensedSet(Dataset[tuple[torch.Tensor, int]]):
    """`ds[i]` is (float32 C x H x W in [0, 1], label); `ds.loader()` gives normalised, augmented training batches."""

    def __init__(self, parameterization: Parameterization, config: ArtifactConfig, path: Path | None = None) -> None:
        self.parameterization = parameterization.requires_grad_(False)
        self.config = config
        self.path = path
        self._cache: tuple[int, torch.Tensor] | None = None

    # -- what it is ---------------------------------------------------------------------------------------------

    @property
    def class_names(self) -> tuple[str, ...]:
        return tuple(self.config.class_names)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        return self.config.image_shape

    @property
    def stats(self) -> Stats:
        return tuple(self.config.mean), tuple(self.config.std)

    @property
    def normalisation(self) -> Normalisation:
        """What images go through before a network sees them: mean and deviation, and the filter where there is one."""
        return normalisation_of(self.config.mean, self.config.std, self.config.whitening)

    def normalise(self, images: torch.Tensor) -> torch.Tensor:
        """Images N x C x H x W (uint8, or floats in [0, 1]), synthetic or real, as networks trained on this set want them."""
        normaliser = Normaliser(self.normalisation, images.dtype, images.device)
        return torch.cat([normaliser(part) for part in images.split(AT_ONCE)])

    @property
    def mirror(self) -> bool:
        return self.config.mirror

    @property
    def protocol(self) -> str:
        return self.config.protocol

    @property
    def soft_labels(self) -> torch.Tensor | None:
        soft = getattr(self.parameterization, "soft_labels", None)
        return None if soft is None else soft.detach()

    @cached_property
    def labels(self) -> torch.Tensor:
        counts = torch.tensor(self.parameterization.counts)
        return torch.repeat_interleave(torch.arange(len(counts)), counts)

    @property
    def bytes(self) -> int:
        """Size of `condensed.safetensors`."""
        return len(self._serialized)

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(self._serialized).hexdigest()

    def ledger(self) -> dict[str, Any]:
        """What is stored and what it costs, by the paper's count and in real bytes."""
        made = self.parameterization
        classes = made.classes
        params = (sum(made.class_parameters(c) for c in range(classes)) + made.shared_parameters()) / classes
        codes = self.config.spec.get("codes_per_class")
        return {
            "classes": classes,
            "class_names": list(self.class_names),
            "kind": self.config.kind,
            "codes_per_class": _one_or_all(codes) if codes else None,
            "decoders": self.config.spec.get("decoders"),
            **({"families": self.config.spec["families"]} if "families" in self.config.spec else {}),
            "synthetic_per_class": _one_or_all(made.counts),
            "params_per_class": round(params, 4),
            "overhead_percent": round(overhead_percent(params, self.config.nominal_params_per_class), 2),
            **({"whitening_numbers": numbers(self.config.whitening)} if self.config.whitening is not None else {}),
            "bytes": self.bytes,
            "compression": round(self.config.source_bytes / self.bytes, 2) if self.config.source_bytes else None,
        }

    # -- a dataset ----------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return sum(self.parameterization.counts)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        if not -len(self) <= i < len(self):
            raise IndexError(f"index {i} of {len(self)} synthetic images")
        label = int(self.labels[i])
        first = sum(self.parameterization.counts[:label])
        if self._cache is None or self._cache[0] != label:  # a class is decoded when its first image is asked for
            self._cache = (label, self.images(class_=label))
        return self._cache[1][i % len(self) - first].clone(), label

    @torch.no_grad()
    def images(self, class_: int | str | None = None, decoder: int | None = None) -> torch.Tensor:
        """Synthetic images of all classes or one, by all decoders or one, in [0, 1]."""
        decoders = self.config.spec.get("decoders") or 1
        if decoder is not None and not 0 <= decoder < decoders:
            raise UserError(f"There is no decoder {decoder}: the set has {decoders}.")
        c = self.class_names.index(class_) if isinstance(class_, str) else class_
        what = "The decoded set" if c is None else f"The decoded class {self.class_names[c]!r}"
        classes = range(len(self.class_names)) if c is None else [c]
        wanted = {
            i: range(self.parameterization.counts[i])[decoder :: 1 if decoder is None else decoders] for i in classes
        }
        numbers, count = math.prod(self.image_shape), sum(map(len, wanted.values()))
        fits_memory(count * numbers * 4, what)
        images, done = next(self.parameterization.parameters()).new_empty(count, *self.image_shape), 0
        for i, run in wanted.items():
            index = torch.arange(run.start, run.stop, run.step)
            at_once = max(decoders, min(1024, DECODED_AT_ONCE // numbers) // decoders * decoders)  # whole codes
            for part in index.split(at_once):
                self.parameterization.decode_into(images[done : done + len(part)], i, part)
                done += len(part)
        return images

    def decode(self) -> tuple[torch.Tensor, torch.Tensor]:
        """All synthetic images, float32 in [0, 1], and their labels."""
        return self.images(), self.labels

    def to(self, device: torch.device | str) -> "CondensedSet":
        """Decode on this device from now on."""
        self.parameterization.to(device)
        self._cache = None
        return self

    def loader(
        self, train: bool = True, batch_size: int | None = None, epochs: int = 1, seed: int = 0
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Batches (normalised images, labels) of the protocol's size; with `train` shuffled and augmented as it says.

        Labels are rows of C shares where they were learned, or where the protocol mixes images.

        The batches of evaluation itself, so that a plain torch loop reaches the recorded accuracy.
        """
        images, labels = self.decode()
        targets = labels if self.soft_labels is None else self.soft_labels
        recipe = named_protocol(self.protocol)
        if batch_size is not None:
            recipe = recipe.model_copy(update={"batch": batch_size})
        if not train:
            for part, of in zip(images.split(recipe.batch), targets.split(recipe.batch), strict=True):
                yield self.normalise(part), of
            return
        batches = Batches(images, targets, recipe, self.normalisation, self.mirror, seed)
        for step in range(epochs * batches.per_epoch):
            yield batches.at(step)

    # -- variants -----------------------------------------------------------------------------------------------

    def with_precision(self, precision: str) -> "CondensedSet":
        """The same set with its numbers stored as float32, float16 or int8 (and rounded so)."""
        if precision not in PRECISIONS:
            raise UserError(f"Unknown precision {precision!r}: choose one of {', '.join(PRECISIONS)}.")
        tensors = unpack(pack(self.parameterization.tensors(), precision))
        restored = type(self.parameterization).restore(self.config.spec, tensors)
        return CondensedSet(restored, self.config.model_copy(update={"precision": precision}))

    def drop(self, decoders: Sequence[int] = (), codes: int = 0) -> "CondensedSet":
        """The same set without these decoders, and without the last `codes` codes of each class."""
        if not isinstance(self.parameterization, Codes):
            raise UserError(f"A set of {self.config.kind} has no codes or decoders to drop.")
        made = self.parameterization.without(decoders, codes)
        return CondensedSet(made, self.config.model_copy(update={"spec": made.spec()}))

    # -- files --------------------------------------------------------------------------------------------------

    @cached_property
    def _serialized(self) -> Buffer:
        return serialize(self.parameterization, self.config.precision)

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> Path:
        """Write the folder at once: it is there complete or not at all."""
        target = Path(path)
        check_place(target, overwrite)
        privacy = PrivacyReport.read(target, self.fingerprint)
        write_set(
            target,
            self.config,
            tensors=self._serialized,
            fingerprint=self.fingerprint,
            card=card(self.config, self.ledger(), len(self), privacy),
            preview=self.preview(),
            privacy=privacy,
        )
        self.path = target
        return target

    def state_privacy(self, report: PrivacyReport) -> None:
        """Keep what `tinyset privacy` measured with a saved set, and say it in its card."""
        if self.path is None or report.set != self.fingerprint:
            raise UserError("A privacy report is kept with the saved set it was measured on.")
        write_json(self.path / PRIVACY, report.model_dump(mode="json"))
        write_atomic(self.path / CARD, card(self.config, self.ledger(), len(self), report))

    def push_to_hub(self, name: str, *, private: bool = False) -> str:
        """Share a saved set as `hub:user/name`; says where it is."""
        if self.path is None:
            raise UserError("Save the condensed set before it is pushed to the hub.")
        return hub.push(self.path, name, private=private)

    def preview(self) -> Any:
        """Up to ten images of up to twenty classes."""
        return preview(self.parameterization, self.class_names)


def _one_or_all(values: Any) -> int | list[int]:
    return values[0] if len(set(values)) == 1 else list(values)


def make_config(**values: Any) -> ArtifactConfig:
    return ArtifactConfig(library=__version__, **values)


def shipped() -> dict[str, Path]:
    """The condensed sets that come with the package, by name."""
    return {entry.parent.name: entry.parent for entry in sorted(SHIPPED.glob(f"*/{CONFIG}"))}


def load(path: str | os.PathLike[str]) -> CondensedSet:
    """A condensed set from its folder, a shipped one by name (`tinyset.load("cifar10-1")`), or one of the hub
    (`tinyset.load("hub:user/name")`). A folder of yours that has the name of a shipped set is the one that is meant."""
    folder = hub.fetch(str(path)) if hub.is_hub(path) else Path(path)
    if not folder.exists():
        if str(path) not in shipped():
            known = f"; shipped with tinyset: {', '.join(shipped())}" if shipped() and os.sep not in str(path) else ""
            raise UserError(f"There is no condensed set at {path}{known}.")
        folder = shipped()[str(path)]
    if not folder.is_dir() or not (folder / CONFIG).is_file():
        inside = f"; the set of this run is {path}/artifact" if (folder / "artifact" / CONFIG).is_file() else ""
        raise UserError(f"{path} is not a condensed set: it has no {CONFIG}{inside}.")
    config = read_config(folder / CONFIG)
    made = read_tensors(folder / TENSORS, config)
    verify(folder, config)
    return CondensedSet(made, config, folder)
