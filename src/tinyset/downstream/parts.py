"""A condensed set taken apart and put together again: what growing, forgetting, slimming and merging have in common.

A *unit* is what a class stores: a code, an image, an image of tiles. It makes `per_unit` synthetic images: one for each
decoder, one for each tile, or itself. Decoders and whitening are shared by all classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from tinyset.condensed import CondensedSet
from tinyset.errors import UserError
from tinyset.parameterizations.base import Parameterization
from tinyset.parameterizations.labels import NAME as SOFT
from tinyset.version import __version__


@dataclass(frozen=True)
class Parts:
    like: Parameterization  # of the kind and shape to put together
    units: tuple[torch.Tensor, ...]  # of each class: M x ...
    labels: tuple[torch.Tensor, ...] | None  # learned ones, of each class: (M per_unit) x C
    shared: dict[str, torch.Tensor]

    @classmethod
    def of(cls, made: Parameterization) -> "Parts":
        tensors = made.tensors()
        stored, soft = tensors.pop(_stored_name(made)), tensors.pop(SOFT, None)
        counts = unit_counts(made)
        labels = None if soft is None else soft.split([count * per_unit(made) for count in counts])
        return cls(made, stored.split(counts), labels, tensors)

    def together(self) -> Parameterization:
        spec, counts = dict(self.like.spec()), [len(units) for units in self.units]
        if "codes_per_class" in spec:
            spec["codes_per_class"] = counts
        else:
            spec["counts"] = [count * per_unit(self.like) for count in counts]
        tensors = {**self.shared, _stored_name(self.like): torch.cat(self.units)}
        if self.labels is not None:
            tensors[SOFT] = torch.cat(self.labels)
        return type(self.like).restore(spec, tensors)

    def without(self, class_: int) -> "Parts":
        """One class fewer. Learned labels lose its column and add up to one again."""
        kept = [c for c in range(len(self.units)) if c != class_]
        labels = self.labels
        if labels is not None:
            labels = tuple(_shares(labels[c][:, kept], kept.index(c)) for c in kept)
        return replace(self, units=tuple(self.units[c] for c in kept), labels=labels)

    def placed(self, columns: Sequence[int], classes: int) -> "Parts":
        """The same units among `classes` classes, class c at `columns[c]`; classes that are not ours hold nothing."""
        units, labels = [self.units[0][:0]] * classes, None
        if self.labels is not None:
            rows = [self.labels[0].new_zeros(0, classes)] * classes
            for c, column in enumerate(columns):
                rows[column] = self.labels[c].new_zeros(len(self.labels[c]), classes)
                rows[column][:, list(columns)] = self.labels[c]
            labels = tuple(rows)
        for c, column in enumerate(columns):
            units[column] = self.units[c]
        return replace(self, units=tuple(units), labels=labels)

    def and_units_of(self, other: "Parts") -> "Parts":
        """The units of both, class by class. Where only one has learned labels the other's are one-hot."""
        units = tuple(torch.cat(pair) for pair in zip(self.units, other.units, strict=True))
        if self.labels is None and other.labels is None:
            return replace(self, units=units)
        both = zip(self.labels or self._hot(), other.labels or other._hot(), strict=True)
        return replace(self, units=units, labels=tuple(torch.cat(pair) for pair in both))

    def _hot(self) -> tuple[torch.Tensor, ...]:
        hot, each = torch.eye(len(self.units)), per_unit(self.like)
        return tuple(hot[c].expand(len(units) * each, -1) for c, units in enumerate(self.units))


def unit_counts(made: Parameterization) -> list[int]:
    """How many units each class stores."""
    spec = made.spec()
    if "codes_per_class" in spec:
        return list(spec["codes_per_class"])
    return [count // per_unit(made) for count in made.counts]


def refuse_families(made: Parameterization) -> None:
    """The place of a code among those of its class says its family: codes cannot come or go."""
    if made.spec().get("families", 1) > 1:
        raise UserError(
            "A set of several families cannot grow, be slimmed or be merged: change the sets it was made of, and put them "
            "together again (condense --start)."
        )


def per_unit(made: Parameterization) -> int:
    """Synthetic images of one unit."""
    spec = made.spec()
    return int(spec["decoders"] if "decoders" in spec else spec.get("factor", 1) ** 2)


def _stored_name(made: Parameterization) -> str:
    if made.kind not in ("codes", "pixels", "tiles"):
        raise UserError(f"A set of {made.kind} cannot be taken apart.")
    return "codes" if made.kind == "codes" else "images"


def _shares(rows: torch.Tensor, own: int) -> torch.Tensor:
    """Rows that add up to one; what had nothing but the forgotten class is its own class."""
    total = rows.sum(1, keepdim=True)
    hot = torch.eye(rows.shape[1])[own].expand_as(rows)
    return torch.where(total > 0, rows / total.clamp_min(1e-12), hot)


def class_index(condensed: CondensedSet, name: str) -> int:
    if name not in condensed.class_names:
        raise UserError(f"--class {name}: the set has no such class; it has {', '.join(condensed.class_names[:20])}.")
    return condensed.class_names.index(name)


def changed(condensed: CondensedSet, made: Parameterization, said: str, **values: Any) -> CondensedSet:
    """`made` with the description of `condensed`, changed where it would no longer be true.

    What was recorded to repeat the condensation is dropped: it would not give this set.
    """
    config = condensed.config
    update = {
        "spec": made.spec(),
        "condense": {},
        "recipe": None,
        "source_fingerprint": "",
        "library": __version__,
        "history": [*config.history, said],
        "checksum": "",
        **values,
    }
    new = config.model_copy(update=update)
    return CondensedSet(made, new).with_precision(new.precision)  # as it will read after it was written
