"""A record: what a run was, what was measured of it and the hash of what it made; enough to make it again.

record.json    hash, bytes and images of the condensed set, and its own config.json: source, fingerprint, steps, seed, protocol
config.yaml    every setting, resolved
env.json       the machine, the exact command, seconds and memory of each session
metrics.jsonl  a line a step
results.jsonl  a line a measurement
artifact/      the set itself where it is under 1.5 MB
README.md      for people
"""

import json
import re
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tinyset.artifact import CARD, CONFIG, PREVIEW, RESULTS, TENSORS, ArtifactConfig
from tinyset.condensed import CondensedSet, load, shipped
from tinyset.config import CondenseConfig, Settings, load_yaml
from tinyset.errors import RunError, UserError
from tinyset.evaluation.metrics import accuracy
from tinyset.evaluation.results import Record, Results, default_path
from tinyset.evaluation.rows import Row, row_of
from tinyset.files import building_folder, replace_folder, write_atomic, write_json
from tinyset.runs import cost

SMALL = 1_500_000  # bytes of a set that is kept with its record, so that it can be measured again on another machine
MADE, README = "record.json", "README.md"
COPIED = ("config.yaml", "env.json", "metrics.jsonl")
README_TEXT = """# {name}
{note}{measured}

    {command}
    tinyset reproduce {place}

{steps:,} steps{took}; sha256 of {tensors}: `{sha256}`.
"""


class Made(Settings):
    """`record.json`."""

    sha256: str
    bytes: int
    images: int
    artifact: ArtifactConfig


@dataclass(frozen=True)
class RunRecord:
    folder: Path
    made: Made
    config: CondenseConfig
    environment: dict[str, Any] = field(default_factory=dict)
    results: tuple[Record, ...] = ()

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def artifact(self) -> ArtifactConfig:
        return self.made.artifact

    @property
    def seconds(self) -> float | None:
        """Of condensation, bank and set-up included, over all sessions; None where one was killed."""
        return cost(self.environment)[0]

    @property
    def peak_memory_bytes(self) -> int | None:
        return cost(self.environment)[1]

    def rows(self, own: bool = True) -> list[Row]:
        """What was measured on clean test images, of the set itself or of all: a row per set, network, protocol and step."""
        cells: dict[tuple[str, str, str, int], list[Record]] = {}
        for record in self.results:
            if record.corruption == "clean" and (self._own(record) or not own):
                name = self.artifact.method if self._own(record) else record.set
                cells.setdefault((name, record.network, record.protocol, record.step), []).append(record)
        found = [sorted(records, key=lambda record: record.seed) for records in cells.values()]
        return [row_of([(record, True) for record in records], self.artifact.class_names) for records in found]

    def accuracies(self, network: str, protocol: str | None = None, of: str | None = None) -> list[float]:
        """Of each repeat at the end of its training; `of`: the kind of a baseline instead of the set itself."""
        wanted = [
            record
            for record in self.results
            if (record.network, record.protocol) == (network, protocol or self.artifact.protocol)
            and record.corruption == "clean"
            and (self._own(record) if of is None else record.set.partition(",")[0] == of)
        ]
        last = max((record.step for record in wanted), default=0)
        return [accuracy(record.confusion) for record in wanted if record.step == last]

    def along(self, network: str) -> list[Row]:
        """The rows of trainings that were measured at several steps, baselines included."""
        rows = [row for row in self.rows(own=False) if row.network == network]
        count = Counter((row.set, row.protocol) for row in rows)
        return sorted((row for row in rows if count[row.set, row.protocol] > 1), key=lambda row: row.step)

    def _own(self, record: Record) -> bool:
        """Not a baseline beside it, nor a smaller variant of it, nor what it was before its first step."""
        same_size = (record.images, record.bytes) == (self.made.images, self.made.bytes)
        return same_size and not record.set.endswith(", 0 steps")

    def final_rows(self) -> list[Row]:
        """The ends of trainings; without one that was only measured along the way, unless nothing else was."""
        cells: dict[tuple[str, str], list[Row]] = {}
        for row in sorted(self.rows(), key=lambda row: row.step):
            cells.setdefault((row.network, row.protocol), []).append(row)
        ends = [of[-1] for of in cells.values() if all(row.accuracy.n < of[-1].accuracy.n for row in of[:-1])]
        return ends or [of[-1] for of in cells.values()]

    def condensed(self) -> CondensedSet | None:
        """The set this record is of: its own copy, or the shipped one."""
        places = [self.folder / "artifact", *shipped().values()]
        for place in places:
            if (place / CONFIG).is_file() and (found := load(place)).fingerprint == self.made.sha256:
                return found
        return None


