"""kill -9 at moments spread over the work, then the same command again: the bytes of an uninterrupted run."""

import json
import signal
from functools import partial
from pathlib import Path
from typing import Any

from tests.faults.lab import Hurt, Lab, lines, same_run
from tests.faults.tally import Tally, fault, spread

STEPS = 42
SLOW = Hurt(slow_s=0.004)
KERNELS = ["--network", "convnet3:width=16", "--compile", "always"]
METHODS = {
    "sampled": ["--batch", "4"],
    "gradient": ["--method", "dsa"],
    "tiles": ["--method", "idc"],
    "features": ["--method", "cafe"],
    "trajectory": [
        *("--method", "mtt", "--option", "experts=1", "--option", "expert_epochs=3"),
        *("--option", "student_steps=2", "--option", "last_start=1"),
    ],
    "kernel": ["--method", "kip"],
    "regression": ["--method", "kfr", "--option", "pool=2", "--option", "pool_age=4"],
    "moments": ["--method", "kip", "--option", "real=moments", "--option", "learn_labels=true"],
    "batches": ["--method", "dm"],
}


def kill_by_lines(lab: Lab, tally: Tally, flags: list[str], steps: int, moments: list[int]) -> None:
    """Kill when metrics.jsonl has so many lines, resume, compare."""
    flags = ["--steps", str(steps), *flags]
    reference = lab.reference(*flags)
    for moment in moments:
        folder = lab.fresh()
        run, cache = folder / "run", folder / "cache"
        child = lab.spawn(lab.condense(run, *flags), cache, SLOW)
        reached = child.until(lambda run=run, moment=moment: lines(run / "metrics.jsonl") >= moment)  # type: ignore[misc]
        child.signal(signal.SIGKILL)
        done = child.wait()
        if not reached or done.code != -signal.SIGKILL:
            tally.check(f"after {moment} lines", f"was not killed there: {done}")
            continue
        done = lab.run(lab.condense(run, *flags, "--resume"), cache)
        tally.check(f"after {moment} lines", _compare(done, run, reference, moment))


def _compare(done: Any, run: Path, reference: Path, moment: int | None = None) -> str | None:
    if done.code != 0:
        return f"the resumed run failed: {done}"
    resumed = done.json["resumed_from_step"]
    if moment is not None and (resumed or 0) < moment // 3 * 3 - 3:
        return f"killed after {moment} steps it went on from step {resumed}"
    return same_run(run, reference)


@fault("kill-kfs", "kill -9 over the steps of KFS")
def kfs(lab: Lab, tally: Tally) -> None:
    kill_by_lines(lab, tally, [], STEPS, spread(STEPS - 1, 20))


@fault("kill-objectives", "kill -9 over the steps of every other objective")
def objectives(lab: Lab, tally: Tally) -> None:
    for flags in METHODS.values():
        kill_by_lines(lab, tally, flags, 12, [1, 4, 9, 11])


@fault("kill-kernels", "kill -9 over the steps of KFS on the compiled CPU kernels")
def kernels(lab: Lab, tally: Tally) -> None:
    kill_by_lines(lab, tally, KERNELS, 12, [1, 4, 9, 11])


@fault("kill-twice", "kill -9 again and again, in one run")
def again(lab: Lab, tally: Tally) -> None:
    flags = ["--steps", str(STEPS)]
    folder = lab.fresh()
    run, cache = folder / "run", folder / "cache"
    for moment in spread(STEPS - 1, 8):
        child = lab.spawn(lab.condense(run, *flags, "--resume"), cache, SLOW)
        child.until(lambda moment=moment: lines(run / "metrics.jsonl") >= moment)  # type: ignore[misc]
        child.signal(signal.SIGKILL)
        done = child.wait()
        tally.check(f"after {moment} lines", None if done.code == -signal.SIGKILL else str(done))
    done = lab.run(lab.condense(run, *flags, "--resume"), cache)
    tally.check("the end", _compare(done, run, lab.reference(*flags)))


EAGER = {  # save at every opportunity, so that there is something to kill
    "tinyset.bank.SHARD": 2,
    "tinyset.bank.SAVE_EVERY_S": -1.0,
    "tinyset.parameterizations.autoencoder.SAVE_EVERY_S": -1.0,
}


def kill_by_changes(lab: Lab, tally: Tally, flags: list[str], most: int) -> None:
    """Kill before the n-th change of any file (open to write, fsync, rename, remove) of run and cache."""
    reference, hurt = lab.reference(*flags), Hurt(EAGER)
    total = lab.changes(lab.condense(lab.fresh() / "run", *flags), lab.fresh(), hurt)
    for n in spread(total, most):
        folder = lab.fresh()
        run, cache = folder / "run", folder / "cache"
        done = lab.run(lab.condense(run, *flags), cache, Hurt(EAGER, kill_at=n))
        if done.code != -signal.SIGKILL:
            tally.check(f"change {n} of {total}", f"was not killed there: {done}")
            continue
        done = lab.run(lab.condense(run, *flags, "--resume"), cache, hurt)
        tally.check(f"change {n} of {total}", _compare(done, run, reference))


