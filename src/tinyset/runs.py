"""A run's folder: config.yaml, metrics.jsonl, checkpoints, env.json. Only one process at a time may write it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, TextIO

import yaml

from tinyset.config import CondenseConfig, load_yaml
from tinyset.errors import RunError, UserError
from tinyset.files import load_tree, lock, save_tree, write_atomic, write_json
from tinyset.machine import environment

# may differ between a run and its resumption without changing what is computed
FREE = {"time_limit_s", "checkpoint_every", "device"}
KEEP = 2  # checkpoints: the newest, and the one before it until the newest is proven


class RunFolder:
    """A folder, or nothing at all where `path` is None (everything is then a no-op)."""

    def __init__(self, path: Path | None, config: CondenseConfig, *, resume: bool, overwrite: bool) -> None:
        self.path, self.config, self.resume, self.overwrite = path, config, resume, overwrite
        self._metrics: TextIO | None = None

    def __enter__(self) -> Self:
        if self.path is None:
            return self
        existed = self.path.exists()
        if existed and not self.path.is_dir():
            raise UserError(f"--out {self.path} is a file.")
        occupied = existed and any(p.name != ".lock" for p in self.path.iterdir())
        if occupied and not (self.resume or self.overwrite):
            raise UserError(f"--out {self.path} is not empty: use --overwrite or --resume.")
        if occupied and not (self.path / "config.yaml").exists():
            raise UserError(f"--out {self.path} holds other files and is not a run: it is left alone.")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"Cannot create --out {self.path}: {error.strerror}.") from None
        self._lock = lock(self.path / ".lock", wait=False, busy=f"Another run is using {self.path}.")
        if occupied and self.resume:
            self._same_config(self.path / "config.yaml")
        elif occupied:
            self._clear()
        write_atomic(self.path / "config.yaml", yaml.safe_dump(self.config.model_dump(mode="json"), sort_keys=False))
        write_json(self.path / "env.json", environment())
        return self

    def __exit__(self, *_: object) -> None:
        if self.path is not None:
            if self._metrics is not None:
                self._metrics.close()
            self._lock.release()

    def _same_config(self, path: Path) -> None:
        before = CondenseConfig.parse(load_yaml(path.read_text(), str(path)), str(path)).model_dump()
        now = self.config.model_dump()
        changed = [key for key in now if key not in FREE and now[key] != before[key]]
        if changed:
            key = changed[0]
            raise UserError(f"--resume: {key} was {before[key]!r} in {path} and is {now[key]!r} now.")

    def _clear(self) -> None:
        assert self.path is not None
        for entry in self.path.iterdir():
            if entry.name != ".lock":
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()

    # -- metrics ----------------------------------------------------------------------------------------------------

    def metric(self, values: dict[str, Any]) -> None:
        """One line a step, flushed at once."""
        if self.path is None:
            return
        try:
            if self._metrics is None:
                self._metrics = open(self.path / "metrics.jsonl", "a")  # noqa: SIM115 - closed by __exit__
            self._metrics.write(json.dumps(values) + "\n")
            self._metrics.flush()
        except OSError as error:
            raise RunError(f"Cannot write {self.path / 'metrics.jsonl'}: {error.strerror}.") from None

    def keep_metrics(self, steps: int) -> None:
        """Drop the lines of steps that will be done again, and a line that a kill cut short."""
        if self.path is None or not (self.path / "metrics.jsonl").exists():
            return
        lines = (self.path / "metrics.jsonl").read_text(errors="replace").splitlines()[:steps]
        write_atomic(self.path / "metrics.jsonl", "".join(line + "\n" for line in lines))

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
        for old in self._checkpoints()[:-KEEP]:
            old.unlink(missing_ok=True)

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