def read(folder: Path) -> RunRecord:
    if not (folder / MADE).is_file():
        raise UserError(f"{folder} is not a record: it has no {MADE}.")
    settings = folder / "config.yaml"
    return RunRecord(
        folder,
        Made.parse(_json(folder / MADE), str(folder / MADE)),
        CondenseConfig.parse(load_yaml(_text(settings), str(settings)), str(settings)),
        _json(folder / "env.json") if (folder / "env.json").is_file() else {},
        tuple(Results(folder / RESULTS).all()),
    )


def keep(run: Path, out: Path, *, note: str = "", overwrite: bool = False) -> RunRecord:
    """Write the record of a finished run; it is there complete or not at all."""
    if not (run / "config.yaml").is_file() or not (run / "artifact" / CONFIG).is_file():
        raise UserError(f"{run} is not a finished run: it needs config.yaml and artifact/.")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        if not overwrite:
            raise UserError(f"--out {out} exists and is not empty: choose another place or use --overwrite.")
        if not (out / MADE).is_file():
            raise UserError(f"--out {out} holds other files and is not a record: it is left alone.")
    condensed = load(run / "artifact")
    building = building_folder(out)
    try:
        for name in COPIED:
            if (run / name).is_file():
                shutil.copyfile(run / name, building / name)
        if (results := default_path(condensed)).is_file():
            shutil.copyfile(results, building / RESULTS)
        if condensed.bytes < SMALL:
            (building / "artifact").mkdir()
            for name in (TENSORS, CONFIG, CARD, PREVIEW):
                shutil.copyfile(run / "artifact" / name, building / "artifact" / name)
        facts = {"sha256": condensed.fingerprint, "bytes": condensed.bytes, "images": len(condensed)}
        write_json(building / MADE, {**facts, "artifact": _json(run / "artifact" / CONFIG)})
        (building / README).write_text(_readme(read(building), out, note), encoding="utf-8")
        replace_folder(building, out)
    except OSError as error:
        raise RunError(f"Cannot write {out}: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return read(out)


def renew(folder: Path) -> bool:
    """Make README.md say all that has been measured by now; whether it did not."""
    record, path = read(folder), folder / README
    text = _text(path)
    what, score = _measured(record)
    renewed = re.sub(rf"^{re.escape(what)}: .*$", lambda _: f"{what}: {score}.", text, count=1, flags=re.MULTILINE)
    if renewed != text:
        write_atomic(path, renewed)
    return renewed != text


def _measured(record: RunRecord) -> tuple[str, str]:
    """What the set is, and its accuracies."""
    budget = record.config.images_per_class
    size = f"{budget} image(s) per class" if isinstance(budget, int) else f"{record.made.bytes:,} bytes"
    said = [f"{row.accuracy} % ({row.network}, {row.protocol}, n = {row.accuracy.n})" for row in record.final_rows()]
    return f"{record.artifact.method} on {record.artifact.source}, {size}", ", ".join(said) or "not evaluated"


def _readme(record: RunRecord, out: Path, note: str) -> str:
    config, environment = record.artifact, record.environment
    took = "" if record.seconds is None else f" in {record.seconds / 60:.1f} min"
    if environment:
        took += f" on {environment.get('cpu')}, {environment.get('threads')} thread(s)"
    if record.peak_memory_bytes:
        took += f", at most {record.peak_memory_bytes / 1e9:.1f} GB of memory"
    return README_TEXT.format(
        name=out.name,
        note=f"{note.strip()}\n\n" if note.strip() else "",
        measured="{}: {}.".format(*_measured(record)),
        command=environment.get("command") or f"tinyset condense {config.source} --out RUN --recipe {out}/config.yaml",
        place=out,
        steps=config.steps,
        took=took,
        tensors=TENSORS,
        sha256=record.made.sha256,
    )


def _json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(_text(path))
    except (ValueError, RecursionError):
        raise UserError(f"{path} is not valid JSON.") from None
    if not isinstance(values, dict):
        raise UserError(f"{path} is not a JSON object.")
    return values


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"Cannot read {path}: {error}.") from None
