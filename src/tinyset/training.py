"""Train any network on any images, and predict: data resident as one tensor, batched augmentation, compiled steps.

Everything random is a pure function of the seed and of the epoch or step, so a training stopped after any step and
resumed from its checkpoint ends with the same bytes. Batches have one fixed shape, `min(N, batch)`; the last batch of
an epoch holds the rest, as in the papers, and runs uncompiled where it is small (a second shape costs a compilation).
A rest of one image waits for the next epoch's shuffle: batch norm cannot take it.
"""

import math
import time
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import nn

from tinyset import machine
from tinyset.augment import augment_batch, cutmix
from tinyset.errors import RunError
from tinyset.files import load_tree, save_tree
from tinyset.interrupts import Interrupted, Stop
from tinyset.progress import Progress, Silent
from tinyset.protocols import Protocol
from tinyset.rng import generator

Normalisation = tuple[tuple[float, ...], tuple[float, ...]]

CHECKPOINT_EVERY_S = 5.0  # a checkpoint of a large network takes tenths of a second; a resume repeats at most this
LOOK_EVERY, LOOK_EVERY_S = 20, 2.0  # steps or seconds between looks at the loss: each look waits for the device
PREDICT_BATCH = 512


@dataclass(frozen=True)
class TrainedStats:
    steps: int
    images_seen: int
    seconds: float  # of training, over all resumed parts; probes not counted


Probe = Callable[[TrainedStats, nn.Module], None]  # called with (what it took so far, the network)


def train(
    network: nn.Module,
    images: torch.Tensor,
    labels: torch.Tensor,
    protocol: Protocol,
    *,
    normalisation: Normalisation,
    mirror: bool,
    seed: int,
    device: torch.device | str = "cpu",
    compile: bool = False,
    progress: Progress | None = None,
    task: str = "train",
    stop: Stop | None = None,
    checkpoint: Path | None = None,
    checkpoint_every_s: float = CHECKPOINT_EVERY_S,
    at_steps: Mapping[int, Probe] | None = None,
) -> TrainedStats:
    """Train `network` in place, from the weights it has.

    `images`: uint8, or float in [0, 1]; `labels`: int64 (N) or soft targets (N x C). `at_steps` measures along the way:
    {1000: probe} calls `probe(stats so far, network)` after 1000 steps. A `stop` ends the training with `Interrupted`,
    after its checkpoint.
    """
    progress, device = progress or Silent(), torch.device(device)
    if device.type == "cpu":
        machine.keep_memory()
    network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    batches = Batches(images.to(device), labels.to(device), protocol, normalisation, mirror, seed)
    state = _State(
        network, protocol, {"protocol": protocol.model_dump(mode="json"), "seed": seed, "count": len(images)}
    )
    if checkpoint is not None and checkpoint.exists():
        state.load(checkpoint)
    compiled_loss = _compiled(_loss, network, compile, progress)
    total, full_batch = protocol.total_steps(len(images)), protocol.batch_size(len(images))
    progress.start(task, total)
    progress.update(state.step)
    saved = looked = time.monotonic()
    while state.step < total:
        if stop is not None and stop.reason:
            if checkpoint is not None:
                state.save(checkpoint)
            raise Interrupted(f"{task} stopped after step {state.step} of {total} ({stop.reason}).", stop.exit_code)
        began = time.monotonic()
        network.train()
        batch, targets = batches.at(state.step)
        # a rest of a quarter batch or more is worth a compiled shape of its own
        loss_of = compiled_loss if 4 * len(batch) >= full_batch else _loss
        loss = loss_of(network, batch, targets)
        loss.backward()
        state.advance(protocol.rate_at(state.step, len(images)), len(batch))
        if state.step % LOOK_EVERY == 0 or state.step == total or time.monotonic() - looked > LOOK_EVERY_S:
            _look(float(loss.detach()), state.step, task, progress)
            looked = time.monotonic()
        state.seconds += time.monotonic() - began
        if at_steps is not None and state.step in at_steps:
            at_steps[state.step](state.stats(), network)
        epoch_over = state.step % batches.per_epoch == 0
        if checkpoint is not None and epoch_over and time.monotonic() - saved >= checkpoint_every_s:
            state.save(checkpoint)
            saved = time.monotonic()
    network.zero_grad(set_to_none=True)
    return state.stats()


@torch.no_grad()
def predict(
    network: nn.Module,
    images: torch.Tensor,
    *,
    normalisation: Normalisation,
    device: torch.device | str = "cpu",
    compile: bool = False,
    batch: int = PREDICT_BATCH,
    progress: Progress | None = None,
) -> torch.Tensor:
    """The predicted class of every image (uint8, or float in [0, 1]), int64 on the CPU."""
    device = torch.device(device)
    if device.type == "cpu":
        machine.keep_memory()
    network.to(device, memory_format=torch.channels_last).eval()  # type: ignore[call-overload]
    mean, scale = _normalisers(normalisation, images, device)
    classes = _compiled(_classes, network, compile, progress)
    predicted = []
    for chunk in images.split(min(batch, max(len(images), 1))):
        function = classes if len(chunk) == min(batch, len(images)) else _classes  # one compiled shape
        predicted.append(function(network, _channels_last(chunk.to(device)), mean, scale).cpu())
    return torch.cat(predicted) if predicted else torch.zeros(0, dtype=torch.int64)


