"""What there is to show: the records by name, the published numbers, and which records make up a cell of a table."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tinyset.config import Settings, load_yaml
from tinyset.errors import UserError
from tinyset.evaluation.metrics import Spread
from tinyset.records import RunRecord, read


class Cell(Settings):
    """`records` whose measurements with `network` by `protocol` (default: the set's own) are one number, or `why` there is none."""

    records: tuple[str, ...] = ()
    network: str = "convnet3"
    protocol: str | None = None
    why: str = "not run yet"


class Goal(Cell):
    """A cell with what was asked of it; `above`: floor and goal count from the accuracy of this baseline."""

    what: str
    paper: float | str | None = None
    floor: float
    goal: float
    above: str | None = None


class Recipe(Cell):
    """A cell with the flags that made it: what a recipe gives and costs."""

    flags: str


class Line(Settings):
    """A row of ours in table 1: a cell for each of its columns; those that are not named were not run because `otherwise`."""

    name: str
    cells: dict[str, Cell]
    otherwise: str = "not run yet"


class Ablation(Settings):
    """Records of records/ablations whose names begin with `of`, against the record `base`."""

    what: str
    of: str
    base: str
    network: str = "convnet3"
    protocol: str | None = None


class Cells(Settings):
    """`cells.yaml`."""

    goals: tuple[Goal, ...] = ()  # a row for each target
    others: tuple[Goal, ...] = ()  # the same targets by other trainings, and by sets of before
    recipes: tuple[Recipe, ...] = ()
    table1: tuple[Line, ...] = ()
    table2: dict[str, tuple[Cell, ...]] = {}  # a row for each, of all networks
    budget: dict[str, Cell] = {}
    pictures: tuple[str, ...] = ()
    ablations: tuple[Ablation, ...] = ()


@dataclass(frozen=True)
class Book:
    """The folder of all records. A record that is not there is not there; one that is damaged is an error."""

    folder: Path

    @cached_property
    def cells(self) -> Cells:
        path = self.folder / "cells.yaml"
        return Cells.parse(load_yaml(path.read_text(encoding="utf-8"), str(path)), str(path))

    @cached_property
    def published(self) -> dict[str, Any]:
        path = self.folder / "published.yaml"
        return load_yaml(path.read_text(encoding="utf-8"), str(path))

    @cached_property
    def results(self) -> dict[str, RunRecord]:
        return _all(self.folder / "results")

    @cached_property
    def ablations(self) -> dict[str, RunRecord]:
        return _all(self.folder / "ablations")

    def of(self, cell: Cell) -> list[RunRecord]:
        """The records of a cell that are there and hold a measurement of its kind."""
        found = [self.results[name] for name in cell.records if name in self.results]
        return [record for record in found if record.accuracies(cell.network, cell.protocol)]

    def measured(self, cell: Cell) -> Spread | None:
        """Over all repeats of all its records, as the paper counts 3 sets x 5 evaluations."""
        values = [value for record in self.of(cell) for value in record.accuracies(cell.network, cell.protocol)]
        return Spread.of(values) if values else None

    def baseline(self, cell: Cell, name: str) -> Spread | None:
        values = [v for record in self.of(cell) for v in record.accuracies(cell.network, cell.protocol, name)]
        return Spread.of(values) if values else None


def _all(folder: Path) -> dict[str, RunRecord]:
    names = sorted(entry.parent.name for entry in folder.glob("*/record.json"))
    try:
        return {name: read(folder / name) for name in names}
    except UserError as error:
        raise SystemExit(f"{folder}: {error}") from error
