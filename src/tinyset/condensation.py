"""A condensation from images to CondensedSet: settings checked, start, the loop (`loop.py`), the artifact."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tinyset.budget import CodePlan
from tinyset.condensed import CondensedSet, make_config
from tinyset.config import CondenseConfig
from tinyset.data.imageset import ImageSet, Splits
from tinyset.errors import UserError
from tinyset.interrupts import Stop
from tinyset.loop import Loop
from tinyset.machine import keep_memory, pick_device, set_threads
from tinyset.methods import resolve
from tinyset.objectives import objective_of
from tinyset.parameterizations.base import Parameterization
from tinyset.plan import available_memory_bytes, forecast, refuse_what_does_not_fit
from tinyset.processes import restarted, team
from tinyset.progress import Progress, Silent
from tinyset.runs import RunFolder
from tinyset.starts import nominal_values, plan, start, start_whitening


@dataclass(frozen=True)
class Outcome:
    condensed: CondensedSet
    steps: int
    resumed_from_step: int | None
    stopped: str | None  # None: all steps done; "time": the limit
    seconds: float
    loss: float | None


def condense(
    images: Any,
    labels: Any = None,
    *,
    recipe: str | None = "plain",
    out: str | Path | None = None,
    progress: Progress | None = None,
    class_names: Sequence[str] | None = None,
    **settings: Any,
) -> CondensedSet:
    """Condense arrays, tensors, any map-style Dataset, or a source by name or path.

    `settings` are the keys of `CondenseConfig`: images_per_class=1, method="kfs", steps=500, seed=0, ...
    """
    from tinyset.data import from_arrays, from_dataset, load_images

    if isinstance(images, Splits):
        data = images
    elif isinstance(images, ImageSet):
        data = Splits("images", images)
    elif isinstance(images, str | Path):
        data = load_images(str(images))
    elif labels is not None:
        data = Splits("arrays", from_arrays(images, labels, class_names=class_names))
    else:
        data = Splits("dataset", from_dataset(images))
    config = resolve(recipe, settings)
    return run(config, data, out=None if out is None else Path(out), progress=progress, recipe=recipe).condensed


def run(
    config: CondenseConfig,
    data: Splits,
    *,
    out: Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    stop: Stop | None = None,
    recipe: str | None = None,
    command: str | None = None,
    until: int | None = None,
) -> Outcome:
    """Condense `data.train` by `config`; `out` is the run's folder, None for no files.

    In a team (`processes.join`) every process calls this: the first one alone writes, all get the result. A run that
    torchrun starts again after a worker died is resumed. `command` is what the user typed, for the record. `until` ends the
    loop after that step, where a time limit once did.
    """
    began = time.monotonic()
    progress, stop = progress or Silent(), stop or Stop(config.time_limit_s)
    check(config, data.train)
    device = pick_device(config.device)
    set_threads(config.threads)
    keep_memory()
    sizes = plan(config, data.train)
    refuse_what_does_not_fit(forecast(config, data.train, sizes), config, available_memory_bytes(device.type))
    if isinstance(sizes, CodePlan):
        progress.note(sizes.describe())
    us, again = team(), restarted()
    place = out if us.leads else None
    with RunFolder(place, config, resume=resume or again, overwrite=overwrite and not again, command=command) as folder:
        synthetic = us.first(lambda: start(config, data.train, sizes, device, progress, stop).cpu()).to(device)
        loop = Loop(config, data, synthetic, device, folder, progress, stop)
        loop.run(until)
        condensed = CondensedSet(synthetic.cpu(), _artifact_config(config, data, synthetic, loop, recipe))
        if place is not None:
            condensed.save(place / "artifact", overwrite=True)
    return Outcome(condensed, loop.step, loop.resumed_from, loop.stopped, time.monotonic() - began, loop.loss)


def check(config: CondenseConfig, real: ImageSet) -> None:
    """What would fail later is said now."""
    for name, count in zip(real.class_names, real.counts, strict=True):
        if count == 0:
            raise UserError(f"The class {name!r} has no training images.")
    if real.classes < 2:
        raise UserError(f"There is only one class, {real.class_names[0]!r}: a classifier needs two or more.")
    kind, options = objective_of(config)
    if config.steps and start_whitening(config) is not None and not getattr(options, "whiten", 0):
        raise UserError(
            f"--start {config.start}: networks see its images whitened: only kfr goes on with it, by --option whiten=0.1."
        )
    if config.precision != "float32" and config.objective != "distribution":
        raise UserError(
            f"--precision {config.precision} is for the distribution objective, not for {config.objective}."
        )
    if team().size > 1 and (kind is None or kind.divides is None):
        raise UserError(
            f"--{'objective ' + config.objective if config.objective else 'method ' + config.method} is the work of one "
            "process: start it without torchrun."
        )


def _artifact_config(
    config: CondenseConfig, data: Splits, synthetic: Parameterization, loop: Loop, recipe: str | None
) -> Any:
    real = data.train
    mean, std = real.stats
    nominal = nominal_values(config, real)
    return make_config(
        kind=synthetic.kind,
        spec=synthetic.spec(),
        class_names=list(real.class_names),
        image_shape=real.image_shape,
        mean=list(mean),
        std=list(std),
        whitening=start_whitening(config) if loop.objective is None else loop.objective.whitening,
        mirror=data.mirror,
        precision=config.storage,
        protocol=config.protocol or "kfs-aug",
        method=config.method,
        recipe=recipe,
        seed=config.seed,
        steps=loop.step,
        nominal_params_per_class=sum(nominal) / len(nominal),
        source=data.name,
        source_fingerprint=real.fingerprint,
        source_bytes=real.images.numel(),
        source_images=len(real),
        condense=json.loads(config.model_dump_json(exclude={"device", "threads", "time_limit_s", "checkpoint_every"})),
    )
