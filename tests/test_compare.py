"""What `compare` decides by itself: how many steps fit into a method's time."""

import json
from pathlib import Path
from typing import Any

import pytest

from tinyset import compare
from tinyset.config import CondenseConfig
from tinyset.data.streetdigits import streetdigits
from tinyset.interrupts import Stop
from tinyset.progress import Silent


@pytest.mark.parametrize(
    ("flags", "seconds", "steps"),
    [
        ({"method": "dm"}, [5.0, 0.5, 0.6], 190),  # 0.95 x 100 s / 0.5 s; the first step is not typical
        ({"method": "dc", "options": {"pool": 20}}, [1.1, 0.1, 0.2], 760),  # 20 x 1 s to fill the pool, then 0.1 s each
        ({"method": "idc", "options": {"pool": 40, "outer": 10}}, [10.1, 0.1, 0.1], 570),  # four episodes of 10 s
        ({"method": "dm"}, [], 1),  # the set-up took all
    ],
)
def test_the_number_of_steps_comes_from_a_few(
    flags: dict[str, Any], seconds: list[float], steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[CondenseConfig] = []

    def pretend(config: CondenseConfig, data: object, *, out: Path, **_: object) -> None:
        seen.append(config)
        out.mkdir(parents=True, exist_ok=True)
        if seconds:
            (out / "metrics.jsonl").write_text("".join(json.dumps({"seconds": s}) + "\n" for s in seconds))

    monkeypatch.setattr(compare, "run", pretend)
    data = streetdigits(train=20, test=10)
    config, spent = compare._probe(data, flags, "plain", tmp_path / "row", 100.0, Silent(), Stop())
    assert config.steps == pytest.approx(steps, abs=2) and spent < 1
    assert seen[0].steps == compare.PROBE_STEPS and seen[0].compile == config.compile != "auto"
    assert seen[0].options.get("pool") == (config.options.get("outer", 1) if "pool" in config.options else None)


def test_a_bank_gets_a_share_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network of the bank takes a second: 30 of the 60 fit into three tenths of 100 s."""
    now, built = 0.0, 0

    def pretend(config: CondenseConfig, data: object, *, out: Path, **_: object) -> None:
        nonlocal now, built
        now, built = now + max(0, config.networks - built), max(built, config.networks)
        out.mkdir(parents=True, exist_ok=True)
        (out / "metrics.jsonl").write_text('{"seconds": 0.5}\n' * 3)

    monkeypatch.setattr(compare, "run", pretend)
    monkeypatch.setattr(compare.time, "monotonic", lambda: now)
    data = streetdigits(train=20, test=10)
    config, spent = compare._probe(data, {"method": "kfs"}, "plain", tmp_path / "row", 100.0, Silent(), Stop())
    assert (config.networks, spent, config.steps) == (30, 30.0, int(0.95 * 70 / 0.5))


def test_a_set_up_that_does_not_fit_leaves_a_row_of_the_start(tmp_path: Path) -> None:
    """The first expert of mtt takes longer than the limit: the other methods still get their rows."""
    noted: list[str] = []

    class Notes(Silent):
        def note(self, text: str) -> None:
            noted.append(text)

    data = streetdigits(train=40, test=10)
    flags = {"method": "mtt", "images_per_class": 1, "network": "convnet3:width=8"}
    _, cost = compare._condensed(data, flags, "plain", tmp_path / "mtt", 1e-3, Notes(), Stop())
    assert cost.steps == 0 and any("set-up alone takes longer" in text for text in noted)
