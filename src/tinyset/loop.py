"""The one outer loop: (objective.step, optimizer.step)*, with phases, checkpoints that lose nothing and a watch on the loss."""

import math
import time
from collections.abc import Sequence

import torch

from tinyset.config import CondenseConfig
from tinyset.data.imageset import Splits
from tinyset.errors import RunError, UserError
from tinyset.interrupts import Interrupted, Stop
from tinyset.objectives import objective_of
from tinyset.objectives.base import Context, Objective
from tinyset.ownership import Ownership
from tinyset.parameterizations.base import Parameterization
from tinyset.plan import worth_compiling
from tinyset.processes import team
from tinyset.progress import Progress
from tinyset.runs import RunFolder

EXPLODED = 1e6  # times the first loss


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
        kind, options = objective_of(config)
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
