"""SIGTERM, SIGINT, --time-limit: a checkpoint, the documented exit code, and a resumption to the same bytes."""

import contextlib
import signal
import subprocess
from pathlib import Path

from tests.faults.kills import METHODS, SLOW, eager_evaluation, numbers, records
from tests.faults.lab import Done, Hurt, Lab, lines, same_run, sound
from tests.faults.tally import Tally, fault

STEPS = ["--steps", "30"]


def resumed(lab: Lab, run: Path, cache: Path, flags: list[str], at_least: int) -> str | None:
    done = lab.run(lab.condense(run, *flags, "--resume"), cache)
    if done.code != 0:
        return f"the resumed run failed: {done}"
    if (done.json["resumed_from_step"] or 0) < at_least:
        return f"stopped after {at_least} steps it went on from {done.json['resumed_from_step']}"
    return same_run(run, lab.reference(*flags))


@fault("signals", "SIGTERM (exit code 143) and SIGINT (130) between steps, then --resume")
def signals(lab: Lab, tally: Tally) -> None:
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        for moment in (1, 11, 28):
            folder = lab.fresh()
            run, cache = folder / "run", folder / "cache"
            child = lab.spawn(lab.condense(run, *STEPS), cache, SLOW)
            child.until(lambda run=run, moment=moment: lines(run / "metrics.jsonl") >= moment)  # type: ignore[misc]
            child.signal(number)
            problem = said(child.wait(), code)
            tally.check(f"{number.name} after {moment}", problem or resumed(lab, run, cache, STEPS, moment))


def said(done: Done, code: int) -> str | None:
    return (
        None if done.code == code and done.sentence is not None else f"wanted exit code {code} and a sentence: {done}"
    )


@fault("signals-setup", "SIGTERM while the auto-encoder, the bank, the experts are made; then --resume")
def setup(lab: Lab, tally: Tally) -> None:
    slow_bank = {"tinyset.bank.weights_hash": _slow_hash}
    cases = [
        ("auto-encoder", ["--steps", "3", "--pretrain-steps", "500"], "autoencoders/*.partial", Hurt(_EAGER_CODER)),
        ("bank", ["--steps", "3", "--networks", "60"], "banks/*/.lock", Hurt(slow_bank)),
        (
            "experts",
            ["--steps", "3", *METHODS["trajectory"], "--option", "experts=30"],
            "experts/*/*/epoch-001*",
            Hurt(),
        ),
    ]
    for name, flags, sign, hurt in cases:
        folder = lab.fresh()
        run, cache = folder / "run", folder / "cache"
        child = lab.spawn(lab.condense(run, *flags), cache, hurt)
        begun = child.until(lambda cache=cache, sign=sign: any(cache.glob(sign)))  # type: ignore[misc]
        child.signal(signal.SIGTERM)
        problem = said(child.wait(), 143)
        tally.check(name, problem or (None if begun else "had not begun") or resumed(lab, run, cache, flags, 0))


_EAGER_CODER = {"tinyset.parameterizations.autoencoder.SAVE_EVERY_S": 0.02}


def _slow_hash(network: object) -> str:
    import time

    from tinyset.networks import weights_hash

    time.sleep(0.02)
    return weights_hash(network)  # type: ignore[arg-type]


@fault("signals-evaluation", "SIGTERM during an evaluation, then the same command")
def evaluation(lab: Lab, tally: Tally) -> None:
    artifact = lab.reference("--steps", "3") / "artifact"

    def command(folder: Path) -> list[str]:
        return lab.evaluate(artifact, "--results", str(folder / "results.jsonl"), "--protocol", "steps:150")

    whole = lab.fresh()
    done = lab.run(command(whole), whole / "cache")
    tally.check("uninterrupted", None if done.code == 0 else str(done))
    for rows in (0, 1, 2):
        folder = lab.fresh()
        child = lab.spawn(command(folder), folder / "cache", Hurt(eager_evaluation()))

        def training(folder: Path = folder, rows: int = rows) -> bool:
            return lines(folder / "results.jsonl") == rows and any(folder.glob("cache/evaluation/*.safetensors"))

        begun = child.until(training)
        child.signal(signal.SIGTERM)
        problem = said(child.wait(), 143) or (None if begun else "was too quick")
        done = lab.run(command(folder), folder / "cache")
        if problem is None and (done.code != 0 or done.json["rows"][0]["reused"] < rows):
            problem = str(done)
        if problem is None and not _equal(folder, whole):
            problem = "the rows differ"
        tally.check(f"in repeat {rows}", problem)


def _equal(one: Path, other: Path) -> bool:
    return numbers(records(one / "results.jsonl")) == numbers(records(other / "results.jsonl"))


@fault("signals-real", "SIGTERM and SIGINT to `python -m tinyset` as a user starts it")
def real(lab: Lab, tally: Tally) -> None:
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        folder = lab.fresh()
        run, cache = folder / "run", folder / "cache"
        flags = ["--steps", "3000"]
        process = lab.real(lab.condense(run, *flags), cache)
        try:
            while lines(run / "metrics.jsonl") < 5 and process.poll() is None:
                with_timeout(process, 0.02)
            process.send_signal(number)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
        problem = said(Done(process.returncode, out, err), code)
        kept = sorted(path.name for path in run.glob("checkpoint-*"))
        tally.check(number.name, problem or (None if kept else "no checkpoint"))


def with_timeout(process: "subprocess.Popen[str]", seconds: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)


@fault("explosion", "a loss that runs away: exit code 1, step and class named, the last checkpoint whole")
def explosion(lab: Lab, tally: Tally) -> None:
    for rate in ("codes=.inf", "decoders=1e20", "codes=.nan"):
        run = lab.fresh() / "run"
        done = lab.run(lab.condense(run, *STEPS, "--rate", rate, "--checkpoint-every", "1"), lab.fresh())
        problem = None if done.code == 1 and done.sentence else f"wanted exit code 1 and a sentence: {done}"
        if problem is None and not ("at step" in done.err and "in class" in done.err):
            problem = f"does not name step and class: {done}"
        if problem is None and not list(run.glob("checkpoint-*")):
            problem = "there is no checkpoint"
        tally.check(rate, problem or sound(lab, run))


@fault("time-limit", "--time-limit: exit code 0, an artifact, and --resume to the end")
def time_limit(lab: Lab, tally: Tally) -> None:
    flags = ["--steps", "40"]
    limit_s, between = 0.001, 0
    while between < 2 and limit_s < 60:  # how long the start takes depends on the machine
        run, cache = lab.fresh() / "run", lab.warm_cache(*flags)
        done = lab.run(lab.condense(run, *flags, "--time-limit", f"{limit_s:.3f}s"), cache, Hurt(slow_s=0.05))
        if done.code != 0 or not (run / "artifact" / "config.json").exists():
            tally.check(f"{limit_s:.3f} s", f"wanted exit code 0 and an artifact: {done}")
            break
        steps = done.json["steps"]
        between += done.json["stopped"] == "time" and 0 < steps < 40
        tally.check(f"{limit_s:.3f} s", resumed(lab, run, cache, flags, steps))
        limit_s = max(0.25, limit_s * (1.3 if steps else 2))
    tally.check("between", None if between == 2 else "no limit fell between the first and the last step")
