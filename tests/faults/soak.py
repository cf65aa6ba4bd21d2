"""`python -m tests.faults.soak [--minutes 20] [--out FOLDER]`: condense, stop, resume, evaluate, again and again.

One process does everything a user would do in many, each time in a new folder with a new cache, and method after
method. Every cycle must end with the bytes of its method's first cycle, which was not stopped. After every cycle the
resident memory and the open files are counted: the fitted slope says whether anything is kept that should not be.
"""

import argparse
import contextlib
import gc
import io
import os
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

from tests.faults.kills import METHODS
from tests.faults.lab import NETWORK, TINY, _share_compiled_code, tensors, write_data

STEPS, STOP_AFTER = 12, 7
WARM_UP = 0.25  # of the cycles: allocators and caches of libraries fill up first
FLAT = 0.02  # of the memory: what the fitted line may rise over all cycles after the warm-up


@dataclass(frozen=True)
class Sample:
    cycle: int
    method: str
    at_s: float
    rss_bytes: int
    open_files: int


class Soak:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / "small.npz"
        self.wanted: dict[str, bytes] = {}
        write_data(self.data)

    def once(self, number: int, method: str, flags: list[str]) -> None:
        """One cycle; raises where it does not end as it should."""
        folder = self.root / f"cycle-{number}"
        cache = folder / "cache"
        cache.mkdir(parents=True)
        _share_compiled_code(cache, self.root)
        os.environ["TINYSET_CACHE"] = str(cache)
        run = folder / "run"
        command = ["condense", str(self.data), "--out", str(run), *TINY, "--steps", str(STEPS), *flags]
        if method in self.wanted:
            stopped(command)
        words = said([*command, "--resume"])
        if method in self.wanted and f'"resumed_from_step": {STOP_AFTER}' not in words:
            raise RuntimeError(f"{method} was not stopped after step {STOP_AFTER}: {words[:200]}")
        if self.wanted.setdefault(method, tensors(run)) != tensors(run):
            raise RuntimeError(f"{method} ended with other bytes than in its first cycle")
        evaluate = ["evaluate", str(run / "artifact"), "--data", str(self.data), "--network", NETWORK, "--threads", "1"]
        evaluate += ["--protocol", "steps:12", "--repeats", "2", "--quiet", "--json"]
        first, again = said(evaluate), said(evaluate)
        if '"reused": 2' not in again or '"reused": 0' not in first:
            raise RuntimeError(f"{method}: finished measurements were repeated: {again[:200]}")
        shutil.rmtree(folder)


def said(command: list[str]) -> str:
    from tinyset.cli import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(command)
    if code != 0:
        raise RuntimeError(f"exit code {code}: {err.getvalue()[-400:]}")
    return out.getvalue()


def stopped(command: list[str]) -> None:
    """The same command, ended by a SIGTERM that this process sends itself in its seventh step."""
    import signal

    from tinyset.cli import main
    from tinyset.runs import RunFolder

    write = RunFolder.metric

    def metric(self: RunFolder, values: dict[str, object]) -> None:
        write(self, values)
        if values["step"] == STOP_AFTER - 1:
            os.kill(os.getpid(), signal.SIGTERM)

    RunFolder.metric = metric  # type: ignore[method-assign,assignment]
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as err:
            code = main(command)
    finally:
        RunFolder.metric = write  # type: ignore[method-assign]
    if code != 143:
        raise RuntimeError(f"wanted exit code 143 after SIGTERM, got {code}: {err.getvalue()[-400:]}")


def resident() -> int:
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def fit(samples: list[Sample]) -> dict[str, float]:
    """The least-squares line through memory against cycles, after the warm-up."""
    import numpy as np

    kept = samples[int(WARM_UP * len(samples)) :]
    x = np.array([sample.cycle for sample in kept], float)
    y = np.array([sample.rss_bytes for sample in kept], float)
    hours = (kept[-1].at_s - kept[0].at_s) / 3600
    slope = np.polyfit(x, y, 1)[0] if len(kept) > 2 else 0.0
    rise = slope * (x[-1] - x[0])
    return {
        "cycles": len(samples),
        "fitted_cycles": len(kept),
        "bytes_per_cycle": round(float(slope), 1),
        "rise_bytes": round(float(rise)),
        "rise_share": round(float(rise / y.mean()), 5),
        "bytes_per_hour": round(float(rise / hours)) if hours else 0,
        "mean_bytes": round(float(y.mean())),
        "open_files_more": kept[-1].open_files - kept[0].open_files,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--out", type=Path, help="a folder for soak.json")
    arguments = parser.parse_args()
    from tinyset.files import write_json
    from tinyset.machine import environment

    methods = cycle({"kfs": [], **METHODS}.items())
    root = Path(tempfile.mkdtemp(prefix="tinyset-soak-"))
    samples: list[Sample] = []
    began = shown = time.monotonic()
    try:
        soak = Soak(root)
        while time.monotonic() - began < 60 * arguments.minutes:
            method, flags = next(methods)
            soak.once(len(samples), method, flags)
            seconds = round(time.monotonic() - began, 2)
            samples.append(Sample(len(samples), method, seconds, resident(), open_files()))
            if time.monotonic() - shown > 30:
                shown = time.monotonic()
                print(f"{seconds:7.0f} s  cycle {len(samples)}  {samples[-1].rss_bytes / 1e6:.1f} MB", flush=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    line = fit(samples)
    print(
        f"{line['cycles']} cycles of condense, stop, resume, evaluate; memory {line['mean_bytes'] / 1e6:.1f} MB, slope "
        f"{line['bytes_per_cycle']:+.0f} bytes per cycle ({100 * line['rise_share']:+.2f} % over {line['fitted_cycles']} cycles)"
    )
    if arguments.out is not None:
        record = {"minutes": arguments.minutes, "fit": line, "environment": environment()}
        write_json(arguments.out / "soak.json", {**record, "samples": [asdict(sample) for sample in samples]})
    return 0 if line["rise_share"] <= FLAT and line["open_files_more"] <= 0 else 1


if __name__ == "__main__":
    sys.exit(main())
