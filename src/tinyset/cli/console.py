"""Progress with an ETA on stderr, results on stdout: a live line in a terminal, plain lines anywhere else."""

import json
import sys
import time
from typing import Any

from tinyset.errors import printable

PLAIN_EVERY_S = 10.0


class Console:
    """What a verb may say. Under `--json` stdout holds exactly one object; `--quiet` silences progress."""

    def __init__(self, *, json_output: bool = False, quiet: bool = False, command: str | None = None) -> None:
        self.json_output = json_output
        self.command = command  # what the user typed
        self.progress = Meter(quiet=quiet)
        self._quiet = quiet

    def print(self, *renderables: Any) -> None:
        """Text or rich renderables for people, on stdout."""
        if self.json_output:
            return
        self.progress.finish()
        from rich.console import Console as Rich

        rich = Rich(highlight=False, soft_wrap=True)
        for renderable in renderables:
            rich.print(printable(renderable) if isinstance(renderable, str) else renderable, markup=False)

    def json(self, value: Any) -> None:
        if self.json_output:
            self.progress.finish()
            print(json.dumps(value, ensure_ascii=False), flush=True)

    def note(self, message: str) -> None:
        self.progress.note(message)


class Silence(Console):
    """Of every process but the first."""

    def __init__(self, command: str | None = None) -> None:
        super().__init__(quiet=True, command=command)

    def print(self, *renderables: Any) -> None:
        pass


class Meter:
    """A `progress.Progress` for a terminal or a log."""

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._live = sys.stderr.isatty()
        self._task, self._total, self._first, self._open = "", 0, 0, False
        self._began = self._shown = 0.0

    def start(self, task: str, total: int) -> None:
        self.finish()
        self._task, self._total, self._first = task, total, -1
        self._began = self._shown = time.monotonic()

    def update(self, done: int, **values: float) -> None:
        if self._quiet:
            return
        now = time.monotonic()
        if self._first < 0:  # resumed tasks do not begin at 0: their rate is measured from here
            self._first, self._began = max(0, done - 1), now if done > 1 else self._began
        over = done >= self._total
        if not over and now - self._shown < (0.1 if self._live else PLAIN_EVERY_S):
            return
        self._shown = now
        self._write(self._line(done, now, values), over)

    def _line(self, done: int, now: float, values: dict[str, float]) -> str:
        elapsed, fresh = now - self._began, done - self._first
        left = elapsed / max(fresh, 1) * (self._total - done)
        parts = [f"{self._task} {done}/{self._total}"]
        parts += [f"{name} {value:.4g}" for name, value in values.items()]
        parts.append(f"{span(elapsed)} elapsed" if done >= self._total else f"ETA {span(left)}")
        return "  ".join(parts)

    def _write(self, line: str, over: bool) -> None:
        line = printable(line)
        if self._live:
            sys.stderr.write("\r\x1b[2K" + line + ("\n" if over else ""))
            self._open = not over
        else:
            sys.stderr.write(line + "\n")
        sys.stderr.flush()

    def note(self, message: str) -> None:
        self.finish()
        if not self._quiet:
            sys.stderr.write(printable(message) + "\n")
            sys.stderr.flush()

    def finish(self) -> None:
        if self._open:
            sys.stderr.write("\n")
            self._open = False


def span(seconds: float) -> str:
    """A duration as people say it: 42s, 3m05s, 2h10m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
