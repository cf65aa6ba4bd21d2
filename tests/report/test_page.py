"""The page as text: everything in it, nothing outside it, and no name that can break it."""

import base64
import hashlib
import json
import re
import shlex
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.report.made import NASTY, codes_set, stored_set
from tinyset.cli import _parse, main
from tinyset.cli.condense import Args, settings
from tinyset.condensed import load
from tinyset.errors import UserError
from tinyset.methods import resolve
from tinyset.report.command import condense_command
from tinyset.report.gather import Subject, gather, variant_kind
from tinyset.report.graphs import final, thinned
from tinyset.report.page import page, safe_json

VOID = {"meta", "link", "input", "img", "br", "hr"}


class Balanced(HTMLParser):
    """Elements close in the order they opened; addresses and ids are collected."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.urls: list[str] = []
        self.ids: list[str] = []
        self.styled: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.urls += [str(values[key]) for key in ("src", "href", "action", "srcset") if key in values]
        self.ids += [str(values["id"])] if "id" in values else []
        self.styled += [tag] if "style" in values or any(key.startswith("on") for key in values) else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()


def commands(html: str) -> str:
    """What a reader copies."""
    return " ".join(re.sub(r"</?span>", "", found) for found in re.findall(r"<pre>(.*?)</pre>", html))


@pytest.fixture(scope="module")
def html(run_folder: Path) -> str:
    return page(gather([str(run_folder)])[0])


def test_it_is_one_well_formed_file(html: str) -> None:
    parser = Balanced()
    parser.feed(html)
    assert parser.open == [] and parser.styled == []
    assert all(url.startswith(("data:", "#")) for url in parser.urls)
    assert len(set(parser.ids)) == len(parser.ids)
    outside = re.findall(r"https?://[^\s\"'<)]+", html)
    assert set(outside) <= {"http://www.w3.org/2000/svg"}
    assert "@import" not in html and "url(" not in html


def test_the_policy_names_this_style_and_script(html: str) -> None:
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', html)
    assert policy and policy[1].startswith("default-src 'none'") and "connect-src 'none'" in policy[1]
    for tag in ("style", "script"):
        text = re.search(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        assert text
        digest = base64.b64encode(hashlib.sha256(text[1].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy[1]


def test_names_are_text(html: str) -> None:
    assert NASTY[0] not in html and "&lt;script&gt;document.title" in html
    assert "größer" in html
    data = re.search(r'id="sets">(.*?)</script>', html, re.DOTALL)
    assert data and "<" not in data[1] and json.loads(data[1])[0]["classes"] == list(NASTY)
    assert json.loads(safe_json({"a": "</script>\u2028&"})) == {"a": "</script>\u2028&"}


def test_every_part_is_there(html: str) -> None:
    for heading in ("Explorer", "Results", "Curves", "Class by class", "Ledger", "How it was made"):
        assert f">{heading}</h2>" in html
    for chart in (
        "Condensation loss",
        "Accuracy across networks (steps:3)",
        "Accuracy along training",
        "Accuracy against bytes",
    ):
        assert chart in html
    for cell in ("random, 1 per class", "full data", "noise:0.1", "2 of 3 decoders", "float16"):
        assert cell in html
    assert "Confusion matrix" in html and "overhead percent" in html and "platform" in html
    assert "tinyset condense stripes --out RUN" in commands(html) and "condensed in" in html and "peak memory" in html


def test_the_command_that_was_typed(run_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "typed"
    shutil.copytree(run_folder, folder)
    env = json.loads((folder / "env.json").read_text())
    for typed, shown in (
        ("tinyset condense 'a <b>' --steps 6", "tinyset condense &#x27;a &lt;b&gt;&#x27;"),
        ([1], "--out RUN"),
    ):
        (folder / "env.json").write_text(json.dumps({**env, "command": typed}))
        assert shown in commands(page(gather([str(folder)])[0]))
    (folder / "env.json").write_text("[]")
    assert "--out RUN" in commands(page(gather([str(folder)])[0]))


def test_the_command_gives_the_same_settings(run_folder: Path) -> None:
    config = load(run_folder / "artifact").config
    command = condense_command(config, config.condense)
    assert command is not None
    words = shlex.split(command)
    args = _parse(Args, "condense", words[2:], "")
    again = resolve(args.recipe, settings(args))
    assert json.loads(again.model_dump_json(include=set(config.condense))) == config.condense
    odd = condense_command(config, {**config.condense, "decoder_noise": 0.3})
    assert odd == "tinyset condense stripes --out RUN --recipe config.yaml --seed 0"
    assert condense_command(config, {}, "tinyset condense x") == "tinyset condense x"
    assert condense_command(stored_set("pixels").config, {}) is None


def test_several_runs_on_one_page(run_folder: Path, tmp_path: Path) -> None:
    other = codes_set(seed=1).save(tmp_path / "other" / "artifact")
    subjects, _ = gather([str(run_folder), str(other)])
    assert [subject.name for subject in subjects] == ["stripes", "other"]
    html = page(subjects)
    assert "condensed 2 ways" in html and '<option value="1">other</option>' in html
    assert "<td>stripes</td>" in html and "random, 1 per class" in html
    assert [subject.name for subject in gather([str(run_folder)] * 2)[0]] == [str(run_folder)] * 2


def test_a_folder_of_compare(run_folder: Path, tmp_path: Path) -> None:
    codes_set().save(tmp_path / "kfs" / "artifact")
    stored_set("pixels").save(tmp_path / "dm" / "artifact")
    row = {"method": "kfs", "accuracy": {"mean": 50.0, "std": 1.0, "n": 2}, "seconds": 60.0, "steps": 3, "images": 9,
           "params_per_class": 768.0, "bytes": 100, "train_seconds": 1.0}  # fmt: skip
    (tmp_path / "table.json").write_text(json.dumps({"rows": [row, {**row, "method": "dm"}]}))
    subjects, compared = gather([str(tmp_path)])
    assert [subject.name for subject in subjects] == ["dm", "kfs"] and len(compared) == 2
    assert main(["report", str(tmp_path), "--quiet"]) == 0
    html = (tmp_path / "report.html").read_text()
    assert "Methods at equal storage" in html and "Condense s" in html


def test_the_verb(run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, charts = tmp_path / "r.html", tmp_path / "charts"
    flags = ["--out", str(out), "--charts", str(charts), "--json", "--quiet"]
    assert main(["report", str(run_folder), *flags]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["report"] == str(out) and said["bytes"] == out.stat().st_size and said["sets"] == 1
    names = {path.name for path in charts.iterdir()}
    assert {
        "loss.png",
        "loss.svg",
        "networks-steps-3.png",
        "budget-convnet1-width-4.svg",
        "table.md",
        "table.tex",
    } <= names
    assert "<text" in (charts / "loss.svg").read_text(), "labels are text, so they can be read and searched"
    assert main(["report", str(run_folder)]) == 0
    assert (run_folder / "report.html").is_file()
    (run_folder / "report.html").unlink()


def test_refusals(run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.yaml").write_text("steps: 3\n")
    for arguments, said in (
        ([str(tmp_path)], "tinyset watch"),
        ([str(tmp_path / "none")], "There is no condensed set"),
        ([str(run_folder), "--with-real"], "--data"),
        ([str(run_folder), "--data", str(tmp_path / "none")], "Unknown source"),
        ([], "Name a run"),
    ):
        assert main(["report", *arguments]) == 2
        assert said in capsys.readouterr().err


def test_a_bare_artifact_is_enough(tmp_path: Path) -> None:
    condensed = stored_set("tiles", soft=True)
    html = page([Subject("bare", condensed)])
    Balanced().feed(html)
    assert "No measurements yet" in html and "is not recorded" in html


def test_many_classes_are_a_picture() -> None:
    """A hundred classes: the confusion matrix is an image, and the worst confusions are told."""
    from tinyset.report.classes import classes

    names = [f"class {i}" for i in range(100)]
    matrix = [[9 if i == j else 1 if j == (i + 1) % 100 else 0 for j in range(100)] for i in range(100)]
    row = {"set": "kfs", "network": "n", "protocol": "p", "accuracy": {"mean": 90.0}, "confusion": matrix}
    html = classes([row], names)
    assert (
        "<img" in html
        and "class 0 as class 1 (10 %)" in html
        and "<td class" not in html.replace('<td class="num"', "")
    )


def test_small_helpers() -> None:
    assert variant_kind("run: 4 of 8 decoders") == "decoders" and variant_kind("int8") == "precision"
    assert variant_kind("full data") is None
    assert len(thinned([(i, 1.0) for i in range(10_000)])) <= 400
    rows = [{"set": "a", "network": "n", "protocol": "p", "train_steps": step} for step in (1, 5, 3)]
    assert final(rows) == [rows[1]]
    with pytest.raises(UserError):
        gather(["/nowhere/at/all"])
