"""Train any network on any images, and predict: data resident as one tensor, batched augmentation, compiled steps.

Everything random is a pure function of the seed and of the epoch or step, so a training stopped after any step and
resumed from its checkpoint ends with the same bytes. With `compile`, the ConvNet of the papers runs on kernels of our own
on CPUs; everything else on `torch.compile`: full batches run compiled, the last batch of an epoch runs uncompiled where
it is small (a second shape costs a compilation).
"""

import math
import time
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeGuard
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import nn

from tinyset import machine
from tinyset.batches import Batches, Normalisation, Normaliser
from tinyset.engine import COMPILE_FROM_IMAGES
from tinyset.errors import Diverged, RunError
from tinyset.files import load_tree, save_tree
from tinyset.interrupts import Interrupted, Stop
from tinyset.kernels import Classifier, suits
from tinyset.networks.convnet import ConvNet
from tinyset.progress import Progress, Silent
from tinyset.protocols import Protocol

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
    batches = Batches(images.to(device), labels.to(device), protocol, normalisation, mirror, seed, _outputs(network))
    state = _State(
        network, protocol, {"protocol": protocol.model_dump(mode="json"), "seed": seed, "count": len(images)}
    )
    if checkpoint is not None and checkpoint.exists():
        state.load(checkpoint)
    idle = idle_biases(network)
    model, compiled_loss = _fast(_loss, network, compile, device, progress)
    total, full_batch = protocol.total_steps(len(images)), protocol.batch_size(len(images))
    progress.start(task, total)
    progress.update(state.step)
    saved = looked = time.monotonic()
    while state.step < total:
        if stop is not None and stop.reason:
            if checkpoint is not None:
                state.save(checkpoint)
            where = f"{task} stopped by {stop.reason} after step {state.step} of {total}"
            raise Interrupted(where + ("; run it again to go on." if checkpoint else "."), stop.exit_code)
        began = time.monotonic()
        network.train()
        batch, targets = batches.at(state.step)
        # a rest of a quarter batch or more is worth a compiled shape of its own
        loss_of = compiled_loss if 4 * len(batch) >= full_batch else _loss
        with _without_gradient(idle):
            loss = loss_of(model, batch, targets)
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
    normalise = Normaliser(normalisation, images.dtype, device)
    model, classes = _fast(_classes, network, compile, device, progress)
    predicted = []
    for chunk in images.split(min(batch, max(len(images), 1))):
        function = classes if len(chunk) == min(batch, len(images)) else _classes  # one compiled shape
        predicted.append(function(model, normalise(chunk.to(device))).cpu())
    return torch.cat(predicted) if predicted else torch.zeros(0, dtype=torch.int64)


def on_kernels(network: nn.Module, device: torch.device | str) -> TypeGuard[ConvNet]:
    """Whether `compile` means the kernels: they cost no time to compile, and pay from the first image on."""
    return torch.device(device).type == "cpu" and next(network.parameters()).dtype == torch.float32 and suits(network)


def worth_compiling(network: nn.Module, protocol: Protocol, count: int, device: torch.device | str) -> bool:
    """Whether a training on `count` images is long enough to be compiled: a fixed rule, so that numbers repeat."""
    seen = protocol.total_steps(count) * protocol.batch_size(count)
    return on_kernels(network, device) or seen >= COMPILE_FROM_IMAGES


Model = nn.Module | Classifier


def _loss(network: Model, batch: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(network(batch), targets)


def _classes(network: Model, batch: torch.Tensor) -> torch.Tensor:
    return network(batch).argmax(1)


_COMPILED: WeakKeyDictionary[nn.Module, dict[str, Callable[..., Any]]] = WeakKeyDictionary()


def _fast(
    function: Callable[..., Any], network: nn.Module, compile: bool, device: torch.device, progress: Progress | None
) -> tuple[Model, Callable[..., Any]]:
    """The network on the kernels where they know it; else `function` compiled for it: once, however often it is trained
    again from new weights."""
    if not compile:
        return network, function
    if on_kernels(network, device):
        return Classifier(network), function
    ours = _COMPILED.setdefault(network, {})
    if function.__name__ not in ours:
        # torch counts recompilations per code object and gives up after 8: every network gets a copy of its own
        own = types.FunctionType(function.__code__.replace(), function.__globals__, function.__name__)
        ours[function.__name__] = machine.compiled(own, enabled=True, note=progress.note if progress else None)
    return network, ours[function.__name__]


def _look(loss: float, step: int, task: str, progress: Progress) -> None:
    if not math.isfinite(loss):
        raise Diverged(f"{task}: the loss is {loss} at step {step}; the data or the learning rate does not suit.")
    progress.update(step, loss=loss)


def _outputs(network: nn.Module) -> int | None:
    classifier = getattr(network, "classifier", None)
    return classifier.out_features if isinstance(classifier, nn.Linear) else None


def idle_biases(network: nn.Module) -> list[nn.Parameter]:
    """Convolution biases that an instance norm subtracts again: nothing depends on them, their gradient is zero."""
    found: list[nn.Parameter] = []
    for sequence in network.modules():
        if isinstance(sequence, nn.Sequential):
            for layer, norm in pairwise(sequence):
                cancelled = isinstance(norm, nn.GroupNorm) and norm.num_groups == norm.num_channels
                if cancelled and isinstance(layer, nn.Conv2d) and layer.bias is not None and layer.bias.requires_grad:
                    found.append(layer.bias)  # type: ignore[arg-type]
    return found


@contextmanager
def _without_gradient(parameters: list[nn.Parameter]) -> Iterator[None]:
    """oneDNN sums the whole gradient map for a bias: without the idle ones a step is 5 % shorter."""
    for parameter in parameters:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)


def _shapes(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}


class _State:
    """Weights, momentum, counters: all that a checkpoint holds."""

    def __init__(self, network: nn.Module, protocol: Protocol, identity: dict[str, Any]) -> None:
        self.network, self.identity = network, identity
        self.step, self.images_seen, self.seconds = 0, 0, 0.0
        idle = {id(bias) for bias in idle_biases(network)}
        self.parameters = [p for p in network.parameters() if p.requires_grad and id(p) not in idle]
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
