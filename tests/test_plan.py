"""Forecasts: the paper's sizes by arithmetic, the rule of passes, and the flag that makes a plan fit."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from tinyset import plan as plans
from tinyset.budget import CodePlan
from tinyset.cli import main
from tinyset.condensation import run
from tinyset.config import CondenseConfig
from tinyset.data.imageset import ImageSet, Splits
from tinyset.errors import UserError
from tinyset.methods import resolve
from tinyset.plan import available_memory_bytes, forecast, refuse_what_does_not_fit
from tinyset.starts import plan
from tinyset.times import Rates, with_times


def images(classes: int, per_class: int = 1, side: int = 32) -> ImageSet:
    labels = torch.arange(classes).repeat_interleave(per_class)
    pixels = torch.zeros(len(labels), 3, side, side, dtype=torch.uint8)
    return ImageSet(pixels, labels, tuple(str(c) for c in range(classes)), ((0.5,) * 3, (0.2,) * 3), "fingerprint")


def made(real: ImageSet, recipe: str = "paper", **flags: Any) -> tuple[plans.Forecast, CondenseConfig]:
    config = resolve(recipe, {"images_per_class": 1, **flags})
    return forecast(config, real, plan(config, real)), config


def test_the_bank_of_cifar_100_is_16_gigabytes() -> None:
    found, _ = made(images(100, 500))
    assert found.bank_bytes == pytest.approx(16.4e9, rel=0.01)
    assert found.bank_images == 20_000 * 50_000
    assert found.networks == found.steps == 20_000


def test_memory_does_not_grow_with_32_000_images() -> None:
    real, limit = images(10), 500_000_000
    config = resolve("paper", {"params_per_class": 153_600, "memory_limit_bytes": limit})
    sizes = CodePlan("high", (12, 6, 3), (12, 8, 8), (200,) * 10, 16, (153_600,) * 10)
    found = forecast(config, real, sizes)
    assert found.synthetic_images == found.images_per_step == 32_000
    assert found.passes == 2 and found.chunk <= 128
    small, _ = made(real, memory_limit_bytes=limit)
    assert small.synthetic_images == 1_040 and small.passes == 1
    assert found.memory.activations < 1.5 * small.memory.activations


@pytest.mark.parametrize(("batch", "expected"), [("full", 1_040), (10, 100), (1_000, 1_040)])
def test_images_per_step_follow_the_batch(batch: int | str, expected: int) -> None:
    assert made(images(10), batch=batch)[0].images_per_step == expected


@pytest.mark.parametrize(
    ("compile", "steps", "expected"), [("auto", 1, False), ("auto", 1000, True), ("never", 1000, False)]
)
def test_compiled_where_the_run_is_long_enough(compile: str, steps: int, expected: bool) -> None:
    found, _ = made(images(10), "plain", compile=compile, steps=steps, networks=1)
    assert (found.runs_on != "torch") == expected


def test_other_objectives_and_parameterizations_are_counted_too() -> None:
    tiles, _ = made(images(10), "plain", method="idc")
    assert tiles.synthetic_images == 40 and tiles.stored_numbers == 30_720 and tiles.bank_bytes == 0
    selected, _ = made(images(10), "plain", method="random")
    assert selected.synthetic_images == 10 and selected.steps == 0
    assert "not foreseen" in selected.lines()[-1]


def test_times_follow_the_rates() -> None:
    real = images(10, 50)
    found, config = made(real, "plain", steps=100, networks=10, real_per_class=20)
    timed = with_times(found, config, real, Rates(forward=1000, step=500)).seconds
    assert timed is not None
    assert timed["bank"] == pytest.approx(10 * 200 / 1000)
    assert timed["steps"] == pytest.approx(100 * 1040 / 500)
    twice, config = made(real, "plain", steps=100, memory_limit_bytes=1_000_000)
    assert twice.passes == 2
    timed = with_times(twice, config, real, Rates(forward=1000, step=500)).seconds
    assert timed is not None and timed["steps"] == pytest.approx(100 * 1040 * (1 / 500 + 1 / 1000))


def test_the_phases_of_kfr_are_foreseen() -> None:
    real, rates = images(10, 50), Rates(forward=1000, step=500)
    options = {"matching_steps": 30, "real_batch": 200, "pool_steps": 3, "pool_batch": 100}
    flags: dict[str, Any] = {"method": "kfr", "steps": 100, "networks": 10, "real_per_class": 20}
    found, config = made(real, "plain", **flags, options=options)
    assert found.networks == 10 and found.bank_images == 2000
    timed = with_times(found, config, real, rates).seconds
    assert timed is not None and timed["bank"] == pytest.approx(2000 / 1000)
    assert timed["matching"] == pytest.approx(30 * 1040 / 500)
    assert timed["steps"] == pytest.approx(70 * (1040 / 500 + 200 / 1000 + 300 * 1.5 / 500), abs=0.05)
    alone, config = made(real, "plain", **flags, options={"matching_steps": 0, "synthetic_batch": 100})
    assert alone.networks == alone.bank_bytes == 0 and alone.images_per_step == 100
    timed = with_times(alone, config, real, rates).seconds
    assert timed is not None and timed["matching"] == timed["bank"] == 0


def flags_of(message: str) -> dict[str, Any]:
    """The flags a refusal names, as settings."""
    limit, chunk = re.search(r"--memory-limit (\d+)MB", message), re.search(r"--chunk (\d+)", message)
    found: dict[str, Any] = {"memory_limit_bytes": int(limit[1]) * 1_000_000} if limit else {}
    return found | ({"chunk": int(chunk[1])} if chunk else {})


@pytest.mark.parametrize("share", [0.9, 0.5, 0.2])
@pytest.mark.parametrize("start", [{}, {"memory_limit_bytes": 1_000_000}])
def test_the_named_flags_make_it_fit(share: float, start: dict[str, Any]) -> None:
    real = images(10)
    found, config = made(real, images_per_class=10, **start)
    available = int(share * found.memory.still_needed)
    with pytest.raises(UserError, match="fits") as refusal:
        refuse_what_does_not_fit(found, config, available)
    again, config = made(real, images_per_class=10, **(start | flags_of(str(refusal.value))))
    refuse_what_does_not_fit(again, config, available)


def test_the_batch_that_a_network_learns_from_must_fit_too() -> None:
    flags: dict[str, Any] = {"method": "kfr", "memory_limit_bytes": 1_000_000, "chunk": 8}
    found, config = made(images(10), "plain", **flags)
    assert found.images_learned == 256 and found.memory.activations == int(1.5 * 256 * found.bytes_per_image)
    available = found.memory.parameters + 30 * found.bytes_per_image
    with pytest.raises(UserError, match="--option pool_batch=20 comes first"):
        refuse_what_does_not_fit(found, config, available)
    smaller, config = made(images(10), "plain", **flags, options={"pool_batch": 20})
    refuse_what_does_not_fit(smaller, config, available)


def test_what_no_flag_can_save_is_refused_too() -> None:
    found, config = made(images(10))
    with pytest.raises(UserError, match="--images-per-class"):
        refuse_what_does_not_fit(found, config, 1000)
    refuse_what_does_not_fit(found, config, None)  # nobody knows: try


def test_available_memory(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 100 kB\nMemAvailable:   20 kB\n")
    assert available_memory_bytes(meminfo=meminfo) == 20 * 1024
    everything = available_memory_bytes(meminfo=tmp_path / "none")
    assert everything is not None and everything > 1e8


def test_a_run_that_does_not_fit_never_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tinyset.condensation.available_memory_bytes", lambda device: 1000)
    with pytest.raises(UserError, match="memory"):
        run(resolve("plain", {"images_per_class": 1}), Splits("toy", images(2, 4)), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


SMALL = ["--network", "convnet1:width=4", "--steps", "3", "--networks", "2", "--images-per-class", "1"]


def test_dry_run_prints_the_plan_and_does_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = npz(tmp_path), tmp_path / "run"
    assert main(["condense", source, "--dry-run", *SMALL]) == 0
    text = capsys.readouterr().out
    assert all(word in text for word in ("stores", "steps", "bank", "memory", "time"))
    assert main(["condense", source, "--out", str(out), "--dry-run", "--json", *SMALL]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["steps"] == 3 and found["bank_bytes"] > 0 and found["peak_memory_bytes"] > 0
    assert set(found["seconds"]) == {"auto-encoder", "compilation", "bank", "steps"}
    assert not out.exists()
    assert main(["condense", source, *SMALL]) == 2
    assert "missing --out" in capsys.readouterr().err


def test_tune_writes_the_chunk_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    flags = [*SMALL, "--pretrain-steps", "2", "--tune", "--compile", "never"]
    assert main(["condense", npz(tmp_path), "--out", str(out), *flags]) == 0
    chunk = re.search(r"--chunk (\d+) from now on", capsys.readouterr().err)
    assert chunk is not None
    assert f"chunk: {chunk[1]}\n" in (out / "config.yaml").read_text()


def npz(folder: Path) -> str:
    import numpy as np

    labels = np.arange(20) % 2
    draw = np.random.default_rng(0)
    np.savez(folder / "toy.npz", images=draw.integers(0, 256, (20, 16, 16, 3), dtype=np.uint8), labels=labels)
    return str(folder / "toy.npz")
