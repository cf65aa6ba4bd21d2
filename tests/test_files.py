"""Files are whole or absent; locks die with their owner."""

import errno
import fcntl
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

from tinyset import files
from tinyset.errors import RunError, UserError
from tinyset.files import building_folder, load_tree, lock, replace_folder, save_tree, sweep, write_atomic
from tinyset.interrupts import Interrupted, Stop

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
