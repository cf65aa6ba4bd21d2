"""The paper's budget figure: accuracy along 100 ... 20,000 training steps, measured along one training per seed.

The batch is min(N, 256) unless the protocol says otherwise; the schedule is that of `steps:N` with N the last step: the rate drops
at 2/3 and 5/6 of N.
"""

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from tinyset.condensed import CondensedSet
from tinyset.data.imageset import Splits
from tinyset.errors import UserError
from tinyset.evaluation.evaluator import Evaluator, Measurement
from tinyset.evaluation.results import Results, default_path
from tinyset.evaluation.rows import Evaluation, Row, check, check_request, evaluator, measure_rows
from tinyset.evaluation.sets import Source, TrainingSet, baseline, from_artifact
from tinyset.interrupts import Stop
from tinyset.progress import Progress, Silent
from tinyset.protocols import Protocol
from tinyset.protocols import protocol as named_protocol
from tinyset.training import predict, train

STEPS = (100, 200, 500, 1000, 2000, 5000, 10_000, 20_000)
TIMED = 3  # steps of the trial that predicts the time, after as many to warm up
TRIAL_IMAGES = 512


def accuracy_along(
    artifacts: Sequence[CondensedSet | str | Path],
    data: Splits,
    network: str = "convnet3",
    steps: Sequence[int] = STEPS,
    repeats: int = 1,
    seed: int = 0,
    *,
    names: Sequence[str] | None = None,
    baselines: Sequence[str] = (),
    augmentation: str = "flip-shift",
    device: torch.device | str = "auto",
    compile: bool | None = None,
    results: Path | None = None,
    fresh: bool = False,
    progress: Progress | None = None,
    stop: Stop | None = None,
) -> Evaluation:
    """One row per artifact (or baseline at the first one's storage) and step. The predicted time is noted first."""
    if not artifacts:
        raise UserError("The budget figure needs a condensed set.")
    if not steps or min(steps) < 1:
        raise UserError(f"--budget-steps {','.join(map(str, steps))}: every number must be 1 or more.")
    sets = [check(artifact, data) for artifact in artifacts]
    protocol = named_protocol(f"steps:{max(steps)}:{augmentation}")
    progress = progress or Silent()
    lab = evaluator(sets[0], data, device, compile, results, fresh, progress, stop)
    check_request(lab, sets[0], [network], repeats)
    points = [Measurement(step) for step in sorted(set(steps))]
    seeds = range(seed, seed + repeats)
    work = _work(lab, sets, names, baselines, results)
    _note_time(work, network, protocol, seeds, points)
    rows: list[Row] = []
    for place, source, shared in work:
        rows += measure_rows(place, source, network, protocol, seeds, points, shared=shared)
    return Evaluation(data.name, data.class_names, tuple(rows), lab.results.path)


def _work(
    lab: Evaluator,
    sets: Sequence[CondensedSet],
    names: Sequence[str] | None,
    baselines: Sequence[str],
    results: Path | None,
) -> list[tuple[Evaluator, Source, bool]]:
    """Each set with an evaluator that writes to its own results; they share the networks and their compiled code."""
    work: list[tuple[Evaluator, Source, bool]] = []
    for i, condensed in enumerate(sets):
        fixed = from_artifact(condensed, names[i] if names else None)
        store = Results(results or default_path(condensed))
        work.append((dataclasses.replace(lab, results=store), _constant(fixed), False))
    return work + [(lab, baseline(name, sets[0], lab.data, lab.progress), True) for name in baselines]


def _constant(fixed: TrainingSet) -> Source:
    return lambda seed: fixed


def _note_time(
    work: Sequence[tuple[Evaluator, Source, bool]],
    network: str,
    protocol: Protocol,
    seeds: Sequence[int],
    points: Sequence[Measurement],
) -> None:
    """Say how long it will take, from a trial of a few steps of each set; finished trainings cost nothing."""
    total, trainings = 0.0, 0
    for lab, source, _ in work:
        open_seeds = [s for s in seeds if not lab.finished(source(s), network, protocol, s, points)]
        if open_seeds:
            of = source(open_seeds[0])
            per_step, per_test = trial(lab, of, network, protocol)
            steps = protocol.total_steps(len(of.images))
            total += len(open_seeds) * (steps * per_step + len(points) * per_test)
            trainings += len(open_seeds)
    if trainings:
        steps = max(point.step or 0 for point in points)
        work[0][0].progress.note(f"{trainings} training(s) of {steps:,} steps: about {_span(total)}.")


def trial(lab: Evaluator, of: TrainingSet, network: str, protocol: Protocol) -> tuple[float, float]:
    """Seconds of a training step and of a test pass, measured with the network that will be used."""
    made = lab.network(network, of)
    fast = lab.compiles(network, of, protocol)
    short = protocol.model_copy(update={"steps": TIMED, "epochs": None})
    for _ in ("warm up", "measure"):
        stats = train(
            made,
            of.images,
            of.targets,
            short,
            normalisation=of.normalisation,
            mirror=of.mirror,
            seed=0,
            device=lab.device,
            compile=fast,
        )
    few = lab.test.images[:TRIAL_IMAGES]
    began = time.monotonic()
    predict(made, few, normalisation=of.normalisation, device=lab.device)
    per_test = (time.monotonic() - began) * len(lab.test) / max(len(few), 1)
    return stats.seconds / stats.steps, per_test


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
