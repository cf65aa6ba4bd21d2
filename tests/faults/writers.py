"""Two processes that want the same place: the second is refused or waits; a lock dies with its owner."""

import signal
import time
from pathlib import Path

from tests.faults.kills import SLOW, numbers, records, shards
from tests.faults.lab import Hurt, Lab, lines, same_run
from tests.faults.stops import _slow_hash, said
from tests.faults.tally import Tally, fault

STEPS = ["--steps", "12"]


@fault("two-runs", "a second run on the folder of a running one is refused; the first ends as if alone")
def two_runs(lab: Lab, tally: Tally) -> None:
    for more in (["--resume"], ["--overwrite"], []):
        folder = lab.fresh()
        run, cache = folder / "run", lab.warm_cache(*STEPS)
        first = lab.spawn(lab.condense(run, *STEPS), cache, SLOW)
        first.until(lambda run=run: lines(run / "metrics.jsonl") >= 4)  # type: ignore[misc]
        first.signal(signal.SIGSTOP)
        second = lab.run(lab.condense(run, *STEPS, *more), cache)
        refused = second.code == 2 and second.sentence is not None
        first.signal(signal.SIGCONT)
        done = first.wait()
        problem = None if refused else f"the second was not refused: {second}"
        tally.check(
            " ".join(more) or "anew", problem or (str(done) if done.code else same_run(run, lab.reference(*STEPS)))
        )


@fault("race", "two runs that start on one new folder at the same moment: one runs, one is refused")
def race(lab: Lab, tally: Tally) -> None:
    for i in range(6):
        run, cache = lab.fresh() / "run", lab.warm_cache(*STEPS)
        both = [lab.spawn(lab.condense(run, *STEPS, *more), cache) for more in ([], ["--resume"] if i % 2 else [])]
        done = [child.wait() for child in both]
        codes = sorted(d.code for d in done)
        # the later one may also come after the first has ended, and resume a finished run
        problem = None if codes in ([0, 2], [0, 0]) and all(d.code == 0 or d.sentence for d in done) else f"{codes}"
        tally.check(f"pair {i}", problem or same_run(run, lab.reference(*STEPS)))


def bank_command(lab: Lab) -> list[str]:
    command = ["bank", str(lab.data), "--networks", "12", "--network", "convnet3:width=4", "--threads", "1"]
    return [*command, "--quiet", "--json"]


@fault("two-banks", "two processes that build one bank: the second waits and finds it done, or takes over")
def two_banks(lab: Lab, tally: Tally) -> None:
    slowly = Hurt({"tinyset.bank.weights_hash": _slow_hash, "tinyset.bank.SHARD": 2})
    plain = Hurt({"tinyset.bank.SHARD": 2})
    whole = lab.fresh()
    lab.run(bank_command(lab), whole, plain)
    for ending in ("it ends", "it is killed", "the second is told to stop"):
        cache = lab.fresh()
        first = lab.spawn(bank_command(lab), cache, slowly)
        first.until(lambda cache=cache: any(cache.glob("banks/*/shard-00001*")))  # type: ignore[misc]
        first.signal(signal.SIGSTOP)
        before = shards(cache)
        second = lab.spawn(bank_command(lab), cache, plain)
        time.sleep(1.0)
        problem = None if second.poll() is None and shards(cache) == before else "the second did not wait"
        if ending == "the second is told to stop":
            second.signal(signal.SIGTERM)
            problem = problem or said(second.wait(10), 143)
            second = lab.spawn(bank_command(lab), cache, plain)
        first.signal(signal.SIGKILL if ending == "it is killed" else signal.SIGCONT)
        done = first.wait()
        if ending != "it is killed" and done.code != 0:
            problem = problem or str(done)
        done = second.wait()
        problem = problem or (str(done) if done.code else None)
        tally.check(ending, problem or (None if shards(cache) == shards(whole) else "the bank has other bytes"))


@fault("two-evaluations", "two evaluations of one artifact: every cell is trained once, no row is lost")
def two_evaluations(lab: Lab, tally: Tally) -> None:
    made = lab.reference("--steps", "3") / "artifact"

    def command(folder: Path) -> list[str]:
        return lab.evaluate(made, "--results", str(folder / "results.jsonl"))

    whole = lab.fresh()
    lab.run(command(whole), whole / "cache")
    for i in range(3):
        folder = lab.fresh()
        both = [lab.spawn(command(folder), folder / "cache") for _ in range(2)]
        done = [child.wait() for child in both]
        problem = None if all(d.code == 0 for d in done) else " / ".join(map(str, done))
        found = records(folder / "results.jsonl")
        if problem is None and numbers(found) != numbers(records(whole / "results.jsonl")):
            problem = "the rows differ"
        tally.check(f"pair {i}", problem)


@fault("dead-owner", "a lock whose owner was killed does not block")
def dead_owner(lab: Lab, tally: Tally) -> None:
    folder = lab.fresh()
    run, cache = folder / "run", lab.warm_cache(*STEPS)
    child = lab.spawn(lab.condense(run, *STEPS), cache, SLOW)
    child.until(lambda: lines(run / "metrics.jsonl") >= 4)
    child.signal(signal.SIGKILL)
    child.wait()
    began = time.monotonic()
    done = lab.run(lab.condense(run, *STEPS, "--resume"), cache)
    problem = str(done) if done.code else same_run(run, lab.reference(*STEPS))
    tally.check("a run", problem or (None if time.monotonic() - began < 60 else "waited"))
    for path in (run / ".lock", *cache.rglob("*.lock")):
        path.write_bytes(b"4194304\nsomewhere\n")  # what a lock of another kind would hold
    done = lab.run(lab.condense(run, *STEPS, "--resume"), cache)
    tally.check("stale text in the locks", str(done) if done.code else same_run(run, lab.reference(*STEPS)))
