"""Tables, charts and the command line of evaluation."""

import json
from pathlib import Path
from typing import Any

import pytest

from tinyset.cli import main
from tinyset.cli.evaluate import parse_steps, set_names, split_networks
from tinyset.condensed import CondensedSet
from tinyset.errors import UserError
from tinyset.report import tables
from tinyset.report.charts import budget_chart, storage_chart


def _row(name: str = "kfs", steps: int = 100, mean: float = 50.0, n: int = 3, **more: Any) -> dict[str, Any]:
    spread = {"mean": mean, "std": 1.25, "n": n}
    cost = {"images": 10, "train_steps": steps, "images_seen": 1000, "seconds": 1.5, "bytes": 12345}
    return {
        "set": name,
        "network": "convnet3",
        "protocol": "kfs_x",
        "accuracy": spread,
        "balanced_accuracy": spread,
    } | (cost | more)


def test_tables() -> None:
    rows = [_row("a|b & 5%"), _row(n=1)]
    plain, md, tex = tables.text(rows), tables.markdown(rows), tables.latex(rows)
    assert "50.0 ± 1.2" in plain and "12,345" in plain and len({len(line) for line in plain.splitlines()[1:]}) == 1
    assert md.count("\n") == 4 and r"a\|b & 5%" in md and "---:" in md
    assert r"a|b \& 5\%" in tex and r"kfs\_x" in tex and r"50.0 $\pm$ 1.2" in tex and tex.count(r"\\") == 3
    assert "Test images" not in md and "noise:0.1" in tables.markdown([_row(corruption="noise:0.1")])


def test_charts_are_written_twice_alike(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = [_row(name, steps, steps / 20) for name in ("kfs", "random") for steps in (100, 1000)]
    paths = budget_chart(rows, tmp_path / "budget", "convnet3")
    assert [path.name for path in paths] == ["budget.png", "budget.svg"]
    before = paths[1].read_bytes()
    budget_chart(rows, tmp_path / "budget", "convnet3")
    assert paths[1].read_bytes() == before
    variants = [_row("float32", bytes=4000), _row("float16", bytes=2000), _row("4 of 8 decoders", bytes=3000)]
    assert all(path.stat().st_size > 1000 for path in storage_chart(variants, tmp_path / "storage"))


def test_lists_on_the_command_line() -> None:
    assert split_networks("vgg11,convnet3:width=64,norm=batch,a.b:f") == [
        "vgg11",
        "convnet3:width=64,norm=batch",
        "a.b:f",
    ]
    assert parse_steps("100,2_000") == [100, 2000] and parse_steps("paper")[-1] == 20_000
    with pytest.raises(UserError, match="--budget-steps"):
        parse_steps("100,many")
    assert set_names(("a/artifact", "b/artifact", "c")) == ["a", "b", "c"]
    assert set_names(("a/x", "b/x")) == ["a/x", "b/x"]


def test_cli_says_one_json_object(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["evaluate", str(tmp_path), "--data", "streetdigits", "--json"]) == 2
    spoken = capsys.readouterr()
    assert spoken.out == "" and spoken.err.count("\n") == 1 and "not a condensed set" in spoken.err


def test_cli_table(
    artifact: CondensedSet,
    data: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tinyset.cli.evaluate.read_data", lambda *_: data)
    flags = ["--data", "x", "--network", "convnet1:width=4", "--device", "cpu", "--repeats", "2"]
    run = ["evaluate", str(artifact.path), *flags, "--protocol", "steps:3,steps:2:none"]
    assert main([*run, "--json"]) == 0
    spoken = capsys.readouterr()
    rows = json.loads(spoken.out)["rows"]
    assert [row["protocol"] for row in rows] == ["steps:3", "steps:2:none"] and rows[0]["accuracy"]["n"] == 2
    assert main([*run, "--format", "markdown", "--out", str(tmp_path / "o")]) == 0
    assert capsys.readouterr().out == (tmp_path / "o" / "table.md").read_text()
    assert main(["evaluate", str(artifact.path), *flags, "--budget-steps", "1,2", "--json", "--quiet"]) == 0
    spoken = capsys.readouterr()
    assert [row["train_steps"] for row in json.loads(spoken.out)["rows"]] == [1, 2] and spoken.err == ""


def test_the_budget_follows_the_augmentation_of_one_protocol(
    data: Any, artifact: CondensedSet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tinyset.cli.evaluate.read_data", lambda *_: data)
    along = ["evaluate", str(artifact.path), "--data", "x", "--network", "convnet1:width=4", "--budget-steps", "1,2"]
    found = {}
    for wanted in ("kfs", "kfs-aug", "kfs-cutmix", "steps:9:dsa", "kfs-aug:batch=4"):
        assert main([*along, "--protocol", wanted, "--json", "--quiet"]) == 0
        found[wanted] = json.loads(capsys.readouterr().out)["rows"][1]["protocol"]
    assert list(found.values()) == ["steps:2:none", "steps:2", "steps:2:cutmix", "steps:2:dsa", "steps:2:batch=4"]
    for refused in ("idc", "kfs,kfs-aug"):
        assert main([*along, "--protocol", refused]) == 2
        assert "--budget-steps" in capsys.readouterr().err
