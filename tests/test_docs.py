"""Every command and code block of README and docs is run, in the order of its page, with small settings.

Marks, as comments on the line above a block:
    <!-- parse -->        commands are parsed, not run: they open a browser or need other people's files
    <!-- file: NAME -->   the block is written to NAME for the commands after it
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import tinyset
from tests.report.made import stored_set
from tinyset import selection
from tinyset.cli import VERBS, _parse, main
from tinyset.config import load_yaml
from tinyset.data.load import BENCHMARKS
from tinyset.data.streetdigits import streetdigits
from tinyset.protocols import protocol

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^(?:<!-- (\w+)(?:: (\S+))? -->\n)?```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TINY = "convnet3:width=4"

# flags that make a command of the docs small: set, whatever the page says
SMALL: dict[str, dict[str, str]] = {
    "condense": {"--steps": "2", "--networks": "1", "--network": TINY, "--real-per-class": "4", "--pretrain-steps": "2",
                 "--compile": "never", "--time-limit": "60s", "--threads": "1"},
    "evaluate": {"--protocol": "steps:1", "--network": TINY, "--repeats": "1"},
    "bank": {"--threads": "1", "--networks": "1", "--network": TINY, "--real-per-class": "4"},
    "compare": {"--time-limit": "1s", "--protocol": "steps:1", "--network": TINY, "--repeats": "1", "--methods": "random",
                "--match": TINY, "--real-per-class": "4"},
    "train": {"--protocol": "steps:1", "--network": TINY},
    "search": {"--steps": "1", "--real-steps": "1", "--real-per-class": "2", "--confirm": "1"},
    "continual": {"--protocol": "steps:1", "--network": TINY, "--match": TINY, "--repeats": "1", "--condense-steps": "1",
                  "--networks": "1", "--pretrain-steps": "2", "--herding-steps": "1"},
    "grow": {"--steps": "2", "--networks": "1", "--network": TINY},
    "slim": {"--networks": "1", "--network": TINY, "--match": TINY, "--protocol": "steps:1"},
    "privacy": {"--network": TINY, "--protocol": "steps:1"},
}  # fmt: skip
# the same for Python
SMALLER = [
    (r"epochs=\d+", "epochs=1"),
    (r'"convnet3"', f'"{TINY}"'),
    (r'"(cifar10|cifar100|svhn)", data_dir="[^"]*"', '"streetdigits"'),
]


@dataclass(frozen=True)
class Block:
    mark: str
    argument: str
    language: str
    text: str


def blocks(path: Path) -> list[Block]:
    found = BLOCK.findall(path.read_text(encoding="utf-8"))
    return [Block(*(part or "" for part in parts)) for parts in found]


def lines(block: Block) -> list[list[str]]:
    joined = block.text.replace("\\\n", " ")
    return [words for line in joined.splitlines() if (words := shlex.split(line, comments=True))]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache for all pages, and a folder with what the pages take for granted: photos, a run, a hub."""
    few = streetdigits(train=100, test=50)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BENCHMARKS, "streetdigits", lambda request: few)
        patch.setenv("TINYSET_CACHE", str(tmp_path_factory.mktemp("docs-cache")))
        folder = tmp_path_factory.mktemp("docs")
        for name in ("cats", "dogs", "birds"):
            (folder / "photos" / name).mkdir(parents=True)
            for i in range(6):
                pixels = np.random.default_rng(i).integers(0, 255, (40, 36, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / "photos" / name / f"{i}.png")
        assert main(small(["condense", "streetdigits", "--out", str(folder / "run"), "--quiet"])) == 0
        stored_set("pixels").save(folder / "hub" / "user" / "digits")
        (folder / "cache").write_text(os.environ["TINYSET_CACHE"])
        yield folder


@pytest.fixture
def here(places: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh copy for each page, and the working directory."""
    shutil.copytree(places, tmp_path / "page")
    monkeypatch.setenv("TINYSET_CACHE", (places / "cache").read_text())
    monkeypatch.setenv("TINYSET_HUB", str(tmp_path / "page" / "hub"))
    monkeypatch.chdir(tmp_path / "page")
    from tinyset.condensation import condense

    def quick(*data: Any, **settings: Any) -> Any:
        return condense(
            *data, **{**settings, "steps": 1, "pretrain_steps": 2, "networks": 1, "network": TINY, "compile": "never"}
        )

    monkeypatch.setattr(tinyset, "condense", quick, raising=False)
    monkeypatch.setitem(selection.select.__kwdefaults__, "training", protocol("steps:2"))
    return tmp_path / "page"


def small(words: list[str]) -> list[str]:
    """The command with small settings, on data that is here."""
    wanted = dict(SMALL.get(words[0], {}))
    families = "--start" in words and "," in words[words.index("--start") + 1]  # as large as what they start with
    if "--images-per-class" in words and not families:
        wanted["--images-per-class"] = "1"
    kept, skip = [], False
    for word in words:
        if not skip and word not in wanted:
            kept.append(word)
        skip = word in wanted
    if kept[0] in ("condense", "bank", "compare") and kept[1] in BENCHMARKS and kept[1] != "streetdigits":
        kept[1] = "streetdigits"
        kept = [word for i, word in enumerate(kept) if word != "--data-dir" and kept[i - 1] != "--data-dir"]
    return [*kept, *(word for pair in wanted.items() for word in pair)]


def run_command(words: list[str], parse_only: bool) -> None:
    if words[0] == "tinyset":
        run_tinyset(words[1:], parse_only)
    elif words[0] == "make":
        targets = (ROOT / "Makefile").read_text()
        assert all(re.search(rf"^{re.escape(word)}:", targets, re.MULTILINE) for word in words[1:] if "=" not in word)
    elif words[:2] == ["pip", "install"]:
        wanted = set(re.findall(r"\w+", (re.search(r"\[(.*?)\]", " ".join(words)) or ["", ""])[1]))
        metadata = (ROOT / "pyproject.toml").read_text()
        assert all(re.search(rf"^{extra} = \[", metadata, re.MULTILINE) for extra in wanted)
    elif words[0] == "srun":
        run_command(words[1:], parse_only)
    elif words[0] == "torchrun":  # its own flags are parsed; the command is run by one process
        from torch.distributed.run import parse_args

        launcher = parse_args(words[1:])
        assert launcher.module and launcher.training_script == "tinyset"
        run_tinyset(launcher.training_script_args, parse_only)
    elif words[0] == "python":
        script = ROOT / words[1]
        assert script.is_file() or words[1] == "-m", words
    else:
        raise AssertionError(f"the docs test does not know how to run {words}")


def run_tinyset(words: list[str], parse_only: bool) -> None:
    import importlib

    module = importlib.import_module(VERBS[words[0]][0])
    parsed = _parse(module.Args, words[0], words[1:], "")
    assert not isinstance(parsed, int), f"tinyset {shlex.join(words)} is not a command"
    if parse_only or words[0] in ("data", "demo"):
        return
    out = words[words.index("--out") + 1] if words[0] == "condense" else None
    if out and "--resume" not in words:
        shutil.rmtree(out, ignore_errors=True)
    assert main(small(words)) == 0, f"tinyset {shlex.join(words)} failed"


def run_python(text: str, names: dict[str, Any]) -> None:
    for pattern, replacement in SMALLER:
        text = re.sub(pattern, replacement, text)
    exec(compile(text, "a block of the docs", "exec"), names)


def names_for(page: Path) -> dict[str, Any]:
    """What a block may take for granted: the reader's own images and dataset."""
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    labels = np.arange(40) % 4
    dataset = torch.utils.data.TensorDataset(torch.rand(12, 3, 8, 8), torch.arange(12) % 3)
    np.savez("set.npz", images=images, labels=labels)
    given = {"images": images, "labels": labels, "x": images, "y": labels, "xt": images[:8], "yt": labels[:8]}
    return {"__name__": page.stem, "torchvision_dataset": dataset, **given}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_runs(page: Path, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = names_for(page)
    for block in blocks(page):
        if block.mark == "file":
            Path(block.argument).write_text(block.text)
        if block.language in ("bash", "console", "sh") or (
            not block.language and block.text.startswith(("tinyset", "make"))
        ):
            for words in lines(block):
                run_command(words, parse_only=block.mark == "parse")
        elif block.language == "python":
            run_python(block.text, names)
        elif block.language == "yaml":
            assert load_yaml(block.text, str(page))
        elif block.language == "json":
            json.loads(block.text)
        else:
            assert block.language in ("text", "", "latex"), f"{page}: a block of {block.language!r}"


def test_the_site_builds_strictly(tmp_path: Path) -> None:
    """No page is left out, no link is broken, every page says what the product says today."""
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", str(ROOT / "mkdocs.yml"), "-d"]
    done = subprocess.run([*command, str(tmp_path / "site")], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    cli = (tmp_path / "site" / "reference" / "cli" / "index.html").read_text()
    assert all(f"tinyset {verb}" in cli for verb in VERBS) and "--images-per-class" in cli
    assert "push_to_hub" in (tmp_path / "site" / "reference" / "python" / "index.html").read_text()


def test_links_between_pages_and_to_files_exist() -> None:
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", text):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"
