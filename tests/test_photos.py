"""A folder of odd photographs, condensed and evaluated unattended."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tinyset.cli import main
from tinyset.rng import generator

SMALL = [
    "--steps",
    "2",
    "--networks",
    "2",
    "--network",
    "convnet3:width=4",
    "--pretrain-steps",
    "3",
    "--threads",
    "1",
    "--json",
]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two classes with awkward names; every file of another mode, size and format."""
    folder = tmp_path / "photos"
    seed = generator(0, "photos").initial_seed() % 2**32
    draw = np.random.default_rng(seed)
    kinds = [
        ("RGB", "jpg"),
        ("RGBA", "png"),
        ("P", "png"),
        ("I;16", "png"),
        ("CMYK", "jpg"),
        ("L", "png"),
        ("1", "bmp"),
    ]
    for c, name in enumerate(("señor cat & co", "dög, the <script>")):
        (folder / name).mkdir(parents=True)
        for i in range(14 - 4 * c):
            mode, suffix = kinds[i % len(kinds)]
            size = (20 + 7 * i, 60 - 3 * i, 3)
            picture = Image.fromarray(draw.integers(0, 255, size, dtype=np.uint8))
            picture = (
                Image.fromarray(np.asarray(picture.convert("L")).astype(np.uint16) * 257)
                if mode == "I;16"
                else picture.convert(mode)
            )
            picture.save(folder / name / f"photo {i}.{suffix}")
    return folder


def test_odd_photos_work_unattended(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "run")
    data = ["--holdout", "0.3", "--image-size", "36x28"]
    assert main(["condense", str(photos), "--out", out, "--images-per-class", "1", *data, *SMALL]) == 0
    said = capsys.readouterr()
    made = json.loads(said.out)
    assert made["class_names"] == sorted(p.name for p in photos.iterdir())
    assert "converted" in said.err  # one counted warning
    evaluate = ["evaluate", made["artifact"], "--data", str(photos), *data, "--network", "convnet3:width=4"]
    assert main([*evaluate, "--protocol", "steps:2", "--threads", "1", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["rows"][0]
    assert set(row["per_class"]) == set(made["class_names"])


def test_unequal_budgets_from_a_file(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    budgets = tmp_path / "budgets.yaml"
    budgets.write_text('"señor cat & co": 3\n"*": 1\n')
    command = ["condense", str(photos), "--out", str(tmp_path / "run"), "--image-size", "32", "--holdout", "0.3"]
    assert main([*command, "--images-per-class", str(budgets), *SMALL]) == 0
    made = json.loads(capsys.readouterr().out)
    few, many = sorted(made["codes_per_class"])
    assert many > 2 * few
    assert made["class_names"][made["codes_per_class"].index(many)] == "señor cat & co"


def test_a_bad_file_is_named_and_skipped_on_request(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (photos / "señor cat & co" / "broken.jpg").write_bytes(b"\xff\xd8 not a picture")
    command = [
        "condense",
        str(photos),
        "--out",
        str(tmp_path / "run"),
        "--image-size",
        "32",
        "--holdout",
        "0.3",
        *SMALL,
    ]
    assert main(command) == 2
    assert "broken.jpg" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    assert main([*command, "--skip-bad"]) == 0
    assert "broken.jpg" in capsys.readouterr().err