@fault("kill-writes", "kill -9 before each change of a file (run, bank, auto-encoder, caches)")
def writes(lab: Lab, tally: Tally) -> None:
    kill_by_changes(lab, tally, ["--steps", "4"], 60)


@fault("kill-experts", "kill -9 before changes of files while expert networks train")
def experts(lab: Lab, tally: Tally) -> None:
    kill_by_changes(lab, tally, ["--steps", "3", *METHODS["trajectory"]], 25)


@fault("kill-moments", "kill -9 before changes of files while kernel moments are computed")
def moments(lab: Lab, tally: Tally) -> None:
    kill_by_changes(lab, tally, ["--steps", "3", *METHODS["moments"]], 15)


@fault("kill-overwrite", "kill -9 while --overwrite replaces a finished run")
def overwrite(lab: Lab, tally: Tally) -> None:
    old, new = ["--steps", "4"], ["--steps", "3"]
    reference = lab.reference(*new)

    def finished() -> Path:
        folder = lab.fresh()
        done = lab.run(lab.condense(folder / "run", *old), lab.warm_cache(*old))
        assert done.code == 0, done
        return folder

    warm = lab.warm_cache(*new)
    total = lab.changes(lab.condense(finished() / "run", *new, "--overwrite"), warm)
    for n in spread(total, 12):
        run = finished() / "run"
        lab.run(lab.condense(run, *new, "--overwrite"), warm, Hurt(kill_at=n))
        done = lab.run(lab.condense(run, *new, "--overwrite"), warm)
        tally.check(f"change {n} of {total}", _compare(done, run, reference))


@fault("kill-bank", "kill -9 before each change of a file of `tinyset bank`")
def bank(lab: Lab, tally: Tally) -> None:
    command = ["bank", str(lab.data), "--networks", "7", "--network", "convnet3:width=4", "--threads", "1", "--json"]
    hurt = Hurt(EAGER)
    whole = lab.fresh()
    total = lab.changes([*command, "--quiet"], whole, hurt)
    for n in spread(total, 20):
        cache = lab.fresh()
        killed = lab.run([*command, "--quiet"], cache, Hurt(EAGER, kill_at=n))
        stored = {path.name: path.read_bytes() for path in cache.glob("banks/*/shard-*")}
        done = lab.run([*command, "--quiet"], cache, hurt)
        problem = None if killed.code == -signal.SIGKILL and done.code == 0 else str(done)
        if problem is None and shards(cache) != shards(whole):
            problem = "the bank has other bytes"
        if problem is None and done.json["computed"] > 7 - 2 * max(0, len(stored) - 1):
            problem = f"{done.json['computed']} networks were computed again"
        tally.check(f"change {n} of {total}", problem)


def shards(cache: Path) -> dict[str, bytes]:
    """Every file of the banks in a cache, unfinished ones too."""
    found = [path for path in cache.glob("banks/*/*") if path.name != ".lock"]
    return {path.name: path.read_bytes() for path in found}


@fault("kill-evaluation", "kill -9 before each change of a file of `tinyset evaluate` (mid-epoch, between repeats)")
def evaluation(lab: Lab, tally: Tally) -> None:
    hurt = eager_evaluation()
    made = lab.reference("--steps", "3") / "artifact"

    def command(folder: Path) -> list[str]:
        return [*lab.evaluate(made, "--results", str(folder / "results.jsonl")), "--baselines", "random"]

    folder = lab.fresh()
    total = lab.changes(command(folder), folder / "cache", Hurt(hurt))
    whole = records(folder / "results.jsonl")
    for n in spread(total, 30):
        folder = lab.fresh()
        killed = lab.run(command(folder), folder / "cache", Hurt(hurt, kill_at=n))
        before = records(folder / "results.jsonl")
        done = lab.run(command(folder), folder / "cache", Hurt(hurt))
        after = records(folder / "results.jsonl")
        problem = None if killed.code == -signal.SIGKILL and done.code == 0 else f"{killed} / {done}"
        if problem is None and not all(after[key] == row for key, row in before.items()):
            problem = "a finished cell was measured again"
        if problem is None and sum(row["reused"] for row in done.json["rows"]) != len(before):
            problem = f"of {len(before)} finished cells {[row['reused'] for row in done.json['rows']]} were reused"
        if problem is None and numbers(after) != numbers(whole):
            problem = "the rows differ from those of an uninterrupted evaluation"
        tally.check(f"change {n} of {total}", problem)


def eager_evaluation() -> dict[str, Any]:
    """A checkpoint after every epoch."""
    from tinyset.evaluation.evaluator import Evaluator

    return {"tinyset.evaluation.rows.Evaluator": partial(Evaluator, checkpoint_every_s=0.0)}


def records(path: Path) -> dict[str, dict[str, Any]]:
    if not path.exists():
        return {}
    return {row["key"]: row for row in map(json.loads, path.read_text().splitlines())}


def numbers(rows: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The rows without what depends on the clock."""
    return {key: {k: v for k, v in row.items() if k not in ("seconds", "check")} for key, row in rows.items()}
