"""Experts: networks trained on the real images, weights kept after every epoch. Trained once, reused by every run.

Plain SGD without momentum (as MTT has it), so the weights of the last epoch are all a resumed training needs: a
killed build goes on from its last whole epoch with the same bytes. Asking for more experts or more epochs trains only
the new ones.
"""

from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tinyset.augment import Siamese
from tinyset.errors import RunError
from tinyset.files import load_tree, lock, save_tree
from tinyset.interrupts import Interrupted, Stop
from tinyset.networks import reset
from tinyset.objectives.base import Context
from tinyset.objectives.learner import Learner, compiled_loss
from tinyset.processes import team
from tinyset.rng import derive, generator

FORMAT = 1


class Experts:
    """The experts of one dataset under one kind of network and one way of training."""

    def __init__(
        self,
        context: Context,
        network: nn.Module,
        *,
        rate: float,
        batch: int,
        epoch_steps: int | None,
        augment: str,
        seed: int,
        root: Path,
    ) -> None:
        self.context = context
        self.learner = Learner(network, rate=rate, loss=compiled_loss(context, network))
        self.batch = batch
        self.epoch_steps = epoch_steps
        self.augment = augment
        self.seed = seed
        self.dtype = next(network.parameters()).dtype
        real = context.real
        self.identity: dict[str, Any] = {
            "format": FORMAT,
            "data": real.fingerprint,
            "stats": [list(v) for v in real.stats],
            "network": context.network,
            "rate": rate,
            "batch": batch,
            "epoch_steps": epoch_steps,
            "augment": augment,
            "mirror": context.mirror,
            "seed": seed,
            "dtype": str(self.dtype),
        }
        self.folder = root / "experts" / f"{derive(0, repr(sorted(self.identity.items()))):016x}"

    def path(self, expert: int, epoch: int) -> Path:
        return self.folder / f"expert-{expert:04d}" / f"epoch-{epoch:03d}.safetensors"

    def load(self, expert: int, epoch: int) -> torch.Tensor:
        """The weights of an expert after `epoch` epochs, as one vector."""
        tree = load_tree(self.path(expert, epoch), "expert file")
        if tree.get("identity") != self.identity:
            raise RunError(f"The expert file {self.path(expert, epoch)} belongs to other data or options: delete it.")
        return tree["weights"].to(self.context.device)

    def size(self, epochs: int) -> int:
        """How many experts are stored up to this epoch."""
        count = 0
        while self.path(count, epochs).exists():
            count += 1
        return count

    def ensure(self, experts: int, epochs: int, stop: Stop) -> int:
        """Train what is missing; returns how many experts there are (fewer where `stop` said so, but at least one).

        A team's processes train (and write) every so-manieth expert each.
        """
        us = team()
        if us.first(lambda: self.size(epochs)) >= experts:
            return experts
        waiting = partial(stop.leave, f"while another process trains {self.folder}")
        guard = lock(self.folder / ".lock", wait=True, busy="", meanwhile=waiting) if us.leads else None
        try:
            us.first(lambda: None)  # the folder is ours; what others trained is there
            self.context.progress.start("experts", experts * epochs)
            self._train_all(range(us.rank, experts, us.size), epochs, stop)
            stopped = stop.reason_of_all(us)
        finally:
            if guard is not None:
                guard.release()
        return min(experts, self._stopped(epochs, stop)) if stopped else experts

    def _train_all(self, experts: range, epochs: int, stop: Stop) -> None:
        for expert in experts:
            for epoch in range(epochs + 1):
                if not self.path(expert, epoch).exists() and not self._train(expert, epoch, stop):
                    return
                self.context.progress.update(expert * epochs + epoch)

    def _stopped(self, epochs: int, stop: Stop) -> int:
        if have := team().first(lambda: self.size(epochs)):
            return have
        raise Interrupted(f"Training of the first expert stopped ({stop.reason}).", stop.exit_code)

    def _train(self, expert: int, epoch: int, stop: Stop) -> bool:
        """One epoch (0: the first weights), from the weights of the epoch before it. False where `stop` said so."""
        if epoch == 0:
            reset(self.learner.network, generator(self.seed, "expert", expert))
        else:
            put_weights(self.learner.network, self.load(expert, epoch - 1))
            if not self._pass(expert, epoch, stop):
                return False
        weights = take_weights(self.learner.network)
        save_tree(self.path(expert, epoch), {"identity": self.identity, "weights": weights})
        return True

    def _pass(self, expert: int, epoch: int, stop: Stop) -> bool:
        real, device = self.context.real, self.context.device
        mean, std = (torch.tensor(v, device=device, dtype=self.dtype).view(1, -1, 1, 1) for v in real.stats)
        order = torch.randperm(len(real), generator=generator(self.seed, "expert order", expert, epoch))
        whole = max(1, len(real) // self.batch)  # batches of one shape; the rest waits for the next shuffle
        for i, index in enumerate(order.split(self.batch)[: min(whole, self.epoch_steps or whole)]):
            if stop.reason:
                return False
            images = (real.images[index].to(device, self.dtype) / 255 - mean) / std
            if self.augment != "none":
                family = Siamese(self.augment, mirror=self.context.mirror)
                draw = family.draw(generator(self.seed, "expert augment", expert, epoch, i), len(images))
                images = family.apply(images, draw)
            targets = F.one_hot(real.labels[index].to(device), real.classes).to(self.dtype)
            self.learner.update(images, targets)
        return True


def take_weights(network: nn.Module) -> torch.Tensor:
    """All parameters as one vector, in their order."""
    return torch.cat([weight.detach().flatten() for weight in network.parameters()])


@torch.no_grad()
def put_weights(network: nn.Module, vector: torch.Tensor) -> None:
    for name, weight in split_weights(network, vector).items():
        network.get_parameter(name).copy_(weight)


def split_weights(network: nn.Module, vector: torch.Tensor) -> dict[str, torch.Tensor]:
    """The inverse of `take_weights`: views of the vector by parameter name, differentiable."""
    named = list(network.named_parameters())
    parts = vector.split([weight.numel() for _, weight in named])
    return {name: part.view_as(weight) for (name, weight), part in zip(named, parts, strict=True)}
