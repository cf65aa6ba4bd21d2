"""docs/results.md is what the committed records say, and shows misses, gaps and reasons."""

import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from records.book import Book
from records.costs import cost
from records.figures import draw
from records.page import page

from tests.records.conftest import NETWORK
from tinyset.cli import _parse
from tinyset.cli.condense import Args, settings
from tinyset.methods import resolve

ROOT = Path(__file__).parents[2]
CELLS = """
goals:
  - {{what: reached, records: [a], network: "{n}", protocol: "steps:4", paper: 1.0, floor: 2, goal: 3}}
  - {{what: between, records: [a, b, none], network: "{n}", protocol: "steps:4", floor: 2, goal: 101}}
  - {{what: missed, records: [a], network: "{n}", protocol: "steps:4", floor: 101, goal: 102}}
  - {{what: above, records: [a], network: "{n}", protocol: "steps:4", above: random, floor: -100, goal: 200}}
  - {{what: absent, records: [none], floor: 1, goal: 2, why: no such thing}}
others:
  - {{what: elsewhere, records: [b], network: "{n}", protocol: "steps:4", floor: 101, goal: 102}}
recipes:
  - {{flags: --these flags, records: [a, b], network: "{n}", protocol: "steps:4"}}
  - {{flags: --no such, records: [none]}}
table1:
  - name: ours
    cells:
      cifar10-1: {{records: [a], network: "{n}", protocol: "steps:4"}}
      svhn-1: {{why: the reason of it}}
table2:
  cifar10-1:
    - {{records: [a], why: the other reason}}
    - {{records: [a], protocol: "steps:4", why: the third reason}}
budget:
  cifar10-1: {{records: [a], network: "{n}", protocol: "steps:4"}}
  svhn-1: {{records: [none]}}
pictures: [cifar10-1]
ablations:
  - {{what: stripes, of: stripes, base: stripes-base, protocol: "steps:4"}}
  - {{what: beside a result, of: stripes-slow, base: a, protocol: "steps:4"}}
  - {{what: nothing, of: nothing, base: nothing}}
"""


@pytest.fixture
def book(place: Path, tmp_path: Path) -> Book:
    for name in ("results/a", "results/b", "ablations/stripes-base", "ablations/stripes-slow"):
        shutil.copytree(place / "record", tmp_path / name)
    config = tmp_path / "ablations" / "stripes-slow" / "config.yaml"
    config.write_text(re.sub("codes: 0.1", "codes: 0.05", config.read_text()).replace("networks: 2", "networks: 7"))
    shutil.copyfile(ROOT / "records" / "published.yaml", tmp_path / "published.yaml")
    (tmp_path / "cells.yaml").write_text(CELLS.format(n=NETWORK))
    return Book(tmp_path)


def test_goals_are_judged_as_they_are(book: Book) -> None:
    lines = {line.split(" | ")[0].strip("| "): line for line in page(book).splitlines() if line.startswith("| ")}
    assert "**goal reached**" in lines["reached"] and "| 3 |" in lines["reached"] and "`a`" in lines["reached"]
    assert "floor reached, goal missed by" in lines["between"] and "| 6 |" in lines["between"], "two sets x 3 repeats"
    assert "**missed**" in lines["missed"] and "below the floor" in lines["missed"]
    assert "random + 200 = " in lines["above"] and "floor reached" in lines["above"]
    assert "no such thing" in lines["absent"] and "–" in lines["absent"]
    asked, _, others = page(book).partition("The same targets by other trainings")
    assert "| elsewhere |" in others and "**missed**" in lines["elsewhere"] and "| elsewhere |" not in asked


def test_without_other_trainings_there_is_no_table_of_them(book: Book) -> None:
    cells = book.cells.model_copy(update={"others": ()})
    book.__dict__["cells"] = cells
    assert "The same targets by other trainings" not in page(book) and "| reached |" in page(book)


def test_recipes_say_what_they_give_and_cost(book: Book) -> None:
    lines = {line.split(" | ")[0].strip("| `"): line for line in page(book).splitlines() if line.startswith("| ")}
    given = lines["--these flags"]
    assert re.search(r"\| [\d.]+ ± [\d.]+ \| 6 \| \d+ min \| \d+ \| [\d.]+ [MG]B \| `a`, `b` \|", given), given
    assert "not run yet" in lines["--no such"]


