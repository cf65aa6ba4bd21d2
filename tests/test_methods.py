"""The table of methods, its pages and its records say the same."""

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tinyset.condensation import check
from tinyset.data.imageset import Splits
from tinyset.data.streetdigits import streetdigits
from tinyset.methods import METHODS, resolve
from tinyset.published import published
from tinyset.report import tables

ROOT = Path(__file__).parents[1]
HEADINGS = ["Equation", "Usage", "Logged metrics", "Where we deviate and why", "Measured result"]
RECORDS = sorted((ROOT / "records").glob("compare-*/table.json"))
OURS = {"kfr"}  # no paper's: the comparison records are of the papers' methods
TRAINED = [name for name, method in METHODS.items() if method.objective is not None and name not in OURS]


@pytest.fixture(scope="module")
def few() -> Splits:
    return streetdigits(train=100, test=50)


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("recipe", ["plain", "fast", "paper"])
def test_all_schedules_are_valid_settings(name: str, recipe: str, few: Splits) -> None:
    config = resolve(recipe, {"method": name, "images_per_class": 1})
    check(config, few.train)  # a wrong option would be an error
    assert (config.steps == 0) == (METHODS[name].objective is None)


def test_plain_is_plain_kfs_and_fast_is_made_for_kfr() -> None:
    assert resolve("plain", {}).method == "kfs"
    assert resolve("fast", {}).method == resolve("best", {}).method == "kfr"
    assert resolve("fast", {"method": "kfr"}) == resolve("fast", {})
    for name in set(METHODS) - {"kfr"}:
        assert resolve("fast", {"method": name}) == resolve("plain", {"method": name})


def test_the_paper_schedule_is_the_papers() -> None:
    assert resolve("paper", {"method": "dm"}).steps == 20_000
    assert resolve("paper", {"method": "dm"}).network == "convnet3"
    assert resolve("paper", {"method": "dc"}).rates == pytest.approx({"images": 0.1 * 0.2**2})  # rates in pixel units
    assert resolve("paper", {"method": "idc"}).options["outer"] == 100
    assert "pool" not in resolve("paper", {"method": "dsa"}).options


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_its_page(name: str, hooks: ModuleType) -> None:
    page = (ROOT / "docs" / "methods" / f"{name}.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == HEADINGS
    assert page.rstrip().endswith(f"{{{{ measured {name} }}}}")  # filled from the records: it cannot go stale
    said = hooks.fill(page)
    for record in RECORDS:
        for row in json.loads(record.read_text())["rows"]:
            if row["method"] == name:
                assert f"{row['accuracy']['mean']:.1f} ± {row['accuracy']['std']:.1f}" in said


@pytest.mark.parametrize("record", RECORDS, ids=lambda path: path.parent.name)
def test_a_record_is_whole(record: Path) -> None:
    found = json.loads(record.read_text())
    assert record.with_name("table.md").read_text() == tables.markdown(found["rows"])
    assert json.loads(record.with_name("env.json").read_text())["command"].startswith("tinyset compare ")
    assert {row["method"] for row in found["rows"]} >= {*TRAINED, "random", "herding", "kfs-0", "full"}
    for row in found["rows"]:
        assert row["published"] == published(found["data"], found["images_per_class"], row["method"])


@pytest.mark.parametrize("record", [path for path in RECORDS if path.parent.name == "compare-streetdigits"])
def test_on_streetdigits_every_trained_method_beats_random_and_kfs_leads(record: Path) -> None:
    rows: dict[str, Any] = {row["method"]: row["accuracy"] for row in json.loads(record.read_text())["rows"]}
    chance = rows["random"]["mean"] + rows["random"]["std"]
    assert all(rows[name]["n"] >= 3 and rows[name]["mean"] - rows[name]["std"] > chance for name in TRAINED)
    assert rows["kfs"]["mean"] >= rows["kfs-0"]["mean"] + 10
    assert rows["kfs"]["mean"] == max(rows[name]["mean"] for name in rows if name != "full")


def test_published_figures() -> None:
    assert published("cifar10", 1, "dm") == 26.0 and published("cifar10", 50, "kfs") == 75.0
    assert published("svhn", 10, "full") == 95.4
    assert published("cifar100", 1, "idc") is None and published("cifar10", 7, "dm") is None
    assert published("streetdigits", 1, "kfs") is None and published("cifar10", [1], "kfs") is None
