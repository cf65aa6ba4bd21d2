"""Files are whole or absent; locks die with their owner; a run's folder survives every moment a kill can choose."""

import errno
import fcntl
import json
import os
import stat
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import toy_images
from tinyset import files
from tinyset.condensation import run
from tinyset.condensed import CondensedSet
from tinyset.config import CondenseConfig
from tinyset.data.imageset import Splits
from tinyset.errors import RunError, UserError
from tinyset.evaluation.results import Record, Results
from tinyset.files import building_folder, load_tree, lock, replace_folder, save_tree, sweep, write_atomic
from tinyset.interrupts import Interrupted, Stop
from tinyset.methods import resolve
from tinyset.parameterizations import autoencoder
from tinyset.progress import Silent
from tinyset.runs import RunFolder

# -- one file -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_no_other(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    write_atomic(path, "old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, where, full)
    with pytest.raises(RunError, match=r"Cannot write .*a: No space left on device\."):
        write_atomic(path, "new")
    assert path.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_write_replaces_a_link_and_not_what_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    write_atomic(tmp_path / "link", b"new")
    assert (tmp_path / "precious").read_text() == "old" and not (tmp_path / "link").is_symlink()


def test_files_and_folders_get_the_permissions_that_the_user_set(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomic(tmp_path / "a", "x")
        building = building_folder(tmp_path / "b")
        replace_folder(building, tmp_path / "b")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o750


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize("before", ["folder", "file", "nothing"])
def test_a_folder_takes_the_place_of_what_was_there(
    exchange: bool, before: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not exchange:
        monkeypatch.setattr(files, "_exchange", lambda *_: False)
    target = tmp_path / "set"
    if before == "folder":
        target.mkdir()
        (target / "old").write_text("old")
    elif before == "file":
        target.write_text("old")
    building = building_folder(target)
    (building / "new").write_text("new")
    replace_folder(building, target)
    assert [p.name for p in target.iterdir()] == ["new"] and [p.name for p in tmp_path.iterdir()] == ["set"]


def test_who_holds_the_lock_sweeps_what_a_killed_owner_left(tmp_path: Path) -> None:
    for name in (".a.x1.tmp", "a", ".hidden", "b.tmp"):
        (tmp_path / name).write_text("x")
    (tmp_path / ".set.x2.tmp").mkdir()
    (tmp_path / ".set.x2.tmp" / "half").write_text("x")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / ".c.x3.tmp").write_text("another owner's")
    lock(tmp_path / ".lock", wait=False, busy="").release()
    assert sorted(p.name for p in tmp_path.iterdir()) == [".hidden", ".lock", "a", "b.tmp", "deep"]
    assert (tmp_path / "deep" / ".c.x3.tmp").exists()
    sweep(tmp_path / "nowhere")


# -- trees of tensors -----------------------------------------------------------------------------------------------

LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**60), 2**60), st.floats(allow_nan=False), st.text(max_size=8)
)
DTYPES = (torch.float32, torch.float64, torch.float16, torch.int64, torch.int8, torch.uint8, torch.bool)
TENSORS = st.builds(
    lambda dtype, shape: torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype),
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 3), max_size=3),
)
TREES = st.dictionaries(
    st.text("abc/.", min_size=1, max_size=4),
    st.recursive(
        st.one_of(LEAVES, TENSORS),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text("xyz", min_size=1), inner)),
        max_leaves=8,
    ),
    max_size=4,
)


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(equal(one[k], other[k]) for k in one)
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(equal, one, other))
    return type(one) is type(other) and one == other


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=TREES)
def test_a_tree_comes_back_as_it_was(tree: dict[str, Any], tmp_path: Path) -> None:
    save_tree(tmp_path / "tree", tree)
    assert equal(load_tree(tmp_path / "tree"), tree)


def small_tree(path: Path) -> tuple[dict[str, Any], bytes]:
    tree = {"step": 3, "weights": torch.arange(4, dtype=torch.float32), "names": ["a", "é"], "none": None}
    save_tree(path, tree)
    return tree, path.read_bytes()


def test_every_bit_and_every_length_of_a_tree_is_guarded(tmp_path: Path) -> None:
    tree, whole = small_tree(tmp_path / "tree")
    damaged = [whole[:n] for n in range(len(whole))]
    damaged += [
        whole[:at] + bytes([whole[at] ^ (1 << bit)]) + whole[at + 1 :] for at in range(len(whole)) for bit in range(8)
    ]
    refused: list[str] = []
    for data in damaged:
        (tmp_path / "tree").write_bytes(data)
        try:
            assert equal(load_tree(tmp_path / "tree"), tree)  # a blank in the header more or less changes nothing
        except RunError as error:
            refused.append(str(error))
    assert len(refused) > 0.95 * len(damaged) and all("is damaged or not ours" in text for text in refused)