def _loss(network: nn.Module, batch: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(network(batch), targets)


def _classes(network: nn.Module, batch: torch.Tensor, mean: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return network((batch.to(mean.dtype) - mean) * scale).argmax(1)


_COMPILED: WeakKeyDictionary[nn.Module, dict[str, Callable[..., Any]]] = WeakKeyDictionary()


def _compiled(
    function: Callable[..., Any], network: nn.Module, enabled: bool, progress: Progress | None
) -> Callable[..., Any]:
    """`function` compiled for this network: once, however often it is trained again from new weights."""
    if not enabled:
        return function
    ours = _COMPILED.setdefault(network, {})
    if function.__name__ not in ours:
        # torch counts recompilations per code object and gives up after 8: every network gets a copy of its own
        own = types.FunctionType(function.__code__.replace(), function.__globals__, function.__name__)
        ours[function.__name__] = machine.compiled(own, enabled=True, note=progress.note if progress else None)
    return ours[function.__name__]


def _look(loss: float, step: int, task: str, progress: Progress) -> None:
    if not math.isfinite(loss):
        raise RunError(f"{task}: the loss is {loss} at step {step}; the data or the learning rate does not suit.")
    progress.update(step, loss=loss)


def _channels_last(images: torch.Tensor) -> torch.Tensor:
    return images.contiguous(memory_format=torch.channels_last)


def _normalisers(
    normalisation: Normalisation, images: torch.Tensor, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and 1/std in the units of the pixels: (x - mean) * scale is the normalised image."""
    unit = 255.0 if images.dtype == torch.uint8 else 1.0
    mean, std = (torch.tensor(v, dtype=torch.float32, device=device).reshape(1, -1, 1, 1) for v in normalisation)
    return mean * unit, 1 / (std * unit)


def _shapes(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}


class Batches:
    """Batch k of a training: a pure function of the seed and k."""

    def __init__(
        self,
        images: torch.Tensor,
        labels: torch.Tensor,
        protocol: Protocol,
        normalisation: Normalisation,
        mirror: bool,
        seed: int,
    ) -> None:
        self.images, self.labels, self.protocol, self.mirror, self.seed = images, labels, protocol, mirror, seed
        self.mean, self.scale = _normalisers(normalisation, images, images.device)
        self.size = protocol.batch_size(len(images))
        self.per_epoch = protocol.steps_per_epoch(len(images))
        self.classes = labels.shape[1] if labels.ndim == 2 else int(labels.max()) + 1
        self._epoch, self._order = -1, torch.empty(0)

    def at(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        epoch, k = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            order = torch.randperm(len(self.images), generator=generator(self.seed, "epoch", epoch))
            self._epoch, self._order = epoch, order.to(self.images.device)
        chosen = self._order[k * self.size : (k + 1) * self.size]
        batch = (_channels_last(self.images[chosen]).to(torch.float32) - self.mean) * self.scale
        targets = self.labels[chosen]
        draws = generator(self.seed, "augment", step)
        batch = augment_batch(batch, self.protocol.augmentation, draws, self.mirror)
        if self.protocol.cutmix:
            if targets.ndim == 1:
                targets = F.one_hot(targets, self.classes).to(torch.float32)
            batch, targets = cutmix(batch, targets, draws, self.protocol.cutmix)
        return _channels_last(batch), targets


class _State:
    """Weights, momentum, counters: all that a checkpoint holds."""

    def __init__(self, network: nn.Module, protocol: Protocol, identity: dict[str, Any]) -> None:
        self.network, self.identity = network, identity
        self.step, self.images_seen, self.seconds = 0, 0, 0.0
        self.parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.SGD(
            self.parameters, protocol.rate, protocol.momentum, weight_decay=protocol.weight_decay, foreach=True
        )

    def advance(self, rate: float, images: int) -> None:
        self.optimizer.param_groups[0]["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self.images_seen += images

    def stats(self) -> TrainedStats:
        return TrainedStats(self.step, self.images_seen, self.seconds)

    def save(self, path: Path) -> None:
        momentum = [self.optimizer.state[p].get("momentum_buffer") for p in self.parameters]
        counters = {"step": self.step, "images_seen": self.images_seen, "seconds": self.seconds}
        tree = {"identity": self.identity, "weights": self.network.state_dict(), "momentum": momentum, **counters}
        save_tree(path, tree)

    def load(self, path: Path) -> None:
        tree = load_tree(path, "training checkpoint")
        if tree.get("identity") != self.identity or _shapes(tree["weights"]) != _shapes(self.network.state_dict()):
            raise RunError(f"The checkpoint {path} belongs to another training: delete it.")
        self.network.load_state_dict(tree["weights"])
        for parameter, buffer in zip(self.parameters, tree["momentum"], strict=True):
            if buffer is not None:
                self.optimizer.state[parameter]["momentum_buffer"] = torch.empty_like(parameter).copy_(buffer)
        self.step, self.images_seen, self.seconds = tree["step"], tree["images_seen"], tree["seconds"]
