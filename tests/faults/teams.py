"""kill -9 of a process under torchrun: restarted to the same bytes, or ended with a sentence and a whole checkpoint."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.faults.lab import Done, Lab, lines, same_run, sound
from tests.faults.tally import Skip, Tally, fault

STEPS = ["--steps", "200"]
PATIENCE_S = 240.0


def torchrun(arguments: list[str], cache: Path, restarts: int = 0) -> "subprocess.Popen[str]":
    """Two processes of a command, as a user starts them."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return subprocess.Popen(
        [*launcher, "--max-restarts", str(restarts), "-m", "tinyset", *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1", "TINYSET_CACHE": str(cache)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def worker(parent: int, rank: int) -> int:
    """The worker of this rank that torchrun started."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            mine = f"\nPPid:\t{parent}\n" in (entry / "status").read_text()
            if mine and f"RANK={rank}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                return int(entry.name)
        except OSError:
            continue
    raise RuntimeError(f"torchrun has no worker of rank {rank}")


def killed(arguments: list[str], run: Path, cache: Path, rank: int, restarts: int) -> Done:
    """What torchrun left, after the process of this rank was killed in the middle of the run."""
    process = torchrun(arguments, cache, restarts)
    try:
        ends = time.monotonic() + PATIENCE_S
        while lines(run / "metrics.jsonl") < 20 and process.poll() is None and time.monotonic() < ends:
            time.sleep(0.002)
        os.kill(worker(process.pid, rank), signal.SIGKILL)
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    return Done(process.returncode, out, err)


@fault("kill-torchrun", "kill -9 of a process under torchrun: restarted to the same bytes, or a sentence and --resume")
def teams(lab: Lab, tally: Tally) -> None:
    if sys.platform != "linux":
        raise Skip("torchrun's workers are looked for in /proc")
    reference = lab.reference(*STEPS)
    for rank, restarts in ((0, 1), (1, 0)):
        run, cache = lab.fresh() / "run", lab.warm_cache(*STEPS)
        done = killed(lab.condense(run, *STEPS), run, cache, rank, restarts)
        if restarts:
            problem = None if done.code == 0 and done.json["resumed_from_step"] >= 15 else str(done)
        else:
            gave_up = done.code != 0 and "tinyset: Another process of this run died" in done.err
            problem = (None if gave_up else f"wanted a sentence: {done}") or sound(lab, run)
            again = lab.run(lab.condense(run, *STEPS, "--resume"), cache)  # with another number of processes
            problem = problem or (None if again.code == 0 else f"the resumed run failed: {again}")
        tally.check(f"rank {rank}, {restarts} restart(s)", problem or same_run(run, reference))