def test_whole_bytes_under_a_changed_header_are_refused(tmp_path: Path) -> None:
    _, whole = small_tree(tmp_path / "tree")
    for old, new in ((b'"F32"', b'"I32"'), (b'"shape":[4]', b'"shape":[2,2]')):
        size = struct.unpack("<Q", whole[:8])[0]
        header = whole[8 : 8 + size].replace(old, new, 1)
        assert header != whole[8 : 8 + size]
        (tmp_path / "tree").write_bytes(struct.pack("<Q", len(header)) + header + whole[8 + size :])
        with pytest.raises(RunError, match="damaged"):
            load_tree(tmp_path / "tree")


def test_a_missing_tree_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"The bank file .*nothing is missing"):
        load_tree(tmp_path / "nothing", "bank file")


# -- locks ----------------------------------------------------------------------------------------------------------

HOLDER = """
import fcntl, sys, time
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""


def test_a_lock_dies_with_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "place.lock"
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None and owner.stdout.readline() == "held\n"
        with pytest.raises(UserError, match="Taken"):
            lock(path, wait=False, busy="Taken.")
        owner.kill()
        owner.wait()
        lock(path, wait=False, busy="Taken.").release()


def test_waiting_for_a_lock_can_be_left(tmp_path: Path) -> None:
    path = tmp_path / "place.lock"
    stop = Stop()
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        asked = 0

        def meanwhile() -> None:
            nonlocal asked
            asked += 1
            if asked == 3:
                stop.catch(15, None)
            stop.leave("while another process works")

        began = time.monotonic()
        with pytest.raises(Interrupted, match="Stopped by SIGTERM while another process works") as leaving:
            lock(path, wait=True, busy="", meanwhile=meanwhile)
    assert leaving.value.exit_code == 143 and asked == 3 and time.monotonic() - began < 5


def test_a_place_that_cannot_be_locked_is_said_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunError, match=r"Cannot lock .*file/inner/\.lock"):
        lock(tmp_path / "file" / "inner" / ".lock", wait=True, busy="")


# -- a run's folder -------------------------------------------------------------------------------------------------


def config(**values: Any) -> CondenseConfig:
    return CondenseConfig(images_per_class=1, **values)


def folder(path: Path, *, resume: bool = False, overwrite: bool = False, **values: Any) -> RunFolder:
    return RunFolder(path, config(**values), resume=resume, overwrite=overwrite)


def test_what_a_kill_in_the_first_moment_leaves_is_no_stranger(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    (tmp_path / ".config.yaml.abc.tmp").write_text("half")
    with folder(tmp_path, resume=True):
        assert sorted(p.name for p in tmp_path.iterdir()) == [".lock", "config.yaml", "env.json"]


def test_overwriting_never_leaves_a_folder_that_is_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with folder(tmp_path) as made:
        made.checkpoint(1, {"a": 1})
        made.metric({"step": 0})

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tinyset.runs.write_atomic", killed)
    with pytest.raises(KeyboardInterrupt), folder(tmp_path, overwrite=True):
        pass
    assert (tmp_path / "config.yaml").exists() and not list(tmp_path.glob("checkpoint-*"))


def test_a_refused_run_gives_the_lock_back(tmp_path: Path) -> None:
    with folder(tmp_path):
        pass
    refused = folder(tmp_path, resume=True, seed=1)
    with pytest.raises(UserError, match="seed was 0"):
        refused.__enter__()
    with folder(tmp_path, resume=True), pytest.raises(UserError, match="Another run is using"):
        folder(tmp_path, resume=True).__enter__()


@pytest.mark.parametrize("content", [b"\xff\xfe", b"", b"[1", b"steps: banana", b"seed: 5\n"])
def test_a_damaged_config_is_refused_in_a_sentence_and_overwrite_helps(content: bytes, tmp_path: Path) -> None:
    with folder(tmp_path):
        pass
    (tmp_path / "config.yaml").write_bytes(content)
    with pytest.raises((UserError, RunError), match=r"config\.yaml"):
        folder(tmp_path, resume=True, steps=9).__enter__()
    with folder(tmp_path, overwrite=True):
        pass


def test_a_full_disk_under_the_metrics_is_one_sentence(tmp_path: Path) -> None:
    with folder(tmp_path) as made:
        (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
        with pytest.raises(RunError, match=r"Cannot write .*metrics\.jsonl: No space left"):
            made.metric({"step": 0})


def test_metrics_are_kept_up_to_the_checkpoint(tmp_path: Path) -> None:
    with folder(tmp_path) as made:
        for step in range(5):
            made.metric({"step": step})
    with open(tmp_path / "metrics.jsonl", "ab") as file:
        file.write(b'{"st\xff')
    with folder(tmp_path, resume=True) as made:
        made.keep_metrics(3)
        made.metric({"step": 3})
        made.keep_metrics(9)
    assert (tmp_path / "metrics.jsonl").read_text() == "".join(f'{{"step": {k}}}\n' for k in range(4))


def test_the_checkpoint_before_stays_until_the_next_is_proven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def kept() -> list[int]:
        return sorted(int(p.stem.partition("-")[2]) for p in tmp_path.glob("checkpoint-*"))

    notes: list[str] = []
    with folder(tmp_path) as made:
        for step in (1, 2, 3):
            made.checkpoint(step, {"step": step})
        assert kept() == [2, 3]
        (tmp_path / "checkpoint-00000009.safetensors").write_bytes(b"damaged, and later than the next")
    with folder(tmp_path, resume=True) as made:
        found = made.newest_checkpoint(notes.append)
        assert found == {"step": 3} and "Going on from the one before it" in notes[0]
        made.checkpoint(4, {"step": 4})
        assert kept() == [3, 4]
        monkeypatch.setattr("tinyset.runs.load_tree", _unreadable)
        with pytest.raises(RunError):
            made.checkpoint(5, {"step": 5})
        assert kept() == [3, 4, 5]


def _unreadable(*_: object) -> None:
    raise RunError("The disk lies.")


# -- whole runs -----------------------------------------------------------------------------------------------------

TINY: dict[str, Any] = dict(
    networks=2,
    network="convnet3:width=4",
    pretrain_steps=5,
    compile="never",
    decoders=2,
    threads=1,
    images_per_class=1,
    steps=4,
)


def test_a_run_killed_before_its_first_checkpoint_has_every_line_once(toy: Splits, tmp_path: Path) -> None:
    made = resolve("fast", TINY)
    run(made, toy, out=tmp_path / "r")
    for path in (tmp_path / "r").glob("checkpoint-*"):
        path.unlink()
    assert run(made, toy, out=tmp_path / "r", resume=True).resumed_from_step is None
    steps = [json.loads(line)["step"] for line in (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()]
    assert steps == [0, 1, 2, 3]


def test_a_run_does_not_go_on_with_other_images(toy: Splits, tmp_path: Path) -> None:
    made = resolve("fast", TINY)
    run(made, toy, out=tmp_path / "r")
    with pytest.raises(UserError, match="not those the run began with"):
        run(made, Splits("toy", toy_images(60, seed=7)), out=tmp_path / "r", resume=True)


def test_measurements_outlive_a_resumption_and_strangers_an_overwrite(toy: Splits, tmp_path: Path) -> None:
    made = resolve("fast", {**TINY, "steps": 0})
    condensed: CondensedSet = run(made, toy, out=tmp_path / "r").condensed
    results = tmp_path / "r" / "artifact" / "results.jsonl"
    results.write_text("measured\n")
    run(made, toy, out=tmp_path / "r", resume=True)
    assert results.read_text() == "measured\n"
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("precious")
    with pytest.raises(UserError, match="left alone"):
        condensed.save(tmp_path / "home", overwrite=True)
    assert (tmp_path / "home" / "thesis.txt").read_text() == "precious"


class StopAt(Stop):
    """A signal that arrives when it is asked about for the n-th time."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.left = count

    @property
    def exit_code(self) -> int:
        self.left -= 1
        if self.left < 0:
            self.catch(15, None)
        return super().exit_code


