"""A full disk, a read-only disk, data that vanishes: one sentence, exit code 1, and all is well when space returns."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.faults.kills import numbers, records
from tests.faults.lab import Done, Lab, same_run, sound, write_data
from tests.faults.tally import Skip, Tally, fault

STEPS = ["--steps", "10"]
DISK = 4 << 20


class Disk:
    """A small file system of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ballast = path / "ballast"

    def leave(self, free: int) -> None:
        """Fill it up to `free` bytes (rounded down to whole pages)."""
        self.ballast.unlink(missing_ok=True)
        status = os.statvfs(self.path)
        with open(self.ballast, "wb") as file:
            file.write(bytes(max(0, status.f_bavail * status.f_frsize - free)))

    def empty(self) -> None:
        self.ballast.unlink(missing_ok=True)

    def remount(self, mode: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{mode}", str(self.path)], check=True, capture_output=True)


@contextlib.contextmanager
def small_disk(lab: Lab) -> Iterator[Disk]:
    path = lab.fresh("disk")
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(path)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Skip(f"a small tmpfs cannot be mounted here ({type(error).__name__})") from None
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", "-l", str(path)], capture_output=True)


def used(folder: Path) -> int:
    return sum(-(-path.stat().st_size // 4096) * 4096 for path in folder.rglob("*") if path.is_file())


def refused(done: Done) -> str | None:
    return None if done.code == 1 and done.sentence is not None else f"wanted exit code 1 and a sentence: {done}"


@fault("full-run", "a disk that fills up under a run (checkpoint, metrics, artifact), then --resume")
def full_run(lab: Lab, tally: Tally) -> None:
    reference = lab.reference(*STEPS)
    need, failed = used(reference), 0
    for share in (0, 0.05, 0.15, 0.3, 0.45, 0.6, 0.75, 0.85, 0.95):
        with small_disk(lab) as disk:
            cache, run = lab.warm_cache(*STEPS), disk.path / "run"
            disk.leave(int(share * need))
            done = lab.run(lab.condense(run, *STEPS), cache)
            failed += done.code != 0
            problem = refused(done) if done.code else None
            whole = sound(lab, run)
            disk.empty()
            done = lab.run(lab.condense(run, *STEPS, "--resume"), cache)
            problem = problem or whole or (str(done) if done.code else same_run(run, reference))
            tally.check(f"{share:.0%} of the space", problem)
    tally.check("the sweep", None if failed >= 5 else f"only {failed} of 9 disks were too small")


@fault("full-again", "a disk that is full when a finished half is resumed: the half stays")
def full_again(lab: Lab, tally: Tally) -> None:
    with small_disk(lab) as disk:
        cache, run = lab.warm_cache(*STEPS), disk.path / "run"
        half = lab.run(lab.condense(run, *STEPS, "--time-limit", "0.001s"), cache)
        tally.check("half", None if half.code == 0 else str(half))
        for free in (0, 8192, 32768):
            disk.leave(free)
            done = lab.run(lab.condense(run, *STEPS, "--resume"), cache)
            tally.check(f"{free} bytes free", refused(done) or sound(lab, run))
        disk.empty()
        done = lab.run(lab.condense(run, *STEPS, "--resume"), cache)
        tally.check("space again", str(done) if done.code else same_run(run, lab.reference(*STEPS)))


@fault("full-cache", "a disk that fills up under the caches (decoded data, auto-encoder, bank, experts)")
def full_cache(lab: Lab, tally: Tally) -> None:
    from tests.faults.kills import METHODS

    for flags, shares in ((STEPS, (0, 0.2, 0.5, 0.8, 0.95)), ([*STEPS, *METHODS["trajectory"]], (0.8, 0.9, 0.97))):
        reference = lab.reference(*flags)
        need = used(reference.parent / "cache")
        for share in shares:
            with small_disk(lab) as disk:
                cache, run = disk.path / "cache", lab.fresh() / "run"
                disk.leave(int(share * need))
                done = lab.run(lab.condense(run, *flags), cache)
                problem = refused(done) if done.code else None
                disk.empty()
                done = lab.run(lab.condense(run, *flags, "--resume"), cache)
                problem = problem or (str(done) if done.code else same_run(run, reference))
                tally.check(f"{share:.0%} of the space", problem)


@fault("full-results", "a disk that fills up under the results of an evaluation")
def full_results(lab: Lab, tally: Tally) -> None:
    made = lab.reference("--steps", "3") / "artifact"
    whole = lab.fresh()
    lab.run(lab.evaluate(made, "--results", str(whole / "results.jsonl")), whole / "cache")
    with small_disk(lab) as disk:
        results, cache = disk.path / "results.jsonl", lab.fresh()
        command = lab.evaluate(made, "--results", str(results))
        first = lab.run([*command, "--repeats", "1"], cache)
        before = records(results)
        disk.leave(0)
        done = lab.run(command, cache)
        tally.check("full", (None if first.code == 0 else str(first)) or refused(done))
        tally.check("the finished row", None if records(results) == before and before else "was lost")
        disk.empty()
        done = lab.run(command, cache)
        same = done.code == 0 and numbers(records(results)) == numbers(records(whole / "results.jsonl"))
        tally.check("space again", None if same and done.json["rows"][0]["reused"] == 1 else str(done))


@fault("read-only", "a read-only run, cache, artifact")
def read_only(lab: Lab, tally: Tally) -> None:
    with small_disk(lab) as disk:
        cache, run = lab.warm_cache(*STEPS), disk.path / "run"
        lab.run(lab.condense(run, *STEPS, "--time-limit", "0.001s"), cache)
        disk.remount("ro")
        for more in (["--resume"], ["--overwrite"]):
            done = lab.run(lab.condense(run, *STEPS, *more), cache)
            tally.check(f"a run, {more[0]}", refused(done))
        done = lab.run(lab.condense(disk.path / "new", *STEPS), cache)
        tally.check("a new run", None if done.code == 2 and done.sentence else str(done))
        done = lab.run(lab.evaluate(run / "artifact"), cache)
        kept = done.code == 0 and Path(done.json["results"]).is_relative_to(cache)
        tally.check("an artifact: its results go to the cache", None if kept else str(done))
        disk.remount("rw")
        done = lab.run(lab.condense(run, *STEPS, "--resume"), cache)
        tally.check("writable again", str(done) if done.code else same_run(run, lab.reference(*STEPS)))
    with small_disk(lab) as disk:
        disk.remount("ro")
        done = lab.run(lab.condense(lab.fresh() / "run", *STEPS), disk.path / "cache")
        tally.check("an empty cache", refused(done))


@fault("vanished", "data that vanishes or changes before a resumption; caches that vanish under a run")
def vanished(lab: Lab, tally: Tally) -> None:
    from tests.faults.kills import SLOW
    from tests.faults.lab import TINY, lines

    folder = lab.fresh()
    data, run, cache = folder / "own.npz", folder / "run", folder / "cache"
    shutil.copy(lab.data, data)
    command = ["condense", str(data), "--out", str(run), *TINY, *STEPS]
    child = lab.spawn(command, cache, SLOW)
    child.until(lambda: lines(run / "metrics.jsonl") >= 2)
    data.unlink()
    done = child.wait()
    tally.check("data removed under a run", str(done) if done.code else same_run(run, lab.reference(*STEPS)))
    child = lab.spawn([*command[:3], str(folder / "second"), *TINY, *STEPS], cache)
    done = child.wait()
    tally.check("data gone before a run", None if done.code == 2 and done.sentence else str(done))
    write_data(data)
    lab.run([*command, "--overwrite", "--time-limit", "0.001s"], cache)
    write_data(data, seed=1)
    done = lab.run([*command, "--resume"], cache)
    refusal = done.code == 2 and "not those the run began with" in (done.sentence or "")
    tally.check("other data at the resumption", None if refusal else str(done))
    write_data(data)
    done = lab.run([*command, "--resume"], cache)
    tally.check("the data again", str(done) if done.code else same_run(run, lab.reference(*STEPS)))
    run = folder / "third"
    command[3] = str(run)
    child = lab.spawn(command, cache, SLOW)
    child.until(lambda: lines(run / "metrics.jsonl") >= 2)
    shutil.rmtree(cache)
    done = child.wait()
    problem = refused(done) if done.code else None  # what it still needs of them it says; the rest is in memory
    done = lab.run([*command, "--resume"], cache)
    problem = problem or (str(done) if done.code else same_run(run, lab.reference(*STEPS)))
    tally.check("all caches removed under a run", problem)
