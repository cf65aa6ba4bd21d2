"""The paper's first table on anyone's data: every method at the same storage and the same wall-clock, set-up included.

A method first runs `PROBE_STEPS` steps, which also fills its caches (bank, auto-encoder, experts); what that took tells how
many steps fit into the time that is left, and before that how many networks of a bank fit into `BANK_SHARE` of it. The
numbers are written into the method's config, so the row can be run again by steps, without a clock. Rows are resumable one
by one: what is finished is read back.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tinyset.condensation import Outcome, run
from tinyset.condensed import CondensedSet, load
from tinyset.config import CondenseConfig, load_yaml
from tinyset.data.imageset import Splits
from tinyset.errors import UserError
from tinyset.evaluation import Row, evaluate
from tinyset.files import write_json
from tinyset.interrupts import Interrupted, Stop
from tinyset.methods import METHODS, method, resolve
from tinyset.objectives import objective_class
from tinyset.progress import Progress, Silent
from tinyset.published import published

PROBE_STEPS, PROBE_NETWORKS = 3, 3
BANK_SHARE = 0.3  # of a method's time
MANY_STEPS = 1_000_000
EXTRA_ROWS = ("kfs-0", "full")


@dataclass(frozen=True)
class Cost:
    """What a method's condensation took."""

    seconds: float
    steps: int


def compare(
    data: Splits,
    methods: Sequence[str],
    out: Path,
    *,
    time_limit_s: float,
    protocol: str,
    settings: dict[str, Any],
    network: str = "convnet3",
    repeats: int = 3,
    recipe: str = "plain",
    progress: Progress | None = None,
    stop: Stop | None = None,
) -> list[dict[str, Any]]:
    """One row per method, then `kfs-0` (before any step) and `full` (the ceiling)."""
    progress, stop = progress or Silent(), stop or Stop()
    for name in methods:
        if name not in (*METHODS, *EXTRA_ROWS):
            raise UserError(f"--methods {name}: choose among {', '.join((*METHODS, *EXTRA_ROWS))}.")
    wanted = [name for name in methods if name not in EXTRA_ROWS]
    rows, last = [], None
    for name in wanted:
        flags = {**settings, "method": name}
        condensed, cost = _condensed(data, flags, recipe, out / name, time_limit_s, progress, stop)
        found = _evaluate(condensed, data, network, protocol, repeats, settings, progress, stop)
        rows.append(_row(name, found[0], condensed, cost))
        last = condensed if last is None or name == "kfs" else last
    if last is not None:
        extras = [name for name in EXTRA_ROWS if name == "full" or "kfs" in wanted]
        found = _evaluate(last, data, network, protocol, repeats, settings, progress, stop, baselines=extras)
        for name, row in zip(extras, found[1:], strict=True):
            rows.append(_row(name, row, last if name == "kfs-0" else None, Cost(0.0, 0)))
    budget = settings.get("images_per_class")
    return [{**row, "published": published(data.name, budget, row["method"])} for row in rows]


def _condensed(
    data: Splits, flags: dict[str, Any], recipe: str, folder: Path, limit_s: float, progress: Progress, stop: Stop
) -> tuple[CondensedSet, Cost]:
    """The method's artifact, from its folder where it is finished, resumed where it was begun."""
    done = folder / "done.json"
    if done.exists():
        saved = json.loads(done.read_text())
        return load(folder / "artifact"), Cost(saved["seconds"], saved["steps"])
    progress.note(f"{flags['method']}: condensing")
    if method(flags["method"]).objective is None:
        outcome = run(
            resolve(recipe, flags), data, out=folder, overwrite=True, progress=progress, stop=stop, recipe=recipe
        )
        return _finish(done, outcome, outcome.seconds)
    plan = folder / "config.yaml"
    if plan.exists():  # begun before: its number of steps is known
        config = CondenseConfig.parse(load_yaml(plan.read_text(), str(plan)), str(plan))
        spent = 0.0
    else:
        try:
            config, spent = _probe(data, flags, recipe, folder, limit_s, progress, stop)
        except Interrupted as late:
            if late.exit_code:
                raise
            progress.note(
                f"{flags['method']}: its set-up alone takes longer than {limit_s:.0f} s; the row is its start."
            )
            config, spent = resolve(recipe, {**flags, "steps": 0}), limit_s
    left = max(1.0, limit_s - spent)
    outcome = run(
        config, data, out=folder, resume=plan.exists(), progress=progress, stop=_within(stop, left), recipe=recipe
    )
    return _finish(done, outcome, spent + outcome.seconds)


