"""Class-incremental learning with a replay memory of a fixed number of bytes, after GDumb (Prabhu et al. 2020).

The classes of a dataset come in `steps` groups, in an order drawn from the seed; of the groups before only the memory is left.
After each step a network is trained from scratch, on the memory alone, or on the memory and the real images of that step,
and tested on the test images of all classes seen so far, without being told which group they belong to.

    forgetting = 1/(T-1) sum_{j<T} ( max_{j<=t<T} a_{t,j} - a_{T,j} )        a_{t,j}: accuracy on group j after step t

Every cell (memory, seed, step) is a file of its own in `out`: a run that was stopped goes on with the next cell.
"""

import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import torch

from tinyset.data.imageset import ImageSet, Splits
from tinyset.downstream.memory import Memory, stored
from tinyset.errors import RunError, UserError
from tinyset.evaluation.metrics import Spread
from tinyset.files import load_tree, save_tree, write_json
from tinyset.machine import pick_device, set_threads
from tinyset.networks import build, redraw
from tinyset.parameterizations import parameterization_class
from tinyset.parameterizations.base import Parameterization
from tinyset.progress import Progress, Silent
from tinyset.protocols import protocol as named_protocol
from tinyset.rng import generator
from tinyset.training import predict, train

TrainOn = Literal["memory", "memory+real"]


