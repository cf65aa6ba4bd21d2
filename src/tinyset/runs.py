"""A run's folder: config.yaml, metrics.jsonl, checkpoints, env.json. Only one process at a time may write it."""

import contextlib
import json
import shutil
import time
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import Any, Self

import yaml

from tinyset.config import CondenseConfig, load_yaml
from tinyset.errors import RunError, UserError
from tinyset.files import is_temporary, load_tree, lock, save_tree, write_atomic, write_json
from tinyset.machine import environment, peak_memory_bytes

# may differ between a run and its resumption without changing what is computed
FREE = {"time_limit_s", "checkpoint_every", "device", "threads"}
KEEP = 2  # checkpoints: the newest, and the one before it until the newest is proven


class RunFolder:
    """A folder, or nothing at all where `path` is None (everything is then a no-op)."""

    def __init__(
        self, path: Path | None, config: CondenseConfig, *, resume: bool, overwrite: bool, command: str | None = None
    ) -> None:
        self.path, self.config, self.resume, self.overwrite = path, config, resume, overwrite
        self._metrics: FileIO | None = None
        self._command, self._began, self._earlier = command, time.monotonic(), list[dict[str, Any]]()

    def __enter__(self) -> Self:
        if self.path is None:
            return self
        self._occupied(self.path)  # said before anything is touched
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"Cannot create --out {self.path}: {error.strerror}.") from None
        self._lock = lock(self.path / ".lock", wait=False, busy=f"Another run is using {self.path}.")
        try:
            self._take(self.path)
        except BaseException:
            self._lock.release()
            raise
        return self

    def _take(self, path: Path) -> None:
        """The folder is ours alone: look again, now that nobody else can change it."""
        occupied = self._occupied(path)
        if occupied and self.resume:
            self._same_config(path / "config.yaml")
            self._earlier = sessions(path / "env.json")
        elif occupied:
            self._clear()
        write_atomic(path / "config.yaml", yaml.safe_dump(self.config.model_dump(mode="json"), sort_keys=False))
        self._sign(path)

    def _occupied(self, path: Path) -> bool:
        """Whether there is a run in `path`; what is no run, or not to be touched, is refused."""
        if path.exists() and not path.is_dir():
            raise UserError(f"--out {path} is a file.")
        try:  # a kill in the first moment leaves a lock and an unfinished file: that is no run yet
            occupied = path.exists() and any(p.name != ".lock" and not is_temporary(p.name) for p in path.iterdir())
        except OSError as error:
            raise UserError(f"Cannot read --out {path}: {error.strerror}.") from None
        if occupied and not (self.resume or self.overwrite):
            raise UserError(f"--out {path} is not empty: use --overwrite or --resume.")
        if occupied and not (path / "config.yaml").exists():
            raise UserError(f"--out {path} holds other files and is not a run: it is left alone.")
        return occupied

    def __exit__(self, *_: object) -> None:
        if self.path is not None:
            if self._metrics is not None:
                with contextlib.suppress(OSError):  # of a full disk was said before
                    self._metrics.close()
            with contextlib.suppress(RunError):
                self._sign(self.path, seconds=round(time.monotonic() - self._began, 3), peak=peak_memory_bytes())
            self._lock.release()

    def _sign(self, path: Path, seconds: float | None = None, peak: int | None = None) -> None:
        """env.json: the machine, the command that began the run, and what each session of it took; None after a kill."""
        now = {"command": self._command, "seconds": seconds, "peak_memory_bytes": peak}
        lived = [*self._earlier, now]
        write_json(path / "env.json", {**environment(), "command": lived[0].get("command"), "sessions": lived})

    def _same_config(self, path: Path) -> None:
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError):
            raise RunError(f"{path} is damaged: restore it from a copy, or begin again with --overwrite.") from None
        before = CondenseConfig.parse(load_yaml(text, str(path)), str(path)).model_dump()
        now = self.config.model_dump()
        changed = [key for key in now if key not in FREE and now[key] != before[key]]
        if changed:
            key = changed[0]
            raise UserError(f"--resume: {key} was {before[key]!r} in {path} and is {now[key]!r} now.")

    def _clear(self) -> None:
        """All but the lock, and config.yaml: it is what makes the folder a run, and is replaced at once."""
        assert self.path is not None
        try:
            for entry in sorted(self.path.iterdir()):
                if entry.name not in (".lock", "config.yaml"):
                    shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        except OSError as error:
            raise RunError(f"Cannot clear --out {self.path}: {error.strerror or error}.") from None

    # -- metrics ----------------------------------------------------------------------------------------------------

    def metric(self, values: dict[str, Any]) -> None:
        """One line a step, handed to the system at once."""
        if self.path is None:
            return
        line = (json.dumps(values) + "\n").encode()
        try:
            if self._metrics is None:
                self._metrics = open(self.path / "metrics.jsonl", "ab", buffering=0)  # noqa: SIM115 - closed by __exit__
            while line:  # a disk that is almost full takes a part; the next write says why
                line = line[self._metrics.write(line) :]
        except OSError as error:
            raise RunError(f"Cannot write {self.path / 'metrics.jsonl'}: {error.strerror}.") from None

    def keep_metrics(self, steps: int) -> None:
        """Drop the lines of steps that will be done again, and a line that a kill cut short."""
        if self.path is None or not (self.path / "metrics.jsonl").exists():
            return
        try:
            lines = (self.path / "metrics.jsonl").read_bytes().splitlines()[:steps]
        except OSError as error:
            raise RunError(f"Cannot read {self.path / 'metrics.jsonl'}: {error.strerror}.") from None
        write_atomic(self.path / "metrics.jsonl", b"".join(line + b"\n" for line in lines))

    # -- checkpoints ------------------------------------------------------------------------------------------------

    def _checkpoints(self) -> list[Path]:
        return [] if self.path is None else sorted(self.path.glob("checkpoint-*.safetensors"))

    def checkpoint(self, step: int, tree: dict[str, Any]) -> None:
        """Write, read back and verify; only then let go of an older one."""
        if self.path is None:
            return
        path = self.path / f"checkpoint-{step:08d}.safetensors"
        save_tree(path, tree)
        load_tree(path, "checkpoint")
        known = self._checkpoints()
        at = known.index(path)  # later ones were damaged, or we would have gone on from them
        for old in known[: max(0, at + 1 - KEEP)] + known[at + 1 :]:
            with contextlib.suppress(OSError):
                old.unlink()

    def newest_checkpoint(self, note: Callable[[str], None]) -> dict[str, Any] | None:
        """The newest checkpoint that is whole; None where the run has not begun."""
        if not self.resume:
            return None
        paths = self._checkpoints()
        for path in reversed(paths):
            try:
                return load_tree(path, "checkpoint")
            except RunError as error:
                if path == paths[0]:
                    raise
                note(f"{error} Going on from the one before it.")
        return None


def sessions(path: Path) -> list[dict[str, Any]]:
    """The sessions that env.json tells of; none where it cannot be read."""
    try:
        return known_sessions(json.loads(path.read_bytes()))
    except (OSError, ValueError, RecursionError):
        return []


def known_sessions(environment: Any) -> list[dict[str, Any]]:
    found = environment.get("sessions") if isinstance(environment, dict) else None
    return [session for session in found if isinstance(session, dict)] if isinstance(found, list) else []


def cost(environment: Any) -> tuple[float | None, int | None]:
    """Seconds over all sessions of a run, None where one was killed; and the highest memory of any."""
    lived = known_sessions(environment)
    spent = [session.get("seconds") for session in lived]
    whole = [float(seconds) for seconds in spent if isinstance(seconds, int | float)]
    peaks = [peak for session in lived if isinstance(peak := session.get("peak_memory_bytes"), int)]
    return sum(whole) if whole and len(whole) == len(lived) else None, max(peaks, default=None)
