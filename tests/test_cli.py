"""The command line as people meet it: one sentence for a mistake, exit code 2, nothing left behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tinyset.cli import VERBS, main

SMALL = [
    "--steps",
    "2",
    "--networks",
    "2",
    "--network",
    "convnet3:width=4",
    "--pretrain-steps",
    "3",
    "--real-per-class",
    "20",
    "--threads",
    "1",
]


@pytest.fixture
def arrays(tmp_path: Path) -> str:
    """A little dataset as .npz: four classes of 16x16."""
    draw = np.random.default_rng(0)
    images = draw.integers(0, 255, (80, 16, 16, 3), dtype=np.uint8)
    labels = np.arange(80) % 4
    path = tmp_path / "small.npz"
    np.savez(path, x_train=images[:60], y_train=labels[:60], x_test=images[60:], y_test=labels[60:])
    return str(path)


def test_help_does_not_import_torch() -> None:
    code = (
        "import sys; sys.argv = ['tinyset', 'condense', '--help']\n"
        "from tinyset.cli import main\ncode = main()\nassert 'torch' not in sys.modules\nsys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "--images-per-class" in done.stdout


@pytest.mark.parametrize("words", [["--help"], ["condense", "--help"]])
def test_a_reader_that_leaves_is_no_error(words: list[str]) -> None:
    done = unread(words, "stdout")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", [["typo"], ["condense", "--typo"], ["inspect", "nowhere"]])
def test_a_mistake_is_one_though_nobody_reads_the_sentence(words: list[str]) -> None:
    assert unread(words, "stderr").returncode == 2


def unread(words: list[str], stream: str) -> subprocess.CompletedProcess[str]:
    """`tinyset WORDS` with a stream that nobody reads any more."""
    reader, writer = os.pipe()
    os.close(reader)
    code = f"import sys; from tinyset.cli import main; sys.exit(main({words!r}))"
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: writer}
    done = subprocess.run([sys.executable, "-c", code], text=True, **streams)
    os.close(writer)
    return done


def test_every_verb_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    overview = capsys.readouterr().out
    for verb in VERBS:
        assert verb in overview
        assert main([verb, "--help"]) == 0
        text = capsys.readouterr().out
        assert all(flag in text for flag in ("--seed", "--device", "--threads", "--json", "--quiet"))


def test_condense_evaluate_inspect_show(arrays: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "run")
    assert main(["condense", arrays, "--out", out, *SMALL, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["steps"] == 2 and made["resumed_from_step"] is None
    assert {p.name for p in Path(out).iterdir()} >= {"config.yaml", "metrics.jsonl", "artifact", "env.json"}
    artifact = made["artifact"]
    assert main(["inspect", artifact, "--json"]) == 0
    ledger = json.loads(capsys.readouterr().out)
    for key in [
        "class_names",
        "codes_per_class",
        "decoders",
        "synthetic_per_class",
        "params_per_class",
        "overhead_percent",
        "compression",
    ]:
        assert key in ledger
    assert ledger["classes"] == 4
    assert ledger["bytes"] == (Path(artifact) / "condensed.safetensors").stat().st_size
    evaluate = ["evaluate", artifact, "--data", arrays, "--protocol", "steps:3", "--network", "convnet3:width=4"]
    assert main([*evaluate, "--repeats", "2", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["rows"][0]
    assert row["network"] == "convnet3:width=4" and row["protocol"] == "steps:3" and row["seconds"] > 0
    assert row["accuracy"]["n"] == 2 and 0 <= row["accuracy"]["mean"] <= 100
    picture = tmp_path / "show.png"
    assert main(["show", artifact, "--out", str(picture)]) == 0
    with Image.open(picture) as image:
        assert image.width > 50
    capsys.readouterr()
    assert (
        main(["bank", arrays, "--networks", "3", "--network", "convnet3:width=4", "--real-per-class", "20", "--json"])
        == 0
    )
    bank = json.loads(capsys.readouterr().out)
    assert bank["networks"] == 3 and bank["computed"] == 1  # two are there from the run


def test_the_acceptance_line_of_the_ledger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "r")
    command = [
        "condense",
        "streetdigits",
        "--out",
        out,
        "--images-per-class",
        "1",
        "--steps",
        "0",
        "--pretrain-steps",
        "1",
    ]
    assert main(command) == 0
    capsys.readouterr()
    assert main(["inspect", out + "/artifact", "--json"]) == 0
    ledger = json.loads(capsys.readouterr().out)
    wanted = {
        "codes_per_class": 13,
        "decoders": 8,
        "synthetic_per_class": 104,
        "params_per_class": 3086.4,
        "overhead_percent": 0.47,
    }
    assert {key: ledger[key] for key in wanted} == wanted


def mistakes(tmp: Path) -> dict[str, list[str]]:
    (tmp / "empty").mkdir()
    (tmp / "junk.npz").write_bytes(b"junk")
    (tmp / "hollow" / "cat").mkdir(parents=True)
    (tmp / "hollow" / "dog").mkdir()
    (tmp / "hollow" / "cat" / "a.png").write_bytes(b"no picture")
    Image.new("RGB", (8, 8)).save(tmp / "hollow" / "dog" / "a.png")
    (tmp / "full").mkdir()
    (tmp / "full" / "x").write_text("x")
    (tmp / "file").write_text("x")
    out = str(tmp / "out")
    return {
        "unknown source": ["condense", "cifar11", "--out", out],
        "unknown method": ["condense", "streetdigits", "--out", out, "--method", "magic"],
        "unknown command": ["condens"],
        "empty folder": ["condense", str(tmp / "empty"), "--out", out],
        "junk npz": ["condense", str(tmp / "junk.npz"), "--out", out],
        "class without a readable image": ["condense", str(tmp / "hollow"), "--out", out],
        "occupied out": ["condense", "streetdigits", "--out", str(tmp / "full")],
        "out is a file": ["condense", "streetdigits", "--out", str(tmp / "file")],
        "unwritable out": ["condense", "streetdigits", "--out", "/proc/nowhere/out"],
        "no images": ["condense", "streetdigits", "--out", out, "--images-per-class", "0"],
        "negative images": ["condense", "streetdigits", "--out", out, "--images-per-class", "-1"],
        "small budget": ["condense", "streetdigits", "--out", out, "--params-per-class", "50"],
        "small byte budget": ["condense", "streetdigits", "--out", out, "--budget-bytes", "2kB"],
        "steps banana": ["condense", "streetdigits", "--out", out, "--steps", "banana"],
        "batch banana": ["condense", "streetdigits", "--out", out, "--batch", "banana"],
        "unknown flag": ["condense", "streetdigits", "--out", out, "--stepz", "3"],
        "no out": ["condense", "streetdigits"],
        "bad duration": ["condense", "streetdigits", "--out", out, "--time-limit", "soon"],
        "bad device": ["condense", "streetdigits", "--out", out, "--device", "toaster"],
        "inspect nothing": ["inspect", str(tmp / "nothing")],
        "inspect a folder": ["inspect", str(tmp / "empty")],
        "evaluate a folder": ["evaluate", str(tmp / "empty"), "--data", "streetdigits"],
        "show a file": ["show", str(tmp / "file")],
        "bank of none": ["bank", "streetdigits", "--networks", "0"],
        "missing recipe": ["condense", "streetdigits", "--out", out, "--recipe", "nope.yaml"],
    }


def test_mistakes_get_one_sentence_and_leave_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, command in mistakes(tmp_path).items():
        code = main(command)
        said = capsys.readouterr()
        lines = [line for line in said.err.splitlines() if line.startswith("tinyset: ")]
        assert code == 2, f"{name}: exit code {code}, said {said.err!r}"
        assert said.out == "", name
        assert len(lines) == 1 and said.err.splitlines()[-1] == lines[0], f"{name}: {said.err!r}"
        assert "Traceback" not in said.err and "╭" not in said.err, name
        assert not (tmp_path / "out").exists(), name
    assert sorted(p.name for p in (tmp_path / "full").iterdir()) == ["x"]


def test_compare_is_a_table_and_resumes_by_row(arrays: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, recipe = tmp_path / "compare", tmp_path / "quick.yaml"
    recipe.write_text("pretrain_steps: 3\nnetworks: 2\nreal_per_class: 10\n")
    command = [
        "compare",
        arrays,
        "--methods",
        "random,dm,kfs",
        "--out",
        str(out),
        "--time-limit",
        "2s",
        "--protocol",
        "steps:2",
    ]
    command += [
        "--repeats",
        "2",
        "--network",
        "convnet3:width=4",
        "--match",
        "convnet3:width=4",
        "--threads",
        "1",
        "--json",
    ]
    assert main([*command, "--compile", "never", "--recipe", str(recipe)]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["method"] for row in rows] == ["random", "dm", "kfs", "kfs-0", "full"]
    for row in rows:
        assert set(row) >= {"method", "accuracy", "seconds", "steps", "params_per_class", "bytes"}
        assert row["accuracy"]["n"] == 2
    assert rows[2]["steps"] > 0
    assert {p.name for p in out.iterdir()} >= {"table.md", "table.json", "time.png", "time.svg"}
    (out / "dm" / "done.json").unlink()  # as after a kill: that row alone goes on
    assert main([*command, "--compile", "never", "--recipe", str(recipe)]) == 0
    again = json.loads(capsys.readouterr().out)["rows"]
    assert [row["accuracy"] for row in again] == [row["accuracy"] for row in rows]
    assert main(["compare", arrays, "--methods", "magic", "--out", str(tmp_path / "no")]) == 2
    assert not (tmp_path / "no").exists()
