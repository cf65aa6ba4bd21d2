"""The privacy probe: it finds what is there, guesses where nothing is, and its result is part of the card."""

import json
from pathlib import Path

import pytest
import torch

import tinyset
from tests.report.made import codes_set, splits, stored_set
from tinyset.artifact import PrivacyReport
from tinyset.cli import main
from tinyset.data.imageset import Splits
from tinyset.data.load import BENCHMARKS
from tinyset.data.streetdigits import streetdigits
from tinyset.downstream.privacy import _interval, alike, attack, best_threshold, nearest, privacy
from tinyset.errors import UserError
from tinyset.rng import generator

QUICK = {"network": "convnet1:width=4", "protocol": "steps:3", "images": 30, "device": "cpu"}


def test_the_attack_tells_what_can_be_told() -> None:
    draw = generator(0, "losses")
    low, high = torch.rand(400, generator=draw), 2 + torch.rand(400, generator=draw)
    assert attack(low, high, 0) == (1.0, 400)
    alike_, same = torch.rand(2000, generator=draw), torch.rand(2000, generator=draw)
    share, count = attack(alike_, same, 0)
    assert count == 2000 and abs(share - 0.5) < 0.04
    upside_down, _ = attack(high, low, 0)
    assert upside_down <= 0.51  # members with a larger loss are not what the attack looks for


def test_the_threshold_is_the_best_one() -> None:
    members, others = (torch.rand(50, generator=generator(i)) for i in range(2))
    t = best_threshold(members, others)

    def right(at: float) -> float:
        return float((members <= at).double().mean() + (others > at).double().mean())

    assert right(t) == pytest.approx(max(right(float(at)) for at in torch.cat([members, others])))


def test_distances_against_a_plain_loop() -> None:
    images = torch.rand(3, 3, 4, 4, generator=generator(0))
    real = (torch.rand(5, 3, 4, 4, generator=generator(1)) * 255).to(torch.uint8)
    wanted = [min(float((x - r / 255).square().mean().sqrt()) for r in real) for x in images]
    torch.testing.assert_close(nearest(images, real), torch.tensor(wanted), atol=1e-5, rtol=1e-4)


def test_intervals_are_wilsons() -> None:
    assert _interval(0.5, 100) == (40.38, 59.62)
    assert _interval(0.0, 10)[0] == 0.0


def test_members_and_others_are_as_many_of_every_class() -> None:
    data = splits()
    assert data.test is not None
    members, others = alike(data.train, data.test, 15, 0)
    assert members.counts == others.counts == (5, 5, 5)


def test_stored_training_images_are_found_and_the_card_says_so(tmp_path: Path) -> None:
    data = splits()
    thief = tinyset.condense(data.train, method="random", images_per_class=6)
    path = thief.save(tmp_path / "set")
    report = privacy(thief, data, **{**QUICK, "images": 1000})[0]  # type: ignore[arg-type]
    assert report.smallest_train_distance < 1e-3 and report.nearer_to_train_percent > 50
    assert report.set == thief.fingerprint and report.attack_images == 30
    assert "Privacy" not in (path / "README.md").read_text()
    thief.state_privacy(report)
    card = (path / "README.md").read_text()
    assert "## Privacy" in card and f"{report.attack_percent:.1f} % of cases" in card
    again = tinyset.load(path)
    again.save(path, overwrite=True)  # it survives, as results.jsonl does
    assert (path / "README.md").read_text() == card
    assert PrivacyReport.read(path, again.fingerprint) == report
    codes_set().save(path, overwrite=True)  # another set: what was measured is not true of it
    assert "Privacy" not in (path / "README.md").read_text() and not (path / "privacy.json").exists()


def test_a_damaged_report_is_not_carried_on(tmp_path: Path) -> None:
    condensed = stored_set("pixels")
    path = condensed.save(tmp_path / "set")
    for damaged in ("{", "[]", '{"set": 1}'):
        (path / "privacy.json").write_text(damaged)
        condensed.save(path, overwrite=True)
        assert not (path / "privacy.json").exists()


def test_baselines_are_at_the_same_bytes() -> None:
    condensed = codes_set()
    rows = privacy(condensed, splits(), baselines=("random", "herding"), **QUICK)  # type: ignore[arg-type]
    assert [row.name.split(",")[0] for row in rows] == ["kfs", "random", "herding"]
    assert all(row.bytes <= max(condensed.bytes, 3 * 768) for row in rows)
    assert rows[1].smallest_train_distance < 1e-3


def test_wrong_requests() -> None:
    condensed, data = codes_set(), splits()
    with pytest.raises(UserError, match="no test split"):
        privacy(condensed, Splits("blind", data.train), **QUICK)  # type: ignore[arg-type]
    report = privacy(condensed, data, **QUICK)[0]  # type: ignore[arg-type]
    with pytest.raises(UserError, match="saved set"):
        condensed.state_privacy(report)


def test_streetdigits_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = streetdigits(train=200, test=100)
    monkeypatch.setitem(BENCHMARKS, "streetdigits", lambda request: few)
    monkeypatch.chdir(tmp_path)
    small = ["--network", "convnet3:width=4", "--quiet", "--json"]
    assert main(["condense", "streetdigits", "--out", "run", "--steps", "0", "--pretrain-steps", "5", *small]) == 0
    capsys.readouterr()
    words = ["privacy", "run/artifact", "--data", "streetdigits", "--protocol", "steps:2", "--out", "probe", *small]
    assert main([*words, "--baselines", "random"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["name"].split(",")[0] for row in told["rows"]] == ["kfs", "random"]
    assert "## Privacy" in (tmp_path / "run" / "artifact" / "README.md").read_text()
    assert {path.name for path in (tmp_path / "probe").iterdir()} >= {"table.md", "results.json", "chart.png"}
