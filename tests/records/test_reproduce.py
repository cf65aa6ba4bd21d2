"""A record holds what its run was; the run made again from it gives the same bytes and numbers, and says when it does not."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.records.conftest import NETWORK, SMALL
from tinyset.cli import main
from tinyset.condensed import load
from tinyset.evaluation.metrics import Spread
from tinyset.files import sha256_file
from tinyset.records import keep, read, renew
from tinyset.records.reproduction import Cell, noise


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    capsys.readouterr()
    code = main([*words, "--json", "--quiet"])
    return code, json.loads(capsys.readouterr().out or "null")


def test_what_a_record_holds(place: Path) -> None:
    record = read(place / "record")
    names = {path.name for path in (place / "record").iterdir()}
    assert names == {
        "record.json",
        "config.yaml",
        "env.json",
        "metrics.jsonl",
        "results.jsonl",
        "artifact",
        "README.md",
    }
    assert record.made.sha256 == sha256_file(place / "run" / "artifact" / "condensed.safetensors")
    assert record.artifact.steps == 6 and record.artifact.source_fingerprint and record.config.seed == 0
    assert record.environment["command"].startswith("tinyset condense ") and record.seconds and record.peak_memory_bytes
    readme = (place / "record" / "README.md").read_text()
    assert "A note." in readme and record.made.sha256 in readme and record.environment["command"] in readme
    assert not (place / "record" / "artifact" / "results.jsonl").exists()


def test_a_record_measured_again_says_so(place: Path, tmp_path: Path) -> None:
    folder = tmp_path / "record"
    shutil.copytree(place / "record", folder)
    path = folder / "results.jsonl"
    before, lines = (folder / "README.md").read_text(), path.read_text().splitlines()
    assert not renew(folder) and (folder / "README.md").read_text() == before
    path.write_text("".join(f"{line}\n" for line in lines if json.loads(line)["seed"] != 2))
    assert before.count("n = 3") == 2 and renew(folder)
    after = (folder / "README.md").read_text()
    assert after.count("n = 2") == 2 and "n = 3" not in after
    assert after.splitlines()[:2] == before.splitlines()[:2] and after.splitlines()[4:] == before.splitlines()[4:]


def test_rows_of_the_set_and_of_its_baselines(place: Path) -> None:
    record = read(place / "record")
    assert [(row.network, row.protocol, row.seeds) for row in record.final_rows()] == [
        (NETWORK, "steps:4", (0, 1, 2)),
        ("convnet1:width=6", "steps:4", (0, 1, 2)),
    ]
    assert len(record.accuracies(NETWORK, "steps:4")) == len(record.accuracies(NETWORK, "steps:4", "random")) == 3
    assert record.accuracies(NETWORK) == [] and [row.step for row in record.along(NETWORK)] == [1, 2, 5]


def test_made_again_it_is_the_same(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, out = str(place / "data.npz"), tmp_path / "again"
    code, found = said(capsys, "reproduce", str(place / "record"), "--data", data, "--out", str(out), "--repeats", "2")
    assert code == 0 and found["identical"] and found["holds"] and found["differences"] == []
    assert [(row["network"], row["recorded"]["n"], row["new"]["n"]) for row in found["rows"]] == [
        (NETWORK, 3, 2),
        ("convnet1:width=6", 3, 2),
    ]
    assert load(out / "artifact").fingerprint == found["sha256"]["recorded"]
    assert main(["reproduce", str(place / "record"), "--data", data, "--only", "condense"]) == 0
    assert "6 steps in" in capsys.readouterr().out


def test_a_run_that_its_time_limit_ended_is_made_again_by_its_steps(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """4 of 6 steps, whose rates decay towards the sixth."""
    from tinyset.loop import Loop

    whole = Loop.run
    monkeypatch.setattr(Loop, "run", lambda self, until: whole(self, 4))
    data, run = str(place / "data.npz"), str(tmp_path / "run")
    assert main(["condense", data, "--out", run, *SMALL]) == 0
    monkeypatch.undo()
    monkeypatch.setenv("TINYSET_CACHE", str(place / "cache"))
    record = keep(Path(run), tmp_path / "record")
    assert (record.artifact.steps, record.config.steps) == (4, 6)
    code, found = said(capsys, "reproduce", str(tmp_path / "record"), "--data", data)
    assert code == 0 and found["identical"] and found["steps"] == 4 and found["rows"] == []


def test_numbers_that_do_not_hold_are_exit_code_1(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(place / "record", tmp_path / "record")
    path = tmp_path / "record" / "results.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:  # all right, then; which it is not
        line["confusion"] = [[sum(row) if i == c else 0 for i in range(3)] for c, row in enumerate(line["confusion"])]
        line["check"] = ""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    before = path.read_bytes()
    words = ["reproduce", str(tmp_path / "record"), "--data", str(place / "data.npz"), "--only", "evaluate"]
    code, found = said(capsys, *words, "--network", NETWORK)
    assert code == 1 and not found["holds"] and found["identical"] and len(found["rows"]) == 1
    assert path.read_bytes() == before and not (tmp_path / "record" / "artifact" / "results.jsonl").exists()
    assert main(words) == 1 and "does not hold" in capsys.readouterr().out


def test_another_machine_is_told(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(place / "record", tmp_path / "record")
    path = tmp_path / "record" / "env.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "cpu": "Z80", "threads": None}))
    words = ["reproduce", str(tmp_path / "record"), "--data", str(place / "data.npz"), "--only", "condense"]
    assert main([*words, "--threads", "1"]) in (0, 1)
    assert "cpu Z80 there, " in capsys.readouterr().out


def test_noise() -> None:
    from tinyset.evaluation.rows import Row

    matrix = [[90, 10], [10, 90]]  # two repeats of 100 tests: a binomial deviation of 3
    row = Row(
        "kfs", "n", "p", 1, "clean", (0, 1), Spread(90.0, 0.5, 2), Spread(90.0, 0.5, 2), {}, matrix, 1, 1, 1, 1, 1.0, 0
    )
    assert noise(row, Spread(90.0, 0.2, 2)) == pytest.approx(3.0)
    assert noise(row, Spread(90.0, 4.0, 2)) == 4.0
    assert Cell("n", "p", row.accuracy, Spread(84.1, 0.0, 1), 3.0).within_noise
    assert not Cell("n", "p", row.accuracy, Spread(83.9, 0.0, 1), 3.0).within_noise


def test_refusals(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.npz"
    other.write_bytes((place / "data.npz").read_bytes())
    import numpy as np

    arrays = dict(np.load(place / "data.npz"))
    np.savez(other, **{**arrays, "x_train": arrays["x_train"][::-1].copy()})
    record, data = str(place / "record"), str(place / "data.npz")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    for words, sentence in (
        (["reproduce", str(place / "run")], "is not a record"),
        (["reproduce", record], "--data"),
        (["reproduce", record, "--data", str(other)], "fingerprint"),
        (["reproduce", record, "--data", data, "--network", "resnet18"], "--network resnet18"),
        (["reproduce", record, "--data", data, "--only", "evaluate", "--out", "x"], "--out"),
        (["reproduce", record, "--data", data, "--only", "evaluate", "--repeats", "0"], "--repeats 0"),
        (["record", str(place), "--out", str(tmp_path / "r")], "not a finished run"),
        (["record", str(place / "run"), "--out", record], "--overwrite"),
        (["record", str(place / "run"), "--out", str(tmp_path / "mine"), "--overwrite"], "left alone"),
    ):
        assert main(words) == 2
        assert sentence in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["letter.txt"] and not (tmp_path / "r").exists()
    assert main(["record", str(place / "run"), "--out", record, "--overwrite", "--note", "A note."]) == 0