def test_a_set_of_others_costs_what_they_cost(book: Book) -> None:
    a = book.results["a"]
    assert a.seconds is not None
    timed = replace(a, environment={**a.environment, "sessions": [{"seconds": 600.0}], "threads": 2})
    book.results.update(a=timed, b=replace(timed, environment={**timed.environment, "threads": 1}))

    def spent(start: str) -> str:
        return cost(book, [replace(timed, config=timed.config.model_copy(update={"start": start}))])[1]

    assert spent("records/results/b/artifact") == "10 min after `b`, 30 of one core in all"
    assert spent("elsewhere") == "10 min after `elsewhere`"
    assert spent("a,records/results/b/artifact") == "2 sets, 50 min of one core"
    again = book.results["b"].config.model_copy(update={"start": "a"})
    book.results.update(b=replace(book.results["b"], config=again))
    assert spent("b") == "10 min after `b`, 50 of one core in all"
    assert spent("a,elsewhere") == "2 sets, ?"


def test_tables_figures_and_ablations(book: Book, tmp_path: Path) -> None:
    text = page(book)
    ours = next(line for line in text.splitlines() if line.startswith("| **ours**"))
    assert ours.count("not run") == 9 and "SVHN, 1: the reason of it." in text
    assert "68.5" in text and "59.8 ± 0.5" in text and "the other reason" in text
    assert "rates" not in text and "rate of codes 0.1 → 0.05" in text and "networks 2 → 7" in text
    for group, base in (("stripes", "stripes-base"), ("beside a result", "a")):
        rows = text.split(f"| {group} |")[1].splitlines()[2:4]
        assert rows[0].startswith("| the base |") and rows[0].endswith(f"`{base}` |") and "`stripes-slow`" in rows[1]
    assert "nothing: not run yet." in text and "SVHN, 1: not run yet." in text
    drawn = draw(book, tmp_path / "pictures")
    assert {path.name for path in drawn} >= {"budget-cifar10-1.svg", "budget-cifar10-1.png"}
    assert "pictures/budget-cifar10-1.svg" in text and "| kfs, `steps:5` | 1 |" in text


def test_nothing_recorded_is_a_page_too(book: Book) -> None:
    for name in ("results", "ablations"):
        shutil.rmtree(book.folder / name)
    assert "not run yet" in page(Book(book.folder))
    (book.folder / "results" / "a").mkdir(parents=True)
    (book.folder / "results" / "a" / "record.json").write_text(json.dumps({"sha256": 1}))
    with pytest.raises(SystemExit, match="results"):
        page(Book(book.folder))


def test_the_committed_page_is_what_the_records_say() -> None:
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert text == page(Book(ROOT / "records")), "run `make results`"
    for picture in re.findall(r"\(pictures/(.*?)\)", text):
        assert (ROOT / "docs" / "pictures" / picture).is_file(), picture


def test_the_committed_records_say_what_was_measured() -> None:
    book = Book(ROOT / "records")
    for record in (*book.results.values(), *book.ablations.values()):
        text = (record.folder / "README.md").read_text(encoding="utf-8")
        for row in record.final_rows():
            said = f"{row.accuracy} % ({row.network}, {row.protocol}, n = {row.accuracy.n})"
            assert said in text, f"{record.name}: run `make results`"


def test_the_flags_of_a_recipe_are_those_of_its_record() -> None:
    book = Book(ROOT / "records")
    how = {"device", "threads", "time_limit_s", "checkpoint_every"}  # it was run, not what
    for row in book.cells.recipes:
        args = _parse(Args, "condense", [*shlex.split(row.flags), "--out", "run"], "")
        given = resolve(args.recipe, settings(args)).model_dump(exclude=how)
        for record in book.of(row):
            assert given == record.config.model_dump(exclude=how), row.flags


def test_the_published_numbers_agree_with_those_of_compare() -> None:
    """`tinyset compare` has the paper's table too, without deviations."""
    module = pytest.importorskip("tinyset.published")
    paper = Book(ROOT / "records").published["paper"]
    names = {"kip": "KIP to NN", "cafe": "CAFE + DSA", "kfs": "KFS, the paper", "full": "Full dataset"}
    rows = {name.lower(): values for name, values in paper["table1"].items()}
    for method in (*module.PUBLISHED, "full"):
        for column, value in zip(paper["columns"], rows[names.get(method, method).lower()], strict=True):
            data, _, count = column.partition("-")
            known = module.published(data, int(count), method)
            assert known == (None if value is None else float(str(value).partition(" ")[0])), (method, column)
