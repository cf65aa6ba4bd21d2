"""The public .pt files of the field become pixel artifacts; what would be a guess is refused."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.report.made import stored_set, stripes
from tinyset.cli import main
from tinyset.condensed import load
from tinyset.errors import UserError
from tinyset.exchange import export, import_images

STATS = ((0.5, 0.4, 0.3), (0.2, 0.25, 0.3))


def normalised(pixels: torch.Tensor) -> torch.Tensor:
    mean, std = (torch.tensor(values).view(1, -1, 1, 1) for values in STATS)
    return (pixels - mean) / std


@pytest.fixture
def pixels() -> torch.Tensor:
    return stripes(2, 0).images.float() / 255  # labels 0 0 1 1 2 2


def test_dc_file_with_experiments_and_numpy_accuracies(pixels: torch.Tensor, tmp_path: Path) -> None:
    order = torch.tensor([4, 0, 2, 5, 1, 3])
    pair = [normalised(pixels)[order], torch.tensor([2, 0, 1, 2, 0, 1])]
    accuracies = {"ConvNet": [np.float64(28.3), np.float32(3)], "all": np.array([1.0, 2.0])}
    torch.save({"data": [[torch.zeros(1), torch.zeros(1)], pair], "accs_all_exps": accuracies}, tmp_path / "res.pt")
    made = import_images(tmp_path / "res.pt", experiment=1, stats=STATS, class_names=["x", "y", "z"])
    assert torch.allclose(made.images(), pixels, atol=1e-6)
    assert made.labels.tolist() == [0, 0, 1, 1, 2, 2] and made.class_names == ("x", "y", "z")
    assert made.normalisation == STATS and made.config.kind == "pixels"
    again = load(made.save(tmp_path / "artifact"))
    assert torch.equal(again.images(), made.images())


def test_mtt_labels_in_a_second_file_and_idc_pairs(pixels: torch.Tensor, tmp_path: Path) -> None:
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    torch.save(normalised(pixels), tmp_path / "images_best.pt")
    torch.save(labels, tmp_path / "labels_best.pt")
    made = import_images(tmp_path / "images_best.pt", labels=tmp_path / "labels_best.pt", stats=STATS)
    assert torch.allclose(made.images(), pixels, atol=1e-6)
    torch.save([pixels, labels], tmp_path / "data.pt")
    assert torch.equal(import_images(tmp_path / "data.pt").images(), pixels)
    torch.save((pixels, torch.eye(3)[labels] * 0.7 + 0.1), tmp_path / "soft.pt")
    soft = import_images(tmp_path / "soft.pt").soft_labels
    assert soft is not None and torch.allclose(soft.sum(1), torch.ones(6))


def test_what_we_export_comes_back(tmp_path: Path) -> None:
    condensed = stored_set("pixels", soft=True)
    made = import_images(export(condensed, tmp_path / "a.pt", "pt"))
    assert torch.equal((made.images() * 255).round(), (condensed.images() * 255).round())
    assert made.class_names == condensed.class_names
    assert made.soft_labels is not None and condensed.soft_labels is not None
    assert torch.allclose(made.soft_labels, condensed.soft_labels)


def test_the_verb(pixels: torch.Tensor, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save([normalised(pixels), torch.tensor([0, 0, 1, 1, 2, 2])], tmp_path / "a.pt")
    file, out = str(tmp_path / "a.pt"), str(tmp_path / "set")
    assert main(["import", file, out]) == 2
    assert "they are normalised" in capsys.readouterr().err
    assert main(["import", file, out, "--mean", "0.5,0.4,0.3"]) == 2
    assert not (tmp_path / "set").exists()
    assert main(["import", file, out, "--mean", "0.5,0.4,0.3", "--std", "0.2,0.25,0.3", "--json"]) == 0
    assert load(out).config.mirror


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ({"data": []}, "holds 0"),
        (torch.zeros(2, 3, 4, 4), "--labels"),
        ([torch.zeros(2, 3, 4, 4), torch.zeros(3)], "holds 2 images"),
        ([torch.full((2, 3, 4, 4), float("nan")), torch.zeros(2)], "NaN"),
        ([torch.zeros(2, 5, 4, 4), torch.zeros(2)], "channels"),
        ([torch.zeros(2, 3, 4, 4), torch.tensor([0, 2])], "no image of the class '1'"),
        ([torch.zeros(2, 3, 4, 4), torch.tensor([0.0, 0.5])], "whole numbers"),
        ({"a": "b"}, "no pair"),
        ("text", "no pair"),
    ],
)
def test_refused_in_one_sentence(tree: Any, said: str, tmp_path: Path) -> None:
    torch.save(tree, tmp_path / "a.pt")
    with pytest.raises(UserError, match=said):
        import_images(tmp_path / "a.pt")


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("/tmp/tinyset-was-here"),))


def test_no_code_is_run(tmp_path: Path) -> None:
    torch.save({"data": [Evil()]}, tmp_path / "a.pt")
    (tmp_path / "b.pt").write_bytes(pickle.dumps(Evil()))
    (tmp_path / "c.pt").write_bytes(b"PK\x03\x04 junk")
    for name in "abc":
        with pytest.raises(UserError):
            import_images(tmp_path / f"{name}.pt")
    assert not Path("/tmp/tinyset-was-here").exists()
