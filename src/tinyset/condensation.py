"""The one outer loop: start -> (objective.step, optimizer.step)* -> CondensedSet, with checkpoints that lose nothing."""

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tinyset.budget import CodePlan
from tinyset.condensed import CondensedSet, make_config
from tinyset.config import CondenseConfig, Settings
from tinyset.data.imageset import ImageSet, Splits
from tinyset.errors import RunError, UserError
from tinyset.interrupts import Interrupted, Stop
from tinyset.machine import keep_memory, pick_device, set_threads
from tinyset.methods import resolve
from tinyset.objectives import objective_class
from tinyset.objectives.base import Context, Objective
from tinyset.ownership import Ownership
from tinyset.parameterizations.base import Parameterization
from tinyset.plan import available_memory_bytes, forecast, refuse_what_does_not_fit, worth_compiling
from tinyset.processes import restarted, team
from tinyset.progress import Progress, Silent
from tinyset.runs import RunFolder
from tinyset.starts import nominal_values, plan, start

EXPLODED = 1e6  # times the first loss


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
    recipe: str | None = "fast",
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
        condensed = CondensedSet(synthetic.cpu(), _artifact_config(config, data, synthetic, loop.step, recipe))
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
    kind, _ = _options(config)
    if config.precision != "float32" and config.objective != "distribution":
        raise UserError(
            f"--precision {config.precision} is for the distribution objective, not for {config.objective}."
        )
    if team().size > 1 and (kind is None or kind.divides is None):
        raise UserError(
            f"--{'objective ' + config.objective if config.objective else 'method ' + config.method} is the work of one "
            "process: start it without torchrun."
        )


def _options(config: CondenseConfig) -> tuple[type[Objective] | None, Settings | None]:
    if config.objective is None:
        return None, None
    kind = objective_class(config.objective)
    fields = kind.Options.model_fields
    values = {key: getattr(config, key) for key in ("networks", "real_per_class", "batch") if key in fields}
    return kind, kind.Options.parse(values | config.options, f"options of the {config.objective} objective")


