"""Sets that come with the package are found by name wherever a set is named, and are what their records say."""

import json
import shutil
from pathlib import Path

import pytest

from tests.records.conftest import NETWORK
from tinyset import condensed
from tinyset.cli import main
from tinyset.condensed import load, shipped
from tinyset.errors import UserError
from tinyset.files import sha256_file
from tinyset.records import read

ROOT = Path(__file__).parents[2]
MOST_BYTES = 1_500_000
NAMES = sorted(shipped())


@pytest.fixture
def small(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package that ships one small set, and a working directory elsewhere."""
    package = tmp_path / "package"
    shutil.copytree(place / "record" / "artifact", package / "shipped" / "stripes-1")
    monkeypatch.setattr(condensed, "SHIPPED", package / "shipped")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return "stripes-1"


def test_by_name_everywhere(small: str, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(load(small)) == 36
    flags = ["--data", str(place / "data.npz"), "--network", NETWORK, "--protocol", "steps:2", "--json", "--quiet"]
    for words in (
        ["evaluate", small, *flags],
        ["inspect", small, "--json"],
        ["show", small, "--out", "show.png"],
        ["export", small, "images", "--format", "imagefolder"],
        ["report", small, "--out", "report.html", "--quiet"],
    ):
        assert main(words) == 0, words
    assert json.loads(capsys.readouterr().out.splitlines()[0])["rows"][0]["set"] == "kfs"
    inside = {path.name for path in (tmp_path / "package" / "shipped" / small).iterdir()}
    assert "results.jsonl" not in inside, "measurements of a shipped set are kept in the cache"


def test_a_folder_of_that_name_is_the_one_that_is_meant(
    small: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(place / "run", small)
    with pytest.raises(UserError, match="the set of this run is stripes-1/artifact"):
        load(small)
    shutil.rmtree(small)
    shutil.copytree(place / "run" / "artifact", small)
    assert load(small).path == Path(small)


def test_an_unknown_name_is_answered_with_the_known_ones(small: str) -> None:
    with pytest.raises(UserError, match="shipped with tinyset: stripes-1"):
        load("cifar11-1")


def test_a_record_without_its_set_finds_the_shipped_one(small: str, place: Path, tmp_path: Path) -> None:
    record = tmp_path / "record"
    shutil.copytree(place / "record", record, ignore=shutil.ignore_patterns("artifact"))
    found = read(record).condensed()
    assert found is not None and found.path is not None and found.path.name == small


@pytest.mark.skipif(not NAMES, reason="no condensed set is shipped with the package yet")
@pytest.mark.parametrize("name", NAMES or [""])
def test_what_is_shipped_is_what_its_record_says(name: str) -> None:
    record = read(ROOT / "records" / "results" / name)
    tensors = shipped()[name] / "condensed.safetensors"
    assert sha256_file(tensors) == record.made.sha256 == load(name).fingerprint
    assert tensors.stat().st_size < MOST_BYTES and record.final_rows(), "a shipped set has a measured accuracy"
