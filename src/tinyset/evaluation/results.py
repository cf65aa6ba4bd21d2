"""`results.jsonl`: one line per finished measurement, kept with the artifact, never computed twice."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from pydantic import Field

from tinyset.condensed import CondensedSet, shipped
from tinyset.config import Settings
from tinyset.errors import RunError, UserError
from tinyset.files import cache_dir, lock, write_atomic
from tinyset.processes import team

MOST_BYTES = 256 << 20  # of a results file: more is not ours


class Record(Settings):
    """One measurement: a network trained from one seed, tested once."""

    key: str
    set: str
    network: str
    protocol: str
    seed: int
    step: int = Field(ge=0)
    corruption: str = "clean"
    confusion: list[list[int]]
    images: int  # in the training set
    bytes: int  # of the training set
    train_steps: int  # until this measurement
    images_seen: int
    seconds: float  # of training
    made: dict[str, Any] = {}
    check: str = ""  # a hash of the line; empty: not checked


def record_key(identity: dict[str, Any]) -> str:
    """A hash of everything that determines the number."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]


class Results:
    """A results file; `shared` is a second one that baselines are also looked up in: many artifacts have the same."""

    def __init__(self, path: Path, shared: Path | None = None) -> None:
        self.path, self.shared = path, shared
        self._records: dict[str, Record] = {}
        self.refresh()

    def find(self, key: str) -> Record | None:
        return self._records.get(key)

    def all(self) -> list[Record]:
        return list(self._records.values())

    def refresh(self) -> None:
        """See what another process has finished meanwhile."""
        own = _read(self.path)
        self._records |= {**(_read(self.shared) if self.shared is not None else {}), **own}
        self._own = set(own)

    def add(self, record: Record, *, shared: bool = False) -> None:
        self._records[record.key] = record
        self._own.add(record.key)
        if not team().leads:  # the first process writes what all have measured
            return
        _append(self.path, record)
        if shared and self.shared is not None:
            _append(self.shared, record)

    def keep(self, record: Record) -> None:
        """What was found in the shared file is written beside the artifact too: its results are then complete."""
        if record.key not in self._own:
            self.add(record)


def default_path(artifact: CondensedSet) -> Path:
    """Inside the artifact's folder; in the cache for one that is shipped, read-only or was never saved."""
    folder = artifact.path
    ours = [place.resolve() for place in shipped().values()]
    if folder is not None and os.access(folder, os.W_OK) and folder.resolve() not in ours:
        return folder / "results.jsonl"
    return cache_dir() / "results" / f"{artifact.fingerprint[:32]}.jsonl"


def baselines_path(data_fingerprint: str) -> Path:
    return cache_dir() / "results" / f"baselines-{data_fingerprint[:32]}.jsonl"


def _append(path: Path, record: Record) -> None:
    """The whole file is written again and renamed, under a lock: no reader or kill ever sees half a line."""
    name = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:32]
    guard = lock(cache_dir() / "locks" / f"{name}.lock", wait=True, busy="")
    try:
        lines = {**_read(path), record.key: record}
        write_atomic(path, "".join(_line(found) + "\n" for found in lines.values()))
    finally:
        guard.release()


def _line(record: Record) -> str:
    values = record.model_dump(mode="json", exclude={"check"})
    return json.dumps(values | {"check": record_key(values)})


def _record(line: str) -> Record:
    values = json.loads(line)
    record = Record.parse(values, "")
    if record.check and record.check != record_key({key: values[key] for key in values if key != "check"}):
        raise ValueError("check")
    return record


def _read(path: Path) -> dict[str, Record]:
    if not path.exists():
        return {}
    try:
        if path.stat().st_size > MOST_BYTES:
            raise RunError(f"{path} is too large to be a results file: move it away.")
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"Cannot read {path}: {error}.") from None
    records = {}
    for number, line in enumerate(text.splitlines(), 1):
        try:
            record = _record(line)
        except (ValueError, TypeError, RecursionError, UserError):
            raise RunError(f"{path}, line {number} is damaged: remove the line and run again.") from None
        records[record.key] = record
    return records
