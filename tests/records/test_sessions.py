"""env.json tells the exact command, and what every session of a run took."""

import json
from pathlib import Path

import pytest

from tests.records.conftest import SMALL
from tinyset.cli import main
from tinyset.runs import cost, sessions


def test_a_run_in_two_sessions(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["condense", str(place / "data.npz"), "--out", str(tmp_path / "my run"), *SMALL]
    assert main(command) == 0
    first = json.loads((tmp_path / "my run" / "env.json").read_text())
    assert first["command"] == f"tinyset condense {place}/data.npz --out '{tmp_path}/my run' {' '.join(SMALL)}"
    (session,) = first["sessions"]
    assert (
        session["seconds"] > 0 and session["peak_memory_bytes"] > 1_000_000 and session["command"] == first["command"]
    )
    assert main([*command, "--resume"]) == 0
    second = json.loads((tmp_path / "my run" / "env.json").read_text())
    assert second["command"] == first["command"] and second["sessions"][0] == session
    assert second["sessions"][1]["command"] == first["command"] + " --resume"
    seconds, peak = cost(second)
    assert seconds == sum(part["seconds"] for part in second["sessions"]) and peak is not None
    assert main([*command, "--overwrite"]) == 0
    assert len(sessions(tmp_path / "my run" / "env.json")) == 1


def test_a_session_that_was_killed_has_no_time(tmp_path: Path) -> None:
    killed = {"sessions": [{"command": "a", "seconds": None}, {"seconds": 2.0, "peak_memory_bytes": 5}]}
    assert cost(killed) == (None, 5) and cost({}) == (None, None) and cost([]) == (None, None)
    (tmp_path / "env.json").write_text("{")
    assert sessions(tmp_path / "env.json") == [] == sessions(tmp_path / "none.json")
