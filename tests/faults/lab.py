"""A place to break things: a little dataset, commands in forked processes, and the ways to hurt them.

torch is imported once, here; every command runs in a fork of this process (milliseconds instead of seconds), through
`tinyset.cli.main` like one that a user types. To a file, a lock or a signal a fork is a process like any other.
"""

import contextlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

CLASSES, SIDE = 3, 16
NETWORK = "convnet3:width=4"
TINY = [
    *("--network", NETWORK, "--threads", "1", "--networks", "4", "--real-per-class", "12", "--pretrain-steps", "6"),
    *("--compile", "never", "--checkpoint-every", "3", "--images-per-class", "1", "--quiet", "--json"),
]
PRELOAD = (  # so that no fork has to
    *("condensation", "evaluation", "bank", "data.load", "report.tables"),
    *(f"objectives.{name}" for name in ("distribution", "gradient", "features", "trajectory", "kernel", "regression")),
    *(f"parameterizations.{name}" for name in ("pixels", "tiles", "codes")),
    *(f"cli.{name}" for name in ("condense", "evaluate", "bank", "inspect", "console")),
)
PATIENCE_S = 300.0
FRAME = 70  # the exit code of a fork whose command ended with a traceback


@dataclass(frozen=True)
class Done:
    """What a command left: its exit code (negative: the signal that ended it) and its words."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.out)

    @property
    def sentence(self) -> str | None:
        """The one sentence of a refusal; None where there is none, or more than one, or a traceback."""
        said = [line for line in self.err.splitlines() if line.startswith("tinyset: ")]
        return said[0] if len(said) == 1 and "Traceback" not in self.err and len(said[0]) < 2400 else None

    def __str__(self) -> str:
        return f"exit code {self.code}: {' | '.join(self.err.splitlines()[-4:])[-400:]}"


@dataclass
class Hurt:
    """What a fork does to itself before its command begins."""

    constants: dict[str, Any] = field(default_factory=dict)  # "tinyset.bank.SHARD": 2
    slow_s: float = 0.0  # after every line of metrics.jsonl
    kill_at: int | None = None  # SIGKILL before the n-th change of a file under the lab
    count_to: Path | None = None  # write the number of such changes here


@dataclass
class Child:
    pid: int
    folder: Path
    status: int | None = None

    def poll(self) -> int | None:
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status

    def wait(self, patience_s: float = PATIENCE_S) -> Done:
        ends = time.monotonic() + patience_s
        while self.poll() is None and time.monotonic() < ends:
            time.sleep(0.002)
        late = self.poll() is None
        if late:
            self.signal(signal.SIGKILL)
            while self.poll() is None:
                time.sleep(0.002)
        words = [(self.folder / name).read_text(errors="replace") for name in ("out", "err")]
        return Done(-signal.SIGKILL if late else int(self.status or 0), *words)

    def signal(self, number: int) -> None:
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def until(self, condition: Callable[[], bool], patience_s: float = PATIENCE_S) -> bool:
        """Wait for `condition`; False where the command ended, or patience did, before it came true."""
        ends = time.monotonic() + patience_s
        while not condition():
            if self.poll() is not None or time.monotonic() > ends:
                return condition()
            time.sleep(0.0005)
        return True


class Lab:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / "small.npz"
        self._count = 0
        self._references: dict[tuple[str, ...], Path] = {}
        write_data(self.data)
        for name in (*(f"tinyset.{name}" for name in PRELOAD), "torch._dynamo", "rich.table"):
            importlib.import_module(name)

    def fresh(self, name: str = "try") -> Path:
        """A new empty folder."""
        self._count += 1
        folder = self.root / f"{name}-{self._count}"
        folder.mkdir()
        return folder

    def spawn(self, arguments: list[str], cache: Path, hurt: Hurt | None = None) -> Child:
        folder = self.fresh("words")
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            _be_the_command(arguments, cache, hurt or Hurt(), folder, self.root)
        return Child(pid, folder)

    def run(self, arguments: list[str], cache: Path, hurt: Hurt | None = None) -> Done:
        return self.spawn(arguments, cache, hurt).wait()

    def real(self, arguments: list[str], cache: Path) -> "subprocess.Popen[str]":
        """`python -m tinyset` as a user starts it, torch's import included."""
        environment = {**os.environ, "TINYSET_CACHE": str(cache)}
        command = [sys.executable, "-m", "tinyset", *arguments]
        return subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.root
        )

    def condense(self, out: Path, *more: str) -> list[str]:
        return ["condense", str(self.data), "--out", str(out), *TINY, *more]

    def evaluate(self, artifact: Path, *more: str) -> list[str]:
        command = ["evaluate", str(artifact), "--data", str(self.data), "--network", NETWORK, "--threads", "1"]
        return [*command, "--protocol", "steps:12", "--repeats", "3", "--quiet", "--json", *more]

    def reference(self, *more: str) -> Path:
        """The folder of an uninterrupted run with these flags."""
        if more not in self._references:
            folder = self.fresh("reference")
            done = self.run(self.condense(folder / "run", *more), folder / "cache")
            if done.code != 0:
                raise RuntimeError(f"the uninterrupted run failed: {done}")
            self._references[more] = folder
        return self._references[more] / "run"

    def warm_cache(self, *more: str) -> Path:
        """A copy of the cache of that uninterrupted run."""
        self.reference(*more)
        copy = self.fresh("cache")
        shutil.copytree(self._references[more] / "cache", copy, dirs_exist_ok=True, symlinks=True)
        return copy

    def changes(self, arguments: list[str], cache: Path, hurt: Hurt | None = None) -> int:
        """How many changes of files a command makes."""
        counted = self.fresh("count") / "n"
        hurt = hurt or Hurt()
        done = self.run(arguments, cache, Hurt(hurt.constants, count_to=counted))
        if done.code != 0:
            raise RuntimeError(f"the counted run failed: {done}")
        return int(counted.read_text())


