"""Two processes that take turns: each is set up and warm before the first round, and only one works at a time."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tinyset.files import cache_dir

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Round:
    """What one round of a contender took."""

    amount: float  # images, or floating-point operations
    seconds: float
    peak_bytes: int

    @property
    def rate(self) -> float:
        return self.amount / self.seconds


class Contender:
    """A process that does one round of work whenever it is asked."""

    def __init__(self, name: str, options: dict[str, Any], cache: str) -> None:
        compiled = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or str(cache_dir() / "compiled")
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", name, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "TINYSET_CACHE": cache, "TORCHINDUCTOR_CACHE_DIR": compiled},
        )

    def wait_until_ready(self) -> None:
        self._answer()

    def round(self) -> Round:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return Round(**self._answer())

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        text = self.process.stdout.readline()
        if not text:
            raise RuntimeError(f"the contender {self.name} died")
        return json.loads(text)


@contextmanager
def contenders(*wanted: tuple[str, dict[str, Any]]) -> Iterator[list[Contender]]:
    """The processes, ready one after the other; gone after the block, with all they wrote."""
    with ExitStack() as stack:
        cache = stack.enter_context(tempfile.TemporaryDirectory(prefix="tinyset-bench-"))
        started = []
        for number, (name, options) in enumerate(wanted):
            contender = Contender(name, options, f"{cache}/{number}")
            stack.callback(contender.process.wait)
            stack.callback(contender.process.terminate)
            contender.wait_until_ready()
            started.append(contender)
        yield started


def take_turns(*wanted: tuple[str, dict[str, Any]], rounds: int) -> list[Sequence[Round]]:
    """Of each contender its rounds: first of A, first of B, second of A, ..."""
    with contenders(*wanted) as started:
        results = [[contender.round() for contender in started] for _ in range(rounds)]
    return [list(column) for column in zip(*results, strict=True)]