@dataclass(frozen=True)
class Stream:
    """The settings all cells share."""

    data: Splits
    steps: int
    budget_bytes: int
    precision: str = "int8"
    train_on: TrainOn = "memory"
    network: str = "convnet3:width=32"
    protocol: str = "steps:300"
    test_per_class: int | None = None  # the first so many test images of each class; None: all
    device: str = "auto"

    def groups(self, seed: int) -> list[list[int]]:
        """The classes of each step: as many each, in an order drawn from the seed."""
        order = torch.randperm(self.data.train.classes, generator=generator(seed, "stream")).tolist()
        edges = [round(i * len(order) / self.steps) for i in range(self.steps + 1)]
        return [order[a:b] for a, b in pairwise(edges)]

    def identity(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        own = {k: v for k, v in self.__dict__.items() if k not in ("data", "device")}
        return {
            **own,
            "data": self.data.train.fingerprint,
            "settings": {k: v for k, v in settings.items() if k != "device"},
        }


def continual(
    stream: Stream,
    memories: Sequence[str] = ("kfs", "dm", "herding", "random"),
    *,
    repeats: int = 1,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    out: Path | None = None,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """A row per memory and step: accuracy (mean, std, n over seeds), bytes and images of the memory; forgetting in the last.

    `settings`: of `CondenseConfig` for KFS and DM (steps, network, networks, ...) and `herding_steps`.
    """
    progress, settings = progress or Silent(), dict(settings or {})
    _check(stream, repeats)
    set_threads(settings.get("threads"))
    planned = {}
    for seed_ in range(seed, seed + repeats):
        for name in memories:
            planned[name, seed_] = Memory.planned(
                name,
                stream.data,
                stream.budget_bytes,
                stream.precision,
                {**settings, "seed": seed_, "device": stream.device},
            )
    if out is not None:
        _same_stream(out / "stream.json", stream.identity(settings))
    cells = {key: _run(stream, memory, key[1], out, progress) for key, memory in planned.items()}
    return [
        row for name in memories for row in _rows(stream, name, [cells[name, s] for s in range(seed, seed + repeats)])
    ]


def _check(stream: Stream, repeats: int) -> None:
    classes = stream.data.train.classes
    if stream.data.test is None:
        raise UserError(f"{stream.data.name} has no test split: keep a part of it for testing with --holdout 0.1.")
    if not 2 <= stream.steps <= classes:
        raise UserError(f"--steps {stream.steps}: with {classes} classes choose 2 to {classes}.")
    if repeats < 1:
        raise UserError(f"--repeats {repeats}: one or more are needed.")


def _same_stream(path: Path, identity: dict[str, Any]) -> None:
    """The folder belongs to one stream: cells of another would be mixed up with ours."""
    if path.exists():
        try:
            before = json.loads(path.read_text())
        except (OSError, ValueError):
            raise RunError(f"{path} is damaged: choose another --out.") from None
        if before != json.loads(json.dumps(identity)):
            raise UserError(f"--out {path.parent} holds a stream with other settings: choose another place.")
    elif path.parent.exists() and any(path.parent.iterdir()):
        raise UserError(f"--out {path.parent} holds other files: choose another place.")
    write_json(path, identity)


def _run(stream: Stream, memory: Memory, seed: int, out: Path | None, progress: Progress) -> list[dict[str, Any]]:
    """All steps of one memory and seed, the finished ones read back."""
    groups, rows = stream.groups(seed), []
    made: Parameterization | None = None
    stats: Any = None
    for t in range(stream.steps):
        path = None if out is None else out / "cells" / f"{memory.method}-{seed}-{t + 1}.safetensors"
        real = _group(stream.data.train, groups[t], stats)
        stats = real.stats  # of the first step: later images are not known when it is needed
        if path is not None and path.exists():
            tree = load_tree(path, "cell")
            made = parameterization_class(tree["kind"]).restore(tree["spec"], tree["tensors"])
            rows.append(tree["row"])
            continue
        began = time.monotonic()
        made = memory.extended(made, real, progress)
        filled = time.monotonic() - began
        row = _measure(stream, made, real, groups[: t + 1], seed, f"{memory.method}, step {t + 1}", progress)
        row |= {"memory": memory.method, "seed": seed, "step": t + 1, "memory_seconds": round(filled, 1)}
        if path is not None:
            save_tree(path, {"row": row, "kind": made.kind, "spec": made.spec(), "tensors": made.tensors()})
        rows.append(row)
    return rows


def _group(real: ImageSet, classes: Sequence[int], stats: Any, most: int | None = None) -> ImageSet:
    """The images of these classes (the first `most` of each), numbered in the order of the stream."""
    members = [real.by_class[c][:most] for c in classes]
    labels = torch.repeat_interleave(torch.arange(len(classes)), torch.tensor([len(of) for of in members]))
    return ImageSet(real.images[torch.cat(members)], labels, tuple(real.class_names[c] for c in classes), stats)


def _measure(
    stream: Stream,
    made: Parameterization,
    real: ImageSet,
    groups: list[list[int]],
    seed: int,
    task: str,
    progress: Progress,
) -> dict[str, Any]:
    """Train from scratch on what is left of the stream, test on all classes seen."""
    assert stream.data.test is not None
    as_read, size = stored(made, stream.precision)
    images, labels = as_read.decode_all()
    in_memory = len(images)
    if stream.train_on == "memory+real":
        images, labels = _with_real(images, labels, real, as_read.classes)
    channels, height, width = real.image_shape
    shape: dict[str, Any] = {"channels": channels, "image_size": (height, width), "classes": stream.data.train.classes}
    network = build(stream.network, **shape)
    redraw(network, stream.network, seed, **shape)
    trained = train(
        network,
        images,
        labels,
        named_protocol(stream.protocol),
        normalisation=real.stats,
        mirror=stream.data.mirror,
        seed=seed,
        device=pick_device(stream.device),
        progress=progress,
        task=task,
    )
    seen = [c for group in groups for c in group]
    test = _group(stream.data.test, seen, real.stats, stream.test_per_class)
    right = predict(network, test.images, normalisation=real.stats, device=pick_device(stream.device)) == test.labels
    per_class = [100 * right[test.labels == c].double().mean().item() for c in range(len(seen))]
    place = {c: i for i, c in enumerate(seen)}
    return {
        "classes": len(seen),
        "bytes": size,
        "images": in_memory,
        "accuracy": round(statistics.fmean(per_class), 4),
        "groups": [round(statistics.fmean(per_class[place[c]] for c in group), 4) for group in groups],
        "train_seconds": round(trained.seconds, 1),
    }


def _with_real(
    images: torch.Tensor, labels: torch.Tensor, real: ImageSet, classes: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The memory of the earlier classes, repeated until a class weighs as much as a real one, and the real images."""
    first = classes - real.classes
    old = labels < first
    each = max(1, int(old.sum()) // max(first, 1))
    times = max(1, round(len(real) / real.classes / each)) if first else 1
    current = real.images.float() / 255
    both = torch.cat([images[old].repeat(times, 1, 1, 1), current])
    return both, torch.cat([labels[old].repeat(times), real.labels + first])


def forgetting(groups: Sequence[Sequence[float]]) -> float:
    """By the equation above; `groups[t][j]` is the accuracy on group j after step t."""
    last = len(groups) - 1
    lost = [max(groups[t][j] for t in range(j, last)) - groups[last][j] for j in range(last)]
    return statistics.fmean(lost)


def _rows(stream: Stream, name: str, cells: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    rows = []
    for t in range(stream.steps):
        at = [of[t] for of in cells]
        last = t == stream.steps - 1
        lost = [forgetting([row["groups"] for row in of]) for of in cells] if last else None
        rows.append(
            {
                "memory": name,
                "step": t + 1,
                "classes": at[0]["classes"],
                "accuracy": Spread.of([row["accuracy"] for row in at]).to_dict(),
                "forgetting": None if lost is None else Spread.of(lost).to_dict(),
                "bytes": at[0]["bytes"],
                "images": at[0]["images"],
                "memory_seconds": round(statistics.fmean(row["memory_seconds"] for row in at), 1),
                "train_seconds": round(statistics.fmean(row["train_seconds"] for row in at), 1),
            }
        )
    return rows
