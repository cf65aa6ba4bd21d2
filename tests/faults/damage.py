"""Every kind of file cut at every class of length, flipped, zeroed: a sentence and an exit code, or the same result."""

import json
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.faults.kills import KERNELS, METHODS, SLOW, eager_evaluation, numbers, records
from tests.faults.lab import Done, Hurt, Lab, lines, same_run, tensors
from tests.faults.tally import Skip, Tally, fault

STEPS = ["--steps", "10"]
FLIPS = 12


def injuries(whole: bytes) -> Iterator[tuple[str, bytes]]:
    """Truncation at every class of length, bit flips over the file, and what a power cut leaves."""
    size = len(whole)
    for length in sorted({0, 1, 7, 8, min(100, size - 1), size // 2, size - 1}):
        yield f"cut to {length} of {size}", whole[:length]
    for i in range(FLIPS):
        at = (i * i * size) // (FLIPS * FLIPS) if i else min(9, size - 1)  # denser at the front, where the header is
        yield f"bit {i % 8} of byte {at} of {size} flipped", flipped(whole, at, i % 8)
    yield "zeroed", bytes(size)
    yield "second half zeroed", whole[: size // 2] + bytes(size - size // 2)
    yield "a byte longer", whole + b"\0"


def flipped(whole: bytes, at: int, bit: int) -> bytes:
    return whole[:at] + bytes([whole[at] ^ (1 << bit)]) + whole[at + 1 :]


@dataclass(frozen=True)
class Victim:
    """A state on disk, the file to damage, what to run then, and how a result is told from a wrong one."""

    state: Path
    files: Callable[[Path], list[Path]]
    run: Callable[[Path], Done]
    wrong: Callable[[Path, Done], str | None]
    must_work: bool = False  # there is a second copy, or it can be computed again

    def suffer(self, lab: Lab, tally: Tally) -> None:
        whole = self.files(self.state)[0].read_bytes()
        for name, damaged in injuries(whole):
            folder = lab.fresh()
            shutil.copytree(self.state, folder, dirs_exist_ok=True, symlinks=True)
            for path in self.files(folder):
                path.write_bytes(damaged)
            tally.check(name, self._verdict(folder, self.run(folder)))
            shutil.rmtree(folder)

    def _verdict(self, folder: Path, done: Done) -> str | None:
        if done.code == 0:
            return self.wrong(folder, done)
        if self.must_work:
            return f"should have gone on: {done}"
        return None if done.code in (1, 2) and done.sentence is not None else f"wanted a sentence: {done}"


def half_run(lab: Lab, flags: list[str]) -> Path:
    """A folder with a run that was killed after two checkpoints, and its cache."""
    folder = lab.fresh("half")
    run = folder / "run"
    child = lab.spawn(lab.condense(run, *flags), folder / "cache", SLOW)
    child.until(lambda: lines(run / "metrics.jsonl") >= 8)
    child.signal(signal.SIGKILL)
    child.wait()
    if len(list(run.glob("checkpoint-*"))) != 2:
        raise RuntimeError("the run was not killed where it should have been")
    return folder


def resume(lab: Lab, flags: list[str]) -> Callable[[Path], Done]:
    return lambda folder: lab.run(lab.condense(folder / "run", *flags, "--resume"), folder / "cache")


def like(lab: Lab, flags: list[str]) -> Callable[[Path, Done], str | None]:
    return lambda folder, _: same_run(folder / "run", lab.reference(*flags))


@fault("damage-checkpoint", "a damaged checkpoint: the newest of two; both")
def checkpoint(lab: Lab, tally: Tally) -> None:
    half = half_run(lab, STEPS)
    newest = Victim(half, lambda f: sorted(f.glob("run/checkpoint-*"))[-1:], resume(lab, STEPS), like(lab, STEPS), True)
    newest.suffer(lab, tally)
    both = Victim(half, lambda f: sorted(f.glob("run/checkpoint-*"))[::-1], resume(lab, STEPS), like(lab, STEPS))
    both.suffer(lab, tally)


@fault("damage-config", "a damaged config.yaml of a run; a damaged metrics.jsonl")
def config(lab: Lab, tally: Tally) -> None:
    half = half_run(lab, STEPS)
    Victim(half, lambda f: [f / "run" / "config.yaml"], resume(lab, STEPS), like(lab, STEPS)).suffer(lab, tally)

    def wrong(folder: Path, _: Done) -> str | None:
        same = tensors(folder / "run") == tensors(lab.reference(*STEPS))
        return None if same else "the artifact has other bytes"

    Victim(half, lambda f: [f / "run" / "metrics.jsonl"], resume(lab, STEPS), wrong, True).suffer(lab, tally)


def cache_only(lab: Lab, flags: list[str]) -> Path:
    """A folder with the cache of a finished run and nothing else."""
    folder = lab.fresh("cache-only")
    shutil.copytree(lab.reference(*flags).parent / "cache", folder / "cache", symlinks=True)
    return folder


@fault("damage-bank", "a damaged bank file, expert file, moments file")
def bank(lab: Lab, tally: Tally) -> None:
    cases = [
        (STEPS, "cache/banks/*/shard-*"),
        ([*STEPS, *METHODS["trajectory"]], "cache/experts/*/*/epoch-001*"),
        ([*STEPS, *METHODS["moments"]], "cache/moments/*/network-00001*"),
    ]
    for flags, pattern in cases:

        def files(folder: Path, pattern: str = pattern) -> list[Path]:
            return sorted(folder.glob(pattern))

        Victim(cache_only(lab, flags), files, resume(lab, flags), like(lab, flags)).suffer(lab, tally)


@fault("damage-caches", "a damaged cache of decoded images, of the auto-encoder: made again")
def caches(lab: Lab, tally: Tally) -> None:
    state = cache_only(lab, STEPS)
    for pattern in ("decoded/*/index*", "decoded/*/train.u8", "autoencoders/*.safetensors"):

        def files(folder: Path, pattern: str = pattern) -> list[Path]:
            return list((folder / "cache").glob(pattern))

        Victim(state, files, resume(lab, STEPS), like(lab, STEPS), True).suffer(lab, tally)


@fault("damage-kernels", "a damaged library of compiled kernels: compiled again")
def kernels(lab: Lab, tally: Tally) -> None:
    flags = ["--steps", "2", *KERNELS]
    state = cache_only(lab, flags)
    (state / "cache" / "compiled").unlink()
    shutil.copytree(lab.root / "compiled", state / "cache" / "compiled")
    found = list((state / "cache" / "compiled").glob("kernels-*.so"))
    if not found:
        raise Skip("the kernels cannot be compiled here")
    whole = found[0].read_bytes()
    wounds = list(injuries(whole))
    for name, damaged in [wounds[0], wounds[5], wounds[9], wounds[14], wounds[-3]]:  # each costs a compilation
        folder = lab.fresh()
        shutil.copytree(state, folder, dirs_exist_ok=True)
        (folder / "cache" / "compiled" / found[0].name).write_bytes(damaged)
        done = resume(lab, flags)(folder)
        tally.check(name, str(done) if done.code else same_run(folder / "run", lab.reference(*flags)))


@fault("damage-artifact", "damaged tensors, a damaged config.json of an artifact")
def artifact(lab: Lab, tally: Tally) -> None:
    state = lab.fresh("artifact")
    shutil.copytree(lab.reference(*STEPS) / "artifact", state / "artifact")

    def inspect(folder: Path) -> Done:
        return lab.run(["inspect", str(folder / "artifact"), "--json"], lab.root)

    whole = inspect(state).json

    def wrong(_: Path, done: Done) -> str | None:
        return None if done.json == whole else "a damaged set was loaded"

    for name in ("condensed.safetensors", "config.json"):
        Victim(state, lambda f, name=name: [f / "artifact" / name], inspect, wrong).suffer(lab, tally)  # type: ignore[misc]


@fault("damage-results", "a damaged results.jsonl; a damaged checkpoint of a training")
def results(lab: Lab, tally: Tally) -> None:
    made = lab.reference("--steps", "3") / "artifact"
    state = lab.fresh("results")

    def evaluate(folder: Path) -> Done:
        return lab.run(lab.evaluate(made, "--results", str(folder / "results.jsonl")), folder / "cache")

    first = evaluate(state)
    whole = numbers(records(state / "results.jsonl"))

    def wrong(folder: Path, done: Done) -> str | None:
        same = numbers(records(folder / "results.jsonl")) == whole
        told = [row["accuracy"] for row in done.json["rows"]] == [row["accuracy"] for row in first.json["rows"]]
        return None if same and told else "other numbers"

    Victim(state, lambda f: [f / "results.jsonl"], evaluate, wrong).suffer(lab, tally)
    state = killed_training(lab, made)
    Victim(state, lambda f: list(f.glob("cache/evaluation/*.safetensors")), evaluate, wrong, True).suffer(lab, tally)


def killed_training(lab: Lab, made: Path) -> Path:
    state = lab.fresh("training")
    command = lab.evaluate(made, "--results", str(state / "results.jsonl"))
    total = lab.changes(command, state / "cache", Hurt(eager_evaluation()))
    for n in range(total // 3, 2 * total // 3):  # some of these moments lie between two checkpoints
        shutil.rmtree(state / "cache")
        (state / "results.jsonl").unlink(missing_ok=True)
        lab.run(command, state / "cache", Hurt(eager_evaluation(), kill_at=n))
        if len(list(state.glob("cache/evaluation/*.safetensors"))) == 1:
            return state
    raise RuntimeError("no kill left a checkpoint of a training")


@fault("damage-data", "a damaged data file")
def data(lab: Lab, tally: Tally) -> None:
    state = lab.fresh("data")
    shutil.copy(lab.data, state / "data.npz")
    flags = ["--steps", "2"]
    reference = lab.reference(*flags)

    def condense(folder: Path) -> Done:
        command = lab.condense(folder / "run", *flags)
        return lab.run([command[0], str(folder / "data.npz"), *command[2:]], folder / "cache")

    def wrong(folder: Path, _: Done) -> str | None:
        made = json.loads((folder / "run" / "artifact" / "config.json").read_text())
        real = json.loads((reference / "artifact" / "config.json").read_text())
        return None if made["source_fingerprint"] == real["source_fingerprint"] else "damaged images were condensed"

    Victim(state, lambda f: [f / "data.npz"], condense, wrong).suffer(lab, tally)