def _probe(
    data: Splits, flags: dict[str, Any], recipe: str, folder: Path, limit_s: float, progress: Progress, stop: Stop
) -> tuple[CondenseConfig, float]:
    """The settings with as many steps as fit, and the seconds already spent on finding out."""
    began = time.monotonic()
    probe = folder.with_name(folder.name + "-probe")
    full = resolve(recipe, flags)
    # the settings of a long run, so that what depends on its length (torch.compile) is paid for now
    full = full.model_copy(update={"compile": "always" if full.compile == "auto" else full.compile})
    pool, outer = full.options.get("pool"), full.options.get("outer", 1)
    few = {**full.options, "pool": outer} if pool else full.options  # one episode of the pool tells what all cost
    limit = _within(stop, limit_s)

    def try_out(networks: int) -> float:
        start = time.monotonic()
        short = full.model_copy(update={"steps": PROBE_STEPS, "options": few, "networks": networks})
        run(short, data, out=probe, overwrite=True, progress=progress, stop=limit, recipe=recipe)
        return time.monotonic() - start

    if full.networks > 2 * PROBE_NETWORKS and _uses_bank(full):
        try_out(PROBE_NETWORKS)  # the auto-encoder too
        each = try_out(2 * PROBE_NETWORKS) / PROBE_NETWORKS
        fit = max(2 * PROBE_NETWORKS, int(BANK_SHARE * limit_s / each))
        full = full.model_copy(update={"networks": min(full.networks, fit)})
    try_out(full.networks)
    metrics = probe / "metrics.jsonl"  # not there where the set-up alone took all the time
    seconds = [json.loads(line)["seconds"] for line in metrics.read_text().splitlines()] if metrics.exists() else []
    step_s = min(seconds[1:], default=limit_s)
    fill_s = (seconds[0] - step_s) * pool / outer if pool and seconds else 0.0
    spent = time.monotonic() - began
    steps = max(1, min(MANY_STEPS, int(0.95 * (limit_s - spent - fill_s) / step_s)))
    return full.model_copy(update={"steps": steps}), spent


def _uses_bank(config: CondenseConfig) -> bool:
    fields = objective_class(config.objective or "").Options.model_fields
    return "networks" in fields and config.options.get("real", fields["real"].default) != "batch"


def _within(stop: Stop, seconds: float) -> Stop:
    """The caller's signals and a time limit of its own."""

    class Both(Stop):
        @property
        def reason(self) -> str | None:
            return stop.reason or super().reason

        @property
        def exit_code(self) -> int:
            return stop.exit_code

    return Both(seconds)


def _finish(done: Path, outcome: Outcome, seconds: float) -> tuple[CondensedSet, Cost]:
    cost = Cost(round(seconds, 1), outcome.steps)
    write_json(done, {"seconds": cost.seconds, "steps": cost.steps, "sha256": outcome.condensed.fingerprint})
    return outcome.condensed, cost


def _evaluate(
    condensed: CondensedSet,
    data: Splits,
    network: str,
    protocol: str,
    repeats: int,
    settings: dict[str, Any],
    progress: Progress,
    stop: Stop,
    baselines: Sequence[str] = (),
) -> Sequence[Row]:
    seed, device = settings.get("seed") or 0, settings.get("device") or "auto"
    return evaluate(
        condensed,
        data,
        [network],
        [protocol],
        repeats,
        seed,
        baselines=baselines,
        device=device,
        progress=progress,
        stop=stop,
    ).rows


def _row(name: str, row: Row, condensed: CondensedSet | None, cost: Cost) -> dict[str, Any]:
    ledger = None if condensed is None else condensed.ledger()
    return {
        "method": name,
        "accuracy": row.accuracy.to_dict(),
        "seconds": cost.seconds,
        "steps": cost.steps,
        "params_per_class": None if ledger is None else ledger["params_per_class"],
        "bytes": row.bytes,
        "images": row.images,
        "network": row.network,
        "protocol": row.protocol,
        "train_seconds": row.seconds,
    }