@pytest.mark.parametrize("damaged", [False, True])
def test_a_stopped_auto_encoder_goes_on_with_the_same_bytes(damaged: bool, tmp_path: Path) -> None:
    real = toy_images(30)
    common: dict[str, Any] = dict(steps=12, batch=8, rate=0.01, seed=0, device=torch.device("cpu"), progress=Silent())
    whole = autoencoder.pretrain(real, (12, 6, 3), cache=tmp_path / "a.safetensors", **common)
    place = tmp_path / "b.safetensors"
    with pytest.raises(Interrupted, match=r"Stopped by SIGTERM after step 7"):
        autoencoder.pretrain(real, (12, 6, 3), cache=place, stop=StopAt(7), **common)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.safetensors", "b.partial"]
    if damaged:
        (tmp_path / "b.partial").write_bytes((tmp_path / "b.partial").read_bytes()[:-1])
    again = autoencoder.pretrain(real, (12, 6, 3), cache=place, **common)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), again.parameters(), strict=True))
    assert (tmp_path / "a.safetensors").read_bytes() == place.read_bytes() and not (tmp_path / "b.partial").exists()


def test_a_changed_digit_in_the_results_is_noticed(tmp_path: Path) -> None:
    record = Record(
        key="k", set="s", network="n", protocol="p", seed=0, step=5, confusion=[[7, 1], [2, 6]], images=4, bytes=9,
        train_steps=5, images_seen=20, seconds=0.5,
    )  # fmt: skip
    path = tmp_path / "results.jsonl"
    Results(path).add(record)
    again = Results(path).find("k")
    assert again is not None and again.confusion == record.confusion
    path.write_text(path.read_text().replace("[7, 1]", "[8, 1]"))
    with pytest.raises(RunError, match=r"results\.jsonl, line 1 is damaged"):
        Results(path)
