"""What a run's folder says: the artifact, its settings, losses, environment and every finished measurement."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tinyset.artifact import CONFIG
from tinyset.condensed import CondensedSet, load
from tinyset.config import load_yaml
from tinyset.errors import RunError, UserError
from tinyset.evaluation.results import Record, default_path
from tinyset.evaluation.rows import row_of
from tinyset.storage import PRECISIONS

Row = dict[str, Any]
MOST_BYTES = 256 << 20
EVALUATED = {"set", "network", "protocol", "accuracy", "balanced_accuracy", "images", "train_steps", "images_seen",
             "seconds", "bytes"}  # fmt: skip
COMPARED = {"method", "accuracy", "seconds", "steps", "images", "params_per_class", "bytes", "train_seconds"}


@dataclass(frozen=True)
class Subject:
    """One condensed set, with a name that tells it apart on the page."""

    name: str
    condensed: CondensedSet
    folder: Path | None = None  # of the run
    settings: Mapping[str, Any] = field(default_factory=dict)
    losses: list[tuple[int, float, float]] = field(default_factory=list)  # step, loss, seconds
    environment: Mapping[str, Any] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)


def gather(paths: Iterable[str]) -> tuple[list[Subject], list[Row]]:
    """The sets behind these runs, artifacts, shipped names or `compare` folders; and the rows of comparisons."""
    found: list[tuple[str, str]] = []
    compared: list[Row] = []
    for path in paths:
        folder = Path(path)
        runs = sorted(entry.parent.parent for entry in folder.glob(f"*/artifact/{CONFIG}")) if folder.is_dir() else []
        if runs and not (folder / "artifact").exists() and not (folder / CONFIG).exists():
            found += [(run.name, str(run)) for run in runs]
            compared += _json_rows(folder / "table.json")
        else:
            found.append((folder.parent.name if folder.name == "artifact" else folder.name, path))
    names = [name for name, _ in found]
    return [_subject(name if names.count(name) == 1 else path, path, len(found)) for name, path in found], compared


def _subject(name: str, path: str, count: int) -> Subject:
    folder = Path(path)
    run = folder.parent if folder.name == "artifact" else folder
    if (run / "artifact" / CONFIG).is_file():
        condensed = load(run / "artifact")
    elif (run / "config.yaml").is_file() and not (folder / CONFIG).is_file():
        raise UserError(f"{path} has no finished artifact yet: follow the run with `tinyset watch {path}`.")
    else:
        condensed = load(path)
    rows = _rows(condensed, run)
    if count > 1:
        rows = [{**row, "set": _told_apart(row["set"], condensed.config.method, name)} for row in rows]
    settings = run / "config.yaml"
    return Subject(
        name=name,
        condensed=condensed,
        folder=run if settings.is_file() else None,
        settings=load_yaml(_text(settings), str(settings)) if settings.is_file() else {},
        losses=read_losses(run / "metrics.jsonl"),
        environment=found if isinstance(found := _json(run / "env.json"), dict) else {},
        rows=rows,
    )


def _told_apart(of: str, method: str, name: str) -> str:
    """Several sets on one page: `kfs` becomes the run's name; baselines keep theirs."""
    if of == method or of.startswith(f"{method},") or variant_kind(of):
        return name + of.removeprefix(method) if not variant_kind(of) else f"{name}: {of}"
    return of


def variant_kind(name: str) -> str | None:
    """Which storage variant a set is: precision, decoders or codes; None for an ordinary one."""
    last = name.rpartition(": ")[2]
    if last in PRECISIONS:
        return "precision"
    words = last.split()
    return words[3] if len(words) == 4 and words[1] == "of" and words[3] in ("decoders", "codes") else None


def read_losses(path: Path) -> list[tuple[int, float, float]]:
    """The finished lines of `metrics.jsonl`; a last line that is being written is left out."""
    losses = []
    for line in (_text(path) if path.is_file() else "").splitlines():
        try:
            values = json.loads(line)
            losses.append((int(values["step"]), float(values["loss"]), float(values["seconds"])))
        except (ValueError, KeyError, TypeError):
            continue
    return losses


def _rows(condensed: CondensedSet, run: Path) -> list[Row]:
    """Rows of the set's results file, over all seeds of each cell; and those of a `results.json` beside it."""
    cells: dict[tuple[Any, ...], list[Record]] = {}
    path = default_path(condensed)
    for number, line in enumerate((_text(path) if path.is_file() else "").splitlines(), 1):
        try:
            record = Record.parse(json.loads(line), "")
        except (ValueError, TypeError, UserError):
            raise RunError(f"{path}, line {number} is damaged: remove the line and run again.") from None
        key = (record.set, record.network, record.protocol, record.step, record.corruption, record.images)
        cells.setdefault(key, []).append(record)
    fitting = [records for records in cells.values() if len(records[0].confusion) == len(condensed.class_names)]
    rows = [row_of([(record, True) for record in records], condensed.class_names).to_dict() for records in fitting]
    return merged([*rows, *_json_rows(run / "results.json")])


def merged(rows: Iterable[Row]) -> list[Row]:
    """One row per cell: the one with most repeats."""
    best: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        key = tuple(row.get(part) for part in ("set", "network", "protocol", "step", "corruption"))
        if key not in best or best[key]["accuracy"]["n"] < row["accuracy"]["n"]:
            best[key] = row
    return list(best.values())


def _json_rows(path: Path) -> list[Row]:
    """Rows of `evaluate --out`, `demo` or `compare`; anything else of that name is not ours and left alone."""
    values = _json(path)
    rows = values.get("rows", []) if isinstance(values, dict) else []
    fitting = [row for row in rows if isinstance(row, dict) and (set(row) >= EVALUATED or set(row) >= COMPARED)]
    return [{"corruption": "clean", **row} for row in fitting]


def _json(path: Path) -> Any:
    try:
        return json.loads(_text(path)) if path.is_file() else None
    except (ValueError, RecursionError):
        raise RunError(f"{path} is not valid JSON.") from None


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise RunError(f"{path} is too large to be ours.")
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise RunError(f"Cannot read {path}: {error.strerror}.") from None
