"""Two condensed sets in one: classes of the same name are put together, the others stand side by side.

Codes are nothing without their decoders, and every code of a set goes through every decoder of it. Sets with the same
decoders share them. Sets with different decoders are refused, unless the second one's codes may be learned anew for the
decoders of the first (`recode`): its synthetic images are then the data, no other is needed.
"""

from typing import Any

import torch

from tinyset.condensed import CondensedSet
from tinyset.data.imageset import ImageSet, Splits
from tinyset.downstream.living import match, matching_settings, new_class
from tinyset.downstream.parts import Parts, changed, refuse_families, unit_counts
from tinyset.errors import UserError
from tinyset.parameterizations.base import Parameterization
from tinyset.parameterizations.codes import Codes
from tinyset.parameterizations.tiles import Tiles
from tinyset.progress import Progress, Silent
from tinyset.storage import PRECISIONS


def merge(
    first: CondensedSet,
    second: CondensedSet,
    *,
    recode: bool = False,
    progress: Progress | None = None,
    **settings: Any,
) -> CondensedSet:
    """One set of both. Learned labels are carried, and are one-hot where a set has none.

    `settings` are those of `CondenseConfig` for `recode`: steps, network, seed, ...
    """
    a, b = first.parameterization, second.parameterization
    _refuse_unlike(first, second)
    if not same_shared(a, b):
        if not recode or not isinstance(a, Codes):
            raise UserError(_different(a))
        b = _recoded(a, second, progress or Silent(), settings)
    names = list(dict.fromkeys([*first.class_names, *second.class_names]))
    ours, theirs = ([names.index(name) for name in made.class_names] for made in (first, second))
    parts = Parts.of(a).placed(ours, len(names)).and_units_of(Parts.of(b).placed(theirs, len(names)))
    said = "two sets merged" + (", the second recoded" if b is not second.parameterization else "")
    history = [*first.config.history, *second.config.history, said]
    values = {**_description(first, second, len(names)), "class_names": names, "history": history}
    return changed(first, parts.together(), said, **values)


def same_shared(a: Parameterization, b: Parameterization) -> bool:
    """Whether units of one mean the same in the other: equal decoders, equal whitening, or nothing shared."""
    ours, theirs = Parts.of(a).shared, Parts.of(b).shared
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def _different(a: Parameterization) -> str:
    if isinstance(a, Codes):
        return (
            "The two sets have different decoders, and codes mean nothing to decoders they were not made for: --recode "
            "learns the second set's codes anew for the decoders of the first."
        )
    return "The two sets store whitened images of different whitenings: they cannot be merged."


def _refuse_unlike(first: CondensedSet, second: CondensedSet) -> None:
    a, b = first.parameterization, second.parameterization
    refuse_families(a)
    refuse_families(b)
    if a.kind != b.kind:
        raise UserError(f"A set of {a.kind} and a set of {b.kind} cannot be merged.")
    if first.image_shape != second.image_shape:
        shapes = " and ".join("x".join(map(str, made.image_shape)) for made in (first, second))
        raise UserError(f"The two sets hold images of different shapes, {shapes}: they cannot be merged.")
    if isinstance(a, Tiles) and isinstance(b, Tiles) and a.factor != b.factor:
        raise UserError(
            f"The two sets hold tiles of different factors, {a.factor} and {b.factor}: they cannot be merged."
        )
    if first.config.whitening != second.config.whitening:
        raise UserError(
            "Networks see images of the two sets through different whitening filters: they cannot be merged."
        )
    if first.fingerprint == second.fingerprint:
        raise UserError("The two sets are the same.")


def _recoded(a: Codes, second: CondensedSet, progress: Progress, settings: dict[str, Any]) -> Parameterization:
    """The second set with the decoders of the first: as many codes, learned from its own synthetic images."""
    if second.soft_labels is not None:
        raise UserError("--recode: learned labels belong to the images they were learned with; they cannot be carried.")
    config = matching_settings("codes", settings)
    counts = unit_counts(second.parameterization)
    units = []
    for c, name in enumerate(second.class_names):
        images = (second.images(c) * 255).round().to(torch.uint8)
        real = ImageSet(images, torch.zeros(len(images), dtype=torch.int64), (name,), second.stats)
        new = new_class(a, real, counts[c], config.seed)
        match(new, Splits(name, real, mirror=second.mirror), config, progress)
        units.append(Parts.of(new).units[0])
    return Parts(a, tuple(units), None, Parts.of(a).shared).together()


def _description(first: CondensedSet, second: CondensedSet, classes: int) -> dict[str, Any]:
    """What both sets together stand for. Sets of the same source stand for it once."""
    a, b = first.config, second.config
    same = bool(a.source_fingerprint) and a.source_fingerprint == b.source_fingerprint
    known = a.source_bytes > 0 and b.source_bytes > 0
    budget = a.nominal_params_per_class * len(a.class_names) + b.nominal_params_per_class * len(b.class_names)
    weights = (a.source_images, b.source_images) if a.source_images and b.source_images else (len(first), len(second))
    mean, std = _pooled((a.mean, a.std), (b.mean, b.std), weights)
    values: dict[str, Any] = {
        "mean": mean,
        "std": std,
        "mirror": a.mirror and b.mirror,
        "method": a.method if a.method == b.method else f"{a.method} + {b.method}",
        "source": a.source if a.source == b.source else f"{a.source} + {b.source}",
        "nominal_params_per_class": budget / classes,
        "precision": min(a.precision, b.precision, key=PRECISIONS.index),
    }
    if same:
        return values | {"source_fingerprint": a.source_fingerprint}
    return values | {
        "source_bytes": a.source_bytes + b.source_bytes if known else 0,
        "source_images": a.source_images + b.source_images if known else 0,
    }


def _pooled(
    a: tuple[list[float], list[float]], b: tuple[list[float], list[float]], weights: tuple[int, int]
) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of two groups of images together, per channel."""
    if a == b:
        return a
    share = weights[0] / sum(weights)
    mean, std = [], []
    for ma, sa, mb, sb in zip(*a, *b, strict=True):
        m = share * ma + (1 - share) * mb
        second = share * (sa**2 + ma**2) + (1 - share) * (sb**2 + mb**2)
        mean.append(round(m, 4))
        std.append(round(max(second - m**2, 1e-8) ** 0.5, 4))
    return mean, std