def write_data(path: Path, seed: int = 0) -> None:
    """60 training and 24 test images of three tints."""
    draw = np.random.default_rng(seed)
    labels = np.arange(84) % CLASSES
    tint = draw.integers(0, 150, (CLASSES, 1, 1, 3))
    images = (tint[labels] + draw.integers(0, 100, (84, SIDE, SIDE, 3))).astype(np.uint8)
    with open(path, "wb") as file:
        np.savez(file, x_train=images[:60], y_train=labels[:60], x_test=images[60:], y_test=labels[60:])


def tensors(run: Path) -> bytes:
    return (run / "artifact" / "condensed.safetensors").read_bytes()


def losses(run: Path) -> list[tuple[int, float]]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [(line["step"], line["loss"]) for line in map(json.loads, lines)]


def same_run(run: Path, reference: Path) -> str | None:
    """None where a run ended byte for byte like the uninterrupted one; else what differs."""
    if tensors(run) != tensors(reference):
        return "the artifact has other bytes"
    if losses(run) != losses(reference):
        return "metrics.jsonl has other lines"
    left = [entry.name for entry in run.iterdir() if entry.name.endswith(".tmp")]
    return f"{left[0]} is left over" if left else None


def sound(lab: Lab, run: Path) -> str | None:
    """Whether all checkpoints and the artifact that are there are whole."""
    done = lab.run(["call", "tests.faults.lab:look_at", str(run)], lab.root)
    return None if done.code == 0 else f"damaged after the fault: {done}"


def look_at(run: str) -> None:
    from tinyset.condensed import load
    from tinyset.files import load_tree

    for path in Path(run).glob("checkpoint-*"):
        load_tree(path)
    if (Path(run) / "artifact").exists():
        load(Path(run) / "artifact")


def lines(path: Path) -> int:
    try:
        return path.read_bytes().count(b"\n")
    except OSError:
        return 0


@contextlib.contextmanager
def laboratory() -> Iterator[Lab]:
    root = Path(tempfile.mkdtemp(prefix="tinyset-faults-"))
    try:
        yield Lab(root)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _be_the_command(arguments: list[str], cache: Path, hurt: Hurt, words: Path, root: Path) -> None:
    """The life of a fork; never returns."""
    code = FRAME
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        os.environ["TINYSET_CACHE"] = str(cache)
        for name, handle in (("out", 1), ("err", 2)):
            os.dup2(os.open(words / name, os.O_WRONLY | os.O_CREAT, 0o644), handle)
        sys.stdout, sys.stderr = (os.fdopen(handle, "w", errors="backslashreplace") for handle in (1, 2))
        _share_compiled_code(cache, root)
        _apply(hurt, root, words)
        code = _command(arguments)
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _share_compiled_code(cache: Path, root: Path) -> None:
    """Compiling costs seconds and is not what is tested: all caches of the lab have one folder for it."""
    with contextlib.suppress(OSError):
        (root / "compiled").mkdir(exist_ok=True)
        cache.mkdir(parents=True, exist_ok=True)
        (cache / "compiled").symlink_to(root / "compiled")


def _command(arguments: list[str]) -> int:
    if arguments[0] == "call":  # a function of this package instead of a command: `call module:function ARGUMENT ...`
        module, _, name = arguments[1].partition(":")
        return int(getattr(importlib.import_module(module), name)(*arguments[2:]) or 0)
    from tinyset.cli import main

    return main(arguments)


def _apply(hurt: Hurt, root: Path, words: Path) -> None:
    for name, value in hurt.constants.items():
        module, _, constant = name.rpartition(".")
        setattr(importlib.import_module(module), constant, value)
    if hurt.slow_s:
        from tinyset.runs import RunFolder

        write = RunFolder.metric

        def slowly(self: RunFolder, values: dict[str, Any]) -> None:
            write(self, values)
            time.sleep(hurt.slow_s)

        RunFolder.metric = slowly  # type: ignore[method-assign]
    if hurt.kill_at is not None or hurt.count_to is not None:
        _watch_changes(hurt, str(root), str(words))


def _watch_changes(hurt: Hurt, root: str, words: str) -> None:
    """Python tells its auditors of every file opened for writing, renamed, removed; fsync is ours to tell."""
    count = 0

    def change() -> None:
        nonlocal count
        count += 1
        if hurt.count_to is not None:
            handle = os.open(hurt.count_to, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.write(handle, str(count).encode())
            os.close(handle)
        elif count == hurt.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if not isinstance(flags, int) or not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                return
        elif event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir"):
            path = arguments[0]
        else:
            return
        path = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
        if path.startswith(root) and not path.startswith(words) and path != str(hurt.count_to):
            change()

    sys.addaudithook(audit)
    sync = os.fsync

    def fsync(handle: int) -> None:
        change()
        sync(handle)

    os.fsync = fsync
