"""Step 0: the synthetic set a method starts from, of the size its budget allows."""

import math
from dataclasses import replace
from typing import Any

import torch

from tinyset.budget import FACTOR, MOST_OVER, NUMBER_BYTES, CodePlan, nominal_budget, plan_codes
from tinyset.condensed import load
from tinyset.config import CondenseConfig
from tinyset.data.imageset import ImageSet
from tinyset.errors import UserError
from tinyset.files import cache_dir
from tinyset.interrupts import Stop
from tinyset.parameterizations.base import Parameterization
from tinyset.parameterizations.beginnings import create_codes, extend_codes, side_by_side
from tinyset.parameterizations.codes import Codes
from tinyset.progress import Progress
from tinyset.rng import generator
from tinyset.saving import serialize
from tinyset.whitening import Filter


def plan(config: CondenseConfig, real: ImageSet) -> CodePlan | tuple[int, ...]:
    """What will be stored: a plan of codes and decoders, or full-size images per class. Raises where nothing fits."""
    shape = real.image_shape
    nominal = nominal_values(config, real)
    begun = _begun(config, real)
    if begun is not None and begun.families > 1:
        return _of_families(begun, nominal, config)
    if config.parameterization == "codes":
        planned = plan_codes(
            nominal,
            shape,
            decoder=config.decoder,
            decoders=config.decoders if begun is None else begun.per_code,
            codes=config.codes,
            code_channels=config.code_channels,
            budget_bytes=config.budget_bytes,
            storage=config.storage,
        )
        if config.budget_bytes is not None:
            planned = _within(planned, shape, config.budget_bytes, config.storage)
        if begun is not None:
            _holds(planned, begun, config)
        return planned
    numbers = math.prod(shape)
    counts = tuple(int(budget // numbers) for budget in nominal)
    if min(counts) < 1:
        raise UserError(
            f"The budget of {min(nominal)} numbers per class is too small for one image of {numbers} numbers."
        )
    return counts


def _begun(config: CondenseConfig, real: ImageSet) -> Codes | None:
    """The set a run begins with, where it names one; several, separated by commas, stand side by side as families."""
    if config.start is None:
        return None
    names = config.start.split(",")
    sets = [_loaded(name, config, real) for name in names]
    for name, made in zip(names, sets, strict=True):
        if made.spec() != sets[0].spec():
            raise UserError(
                f"--start {name}: its codes and decoders are not as many, or of another size, than the first's."
            )
    return sets[0] if len(sets) == 1 else side_by_side(sets)


def start_whitening(config: CondenseConfig) -> Filter | None:
    """What networks see the images of the sets through that a run begins with."""
    filters = [load(name).config.whitening for name in (config.start or "").split(",") if name]
    if any(own != filters[0] for own in filters):
        raise UserError(f"--start {config.start}: networks see images of these sets through different filters.")
    return filters[0] if filters else None


def _loaded(name: str, config: CondenseConfig, real: ImageSet) -> Codes:
    found = load(name)
    made = found.parameterization
    if not isinstance(made, Codes) or config.parameterization != "codes":
        raise UserError(f"--start {name}: only codes and decoders can begin a set of codes and decoders.")
    if (found.class_names, found.image_shape) != (tuple(real.class_names), tuple(real.image_shape)):
        raise UserError(f"--start {name}: its classes or the size of its images are not those of the data.")
    if found.soft_labels is not None:
        raise UserError(f"--start {name}: its labels were learned, and further codes would have none.")
    if config.init == "noise":
        raise UserError(f"--start {name}: further codes are made of real images: leave --init noise out.")
    return made


def _of_families(begun: Codes, nominal: tuple[int, ...], config: CondenseConfig) -> CodePlan:
    """Families are stored as they are: there is a limit, and nothing to plan."""
    shape = (begun.codes.shape[1], begun.codes.shape[2], begun.codes.shape[3])
    decoder = next(name for name, factor in FACTOR.items() if factor == begun.decoders.factor)
    channels, codes = begun.decoders.channels, begun.codes_per_class
    planned = CodePlan(decoder, channels, shape, codes, begun.per_code, nominal, begun.families)
    if config.budget_bytes is not None:
        have, most, unit = len(serialize(begun, config.storage)), config.budget_bytes, "bytes"
    else:
        have, most, unit = (
            round(planned.params_per_class),
            int(MOST_OVER * sum(nominal) / len(nominal)),
            "numbers per class",
        )
    if have > most:
        raise UserError(
            f"--start: the {begun.families} families have {have:,} {unit}, and the budget is {most:,}: raise it, or name "
            "fewer sets."
        )
    if config.decoders is not None or config.codes is not None:
        raise UserError("--start: families keep their codes and decoders: leave --codes and --decoders out.")
    return planned


def _holds(planned: CodePlan, begun: Codes, config: CondenseConfig) -> None:
    """Whether the set that is planned can hold the one it begins with."""
    shape = tuple(begun.codes.shape[1:])
    if (shape, begun.decoders.channels) != (tuple(planned.code_shape), tuple(planned.channels)):
        sizes = " and ".join("x".join(map(str, size)) for size in (shape, planned.code_shape))
        raise UserError(f"--start {config.start}: its codes and those of this budget differ, {sizes}.")
    if config.decoders not in (None, begun.per_code):
        raise UserError(f"--start {config.start} has {begun.per_code} decoders: leave --decoders out.")
    if any(own > count for own, count in zip(begun.codes_per_class, planned.codes, strict=True)):
        raise UserError(f"--start {config.start} has more codes than the budget holds: raise the budget.")


def _within(planned: CodePlan, shape: tuple[int, int, int], budget_bytes: int, storage: str) -> CodePlan:
    """Fewer codes until the file itself, header and scales included, is within the limit."""
    while True:
        empty = Codes(shape, planned.codes, planned.code_shape, planned.channels, planned.decoders)
        size = len(serialize(empty, storage))
        if size <= budget_bytes:
            return planned
        if min(planned.codes) == 1:
            raise UserError(f"--budget-bytes {budget_bytes} is too small: one code per class takes {size} bytes.")
        planned = replace(planned, codes=tuple(count - 1 for count in planned.codes))


def nominal_values(config: CondenseConfig, real: ImageSet) -> tuple[int, ...]:
    """The budget of each class in numbers."""
    if config.budget_bytes is not None:
        numbers = config.budget_bytes // NUMBER_BYTES[config.storage]
        return (max(0, numbers // real.classes),) * real.classes
    return nominal_budget(
        real.class_names,
        real.image_shape,
        images_per_class=config.images_per_class,
        params_per_class=config.params_per_class,
    )


def start(
    config: CondenseConfig,
    real: ImageSet,
    sizes: Any,
    device: torch.device,
    progress: Progress,
    stop: Stop | None = None,
) -> Parameterization:
    """The parameterization at step 0."""
    if (begun := _begun(config, real)) is not None:
        whole = begun.families > 1
        return (begun if whole else extend_codes(begun, real, sizes, seed=config.seed)).requires_grad_().to(device)
    if config.parameterization == "codes":
        return create_codes(
            real,
            sizes,
            init=config.init or "real",
            pretrain_steps=config.pretrain_steps,
            pretrain_batch=config.pretrain_batch,
            pretrain_rate=config.pretrain_rate,
            noise=config.decoder_noise,
            seed=config.seed,
            device=device,
            cache=cache_dir(),
            progress=progress,
            stop=stop,
        )
    from tinyset.parameterizations.pixels import Pixels
    from tinyset.parameterizations.tiles import Tiles

    draw = generator(config.seed, "start")
    if config.parameterization == "tiles":
        return Tiles.create(real, sizes, config.init or "real", draw, factor=config.tile_factor).to(device)
    made = Pixels.create(real, sizes, config.init or "real", draw)
    if config.objective is None:
        from tinyset.selection import select

        index = select(
            config.method, real, sizes, seed=config.seed, network=config.network, device=device, progress=progress
        )
        made.assign(real.images[index].float() / 255)
    return made.to(device)