class Loop:
    """The optimizers and the position; everything a checkpoint holds."""

    def __init__(
        self,
        config: CondenseConfig,
        data: Splits,
        synthetic: Parameterization,
        device: torch.device,
        folder: RunFolder,
        progress: Progress,
        stop: Stop,
    ) -> None:
        self.config, self.synthetic, self.folder, self.progress, self.stop = config, synthetic, folder, progress, stop
        self.step = 0
        self.loss: float | None = None
        self.first_loss: float | None = None
        self.resumed_from: int | None = None
        self.stopped: str | None = None
        self.class_names = data.class_names
        self.data = data.train.fingerprint
        kind, options = _options(config)
        self.objective: Objective | None = None
        if kind is not None and options is not None and config.steps > 0:
            context = Context(
                real=data.train,
                network=config.network,
                seed=config.seed,
                device=device,
                mirror=data.mirror,
                compile=worth_compiling(config, data.train, synthetic.counts),
                chunk=config.chunk,
                memory_limit_bytes=config.memory_limit_bytes,
                precision=config.precision,
                progress=progress,
                stop=stop,
            )
            self.objective = kind(context, options)

    def run(self, until: int | None = None) -> None:
        if self.objective is None:
            return
        last = self.config.steps if until is None else min(until, self.config.steps)
        self.objective.prepare(self.synthetic)
        if team().size > 1 and self.objective.divides != "steps":
            self.progress.note(f"The steps of {self.config.objective} are not divided: every process does all of them.")
        self.ownership = Ownership(self.synthetic, self.objective.division, team())
        self.optimizer = self._optimizer(self.objective)
        self._resume()
        self.progress.start("condense", last)
        while self.step < last:
            if self.stop.reason_of_all(team()) is not None:
                self._leave()
                break
            self._one_step(self.objective)
            if self.step % self.config.checkpoint_every == 0:
                self._checkpoint()
        else:
            self._checkpoint()
        self.ownership.put_together()

    def _one_step(self, objective: Objective) -> None:
        began = time.monotonic()
        self._set_rates(objective)
        self.optimizer.zero_grad()
        losses = objective.step(self.synthetic, self.step)
        self._judge(losses.total, losses.per_class)
        self.ownership.hand_over()
        self.optimizer.step()
        self.synthetic.project()
        self.folder.metric({"step": self.step, "loss": losses.total, "seconds": round(time.monotonic() - began, 4)})
        self.step += 1
        self.loss = losses.total
        self.progress.update(self.step, loss=losses.total)

    def _judge(self, total: float, per_class: Sequence[float]) -> None:
        """A loss that is no number or runs away stops the run; the last checkpoint stays."""
        self.first_loss = total if self.first_loss is None else self.first_loss
        limit = EXPLODED * max(abs(self.first_loss), 1e-12)
        bad = [c for c, loss in enumerate(per_class) if not math.isfinite(loss) or abs(loss) > limit]
        if bad or not math.isfinite(total) or abs(total) > limit:
            where = f", first in class {self.class_names[bad[0]]!r}" if bad else ""
            raise RunError(
                f"The loss is {total:.4g} at step {self.step}{where}: lower the rates; the last checkpoint is intact."
            )

    def _optimizer(self, objective: Objective) -> torch.optim.Optimizer:
        groups = []
        for name, parameters in {**self.synthetic.groups(), **objective.parameters()}.items():
            rate = self.config.rates.get(name)
            if rate is None:
                raise UserError(f"There is no learning rate for {name!r}: set it in `rates`.")
            moved = [self.ownership.moved(parameter) for parameter in parameters]
            groups.append({"params": moved, "lr": rate, "rate": rate})
        if self.config.optimizer == "adam":
            return torch.optim.Adam(groups)
        return torch.optim.SGD(groups, momentum=self.config.momentum)

    def _set_rates(self, objective: Objective) -> None:
        """Constant, and linear to zero over the last `decay` share of a phase; a new phase forgets the optimizer's state."""
        phase, decay = objective.phase(self.step, self.config.steps), self.config.decay
        if self.step == phase.first:
            self.optimizer.state.clear()
        left = (phase.last - self.step) / (phase.last - phase.first)
        factor = phase.factor * (min(1.0, left / decay) if decay > 0 else 1.0)
        for group in self.optimizer.param_groups:
            group["lr"] = group["rate"] * factor

    # -- what survives a kill -------------------------------------------------------------------------------------

    def _leave(self) -> None:
        self._checkpoint()
        self.stopped = self.stop.reason
        if self.stop.exit_code:
            raise Interrupted(
                f"Stopped by {self.stopped} after step {self.step} of {self.config.steps}; --resume goes on from there.",
                self.stop.exit_code,
            )

    def _checkpoint(self) -> None:
        assert self.objective is not None
        state = self.optimizer.state_dict()
        self.ownership.put_together()
        self.folder.checkpoint(
            self.step,
            {
                "step": self.step,
                "data": self.data,
                "class_names": list(self.class_names),
                "counts": list(self.synthetic.counts),
                "first_loss": self.first_loss,
                "loss": self.loss,
                "synthetic": dict(self.synthetic.named_parameters()),
                "optimizer": {
                    "state": self.ownership.whole_state(state["state"]),
                    "param_groups": state["param_groups"],
                },
                "objective": self.objective.state(),
            },
        )

    def _resume(self) -> None:
        saved = team().first(lambda: self.folder.newest_checkpoint(self.progress.note))
        if saved is None or self.objective is None:
            self.folder.keep_metrics(0)
            return
        if saved.get("data", self.data) != self.data:
            raise UserError("--resume: the images are not those the run began with.")
        own = dict(self.synthetic.named_parameters())
        with torch.no_grad():
            for name, value in saved["synthetic"].items():
                own[name].copy_(value)
        optimizer = saved["optimizer"]
        states = self.ownership.own_state({int(key): value for key, value in optimizer["state"].items()})
        self.optimizer.load_state_dict({"state": states, "param_groups": optimizer["param_groups"]})
        self.objective.restore(saved["objective"])
        self.step = self.resumed_from = saved["step"]
        self.first_loss, self.loss = saved["first_loss"], saved["loss"]
        self.folder.keep_metrics(self.step)


def _artifact_config(
    config: CondenseConfig, data: Splits, synthetic: Parameterization, steps: int, recipe: str | None
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
        mirror=data.mirror,
        precision=config.storage,
        protocol=config.protocol or "kfs-aug",
        method=config.method,
        recipe=recipe,
        seed=config.seed,
        steps=steps,
        nominal_params_per_class=sum(nominal) / len(nominal),
        source=data.name,
        source_fingerprint=real.fingerprint,
        source_bytes=real.images.numel(),
        source_images=len(real),
        condense=json.loads(config.model_dump_json(exclude={"device", "threads", "time_limit_s", "checkpoint_every"})),
    )
