"""Search on a condensed set instead of the real images: hyper-parameters (Optuna) and architectures.

    search      every candidate is trained on the condensed set and, at equal bytes, on selections of real images;
    confirm     the best few of each set are trained on the real images (a stated part of them, a stated number of steps);
    verdict     the best of those is the set's answer. Regret: how far it lies below the best real score anyone found.

All scores are accuracies on one validation part of the training split.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tinyset.condensed import CondensedSet
from tinyset.data.imageset import Splits
from tinyset.downstream.arena import Arena, Candidate, SearchSettings
from tinyset.downstream.space import ConvNets, HyperParameters
from tinyset.downstream.verdict import Scores, verdict
from tinyset.errors import UserError, needs_extra
from tinyset.evaluation.rows import check
from tinyset.files import lock
from tinyset.networks import build
from tinyset.protocols import protocol as named_protocol
from tinyset.rng import derive


def search_hyper_parameters(
    artifact: CondensedSet,
    data: Splits,
    *,
    network: str = "convnet3",
    trials: int = 16,
    space: HyperParameters | None = None,
    settings: SearchSettings | None = None,
    out: Path | None = None,
    **options: Any,
) -> dict[str, Any]:
    """The training of `network` that serves best: a search of Optuna's TPE sampler on every set, seeded alike.

    `options`: device, progress, stop. With `out` a search that was killed goes on.
    """
    if trials < 2:
        raise UserError(f"--trials {trials}: 2 or more are needed.")
    space, settings = space or HyperParameters(), settings or SearchSettings()
    _check(artifact, data, [network])
    with _alone(out):
        arena = Arena(artifact, data, settings, out=out, **options)
        searched = {name: _tuned(arena, name, network, space, trials) for name in arena.small}
        return {"kind": "hp", "network": network, "space": space.model_dump(mode="json"), **verdict(arena, searched)}


def search_networks(
    artifact: CondensedSet,
    data: Splits,
    *,
    points: int = 24,
    batch: int = 256,
    space: ConvNets | None = None,
    settings: SearchSettings | None = None,
    out: Path | None = None,
    **options: Any,
) -> dict[str, Any]:
    """The ConvNet that serves best, of a seeded sample of the space; trained by the schedule of `steps:N`."""
    if batch < 2:
        raise UserError(f"--batch {batch}: 2 or more are needed.")
    space, settings = space or ConvNets(), settings or SearchSettings(beside=("random", "herding"))
    names = space.sample(points, settings.seed)
    _check(artifact, data, names)
    with _alone(out):
        arena = Arena(artifact, data, settings, out=out, **options)
        protocol = named_protocol(f"steps:{settings.steps}").model_copy(update={"batch": batch})
        candidates = [Candidate(name, protocol) for name in names]
        searched = {
            of: dict(zip(candidates, arena.scores(of, candidates, f"search on {of}"), strict=True))
            for of in arena.small
        }
        return {"kind": "nas", "batch": batch, "space": space.model_dump(mode="json"), **verdict(arena, searched)}


def _tuned(arena: Arena, of: str, network: str, space: HyperParameters, trials: int) -> Scores:
    """The sampler is a function of its seed and of the scores, which are kept: a second run asks the same trials."""
    try:
        import optuna
    except ImportError:
        raise needs_extra("Optuna", "tune", "A search of hyper-parameters") from None
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        seed = derive(arena.settings.seed, "search") % 2**32
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=max(4, trials // 3))
        study = optuna.create_study(direction="maximize", sampler=sampler)
        found: Scores = {}
        arena.progress.start(f"search on {of}", trials)
        for number in range(trials):
            trial = study.ask()
            candidate = Candidate(network, space.suggest(trial, arena.settings.steps))
            found[candidate] = arena.score(of, candidate)
            study.tell(trial, found[candidate].accuracy)
            arena.progress.update(number + 1, accuracy=found[candidate].accuracy)
        return found
    finally:
        optuna.logging.set_verbosity(before)


def _check(artifact: CondensedSet, data: Splits, networks: Sequence[str]) -> None:
    """What would fail later is said before anything is written."""
    check(artifact, data)
    channels, height, width = artifact.image_shape
    for name in networks:
        build(name, channels=channels, image_size=(height, width), classes=len(artifact.class_names))


@contextmanager
def _alone(out: Path | None) -> Iterator[None]:
    """Two searches do not share a folder."""
    if out is None:
        yield
        return
    guard = lock(out / ".lock", wait=False, busy=f"Another search is using --out {out}.")
    try:
        yield
    finally:
        guard.release()
