"""What is exported is what the set decodes to; a plain torch loop on the files learns what the set teaches."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from tests.report.made import NASTY, TINY, codes_set, stored_set, stripes
from tinyset.cli import main
from tinyset.condensation import run
from tinyset.condensed import CondensedSet
from tinyset.data import load_images
from tinyset.data.imageset import Splits
from tinyset.errors import UserError
from tinyset.evaluation import evaluate
from tinyset.exchange import FORMATS, export
from tinyset.exchange.names import folder_names
from tinyset.methods import resolve
from tinyset.networks import build, redraw

STEPS = 100
NETWORK = "convnet1:width=8"


@pytest.fixture(scope="module")
def codes() -> CondensedSet:
    return codes_set()


def eight_bit(condensed: CondensedSet) -> torch.Tensor:
    return (condensed.images() * 255).round().to(torch.uint8)


def test_npz_and_pt_hold_pixels_labels_names_and_statistics(codes: CondensedSet, tmp_path: Path) -> None:
    with np.load(export(codes, tmp_path / "a.npz", "npz")) as arrays:
        assert np.array_equal(arrays["images"].transpose(0, 3, 1, 2), eight_bit(codes).numpy())
        assert arrays["labels"].tolist() == codes.labels.tolist()
        assert arrays["class_names"].tolist() == list(NASTY)
        assert np.allclose(arrays["mean"], codes.normalisation[0])
    tree = torch.load(export(codes, tmp_path / "a.pt", "pt"), weights_only=True)
    assert torch.equal(tree["images"], eight_bit(codes))
    assert torch.equal(tree["labels"], codes.labels)
    assert tree["class_names"] == list(NASTY)


def test_parquet_is_a_hugging_face_dataset(
    codes: CondensedSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets")
    path = export(codes, tmp_path / "a.parquet", "parquet")
    loaded = datasets.Dataset.from_parquet(str(path), cache_dir=str(tmp_path / "hf"))
    assert loaded.features["label"].names == list(NASTY)
    assert loaded["label"][:] == codes.labels.tolist()
    assert np.array_equal(np.asarray(loaded[5]["image"]).transpose(2, 0, 1), eight_bit(codes)[5].numpy())


def test_imagefolder_names_are_safe_and_its_labels_are_kept(codes: CondensedSet, tmp_path: Path) -> None:
    folder = export(codes, tmp_path / "images", "imagefolder")
    facts = json.loads((folder / "classes.json").read_text())
    assert [entry["name"] for entry in facts["classes"]] == list(NASTY)
    for entry in facts["classes"]:
        files = sorted((folder / entry["folder"]).iterdir())
        expected = eight_bit(codes)[codes.labels == entry["label"]]
        found = np.stack([np.asarray(Image.open(file)) for file in files]).transpose(0, 3, 1, 2)
        assert np.array_equal(found, expected.numpy())
    assert {path.parent for path in folder.iterdir()} == {folder}


@pytest.mark.parametrize("format", ["npz", "parquet", "imagefolder"])
def test_our_own_loader_reads_exports(codes: CondensedSet, tmp_path: Path, format: str) -> None:
    suffix = "" if format == "imagefolder" else f".{format}"
    data = load_images(str(export(codes, tmp_path / f"out{suffix}", format)))
    assert sorted(map(bytes, data.train.images.flatten(1).numpy())) == sorted(
        map(bytes, eight_bit(codes).flatten(1).numpy())
    )


@pytest.mark.parametrize("format", list(FORMATS))
def test_soft_labels_travel(tmp_path: Path, format: str) -> None:
    condensed = stored_set("pixels", soft=True)
    assert condensed.soft_labels is not None
    path = export(condensed, tmp_path / "out", format)
    if format == "npz":
        soft = np.load(path)["soft_labels"]
    elif format == "pt":
        soft = torch.load(path, weights_only=True)["soft_labels"].numpy()
    elif format == "imagefolder":
        soft = np.array(json.loads((path / "classes.json").read_text())["soft_labels"])
    else:
        import pyarrow.parquet as pq

        soft = np.array(pq.read_table(path).column("soft_label").to_pylist())
    assert np.allclose(soft, condensed.soft_labels.numpy(), atol=1e-6)


def test_folder_names() -> None:
    names = folder_names(["cat", "Cat", "a/b", "..", "con", "", "x" * 500, "dot.", "日本"])
    assert names[0] == "cat" and names[2] == "a%2Fb" and names[8] == "日本"
    assert len({name.casefold() for name in names}) == len(names)
    assert not any(name in (".", "..", "") or "/" in name or len(name) > 150 for name in names)


def test_refusals_leave_nothing(codes: CondensedSet, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    taken = tmp_path / "a.npz"
    taken.write_text("mine")
    with pytest.raises(UserError, match="exists"):
        export(codes, taken, "npz")
    with pytest.raises(UserError, match="is a folder"):
        export(codes, tmp_path, "npz")
    assert main(["export", str(tmp_path), str(tmp_path / "b.npz"), "--format", "npz"]) == 2
    assert "is not a condensed set" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]


def test_a_plain_loop_on_the_files_reaches_the_sets_accuracy(tmp_path: Path) -> None:
    """The artifact by `evaluate`, the exported .npz by twenty lines of torch that know nothing of tinyset."""
    data = Splits("s", stripes(60, 0, strength=0.12), stripes(300, 1, strength=0.12), mirror=False)
    settings = {**TINY, "steps": 30, "pretrain_steps": 100, "images_per_class": 2}
    condensed = run(resolve("plain", settings), data).condensed
    row = evaluate(condensed, data, [NETWORK], [f"steps:{STEPS}:none"], results=tmp_path / "r.jsonl").rows[0]
    assert data.test is not None
    shape: dict[str, Any] = {"channels": 3, "image_size": (16, 16), "classes": 3}
    network = build(NETWORK, **shape)
    redraw(network, NETWORK, 0, **shape)  # the same first weights: what is left of the noise is the 8 bits
    plain = plain_loop(export(condensed, tmp_path / "a.npz", "npz"), network, data.test.images, data.test.labels)
    assert row.accuracy.mean > 60, "the set teaches something; a guess is right in 33 %"
    assert abs(plain - row.accuracy.mean) < 3, f"plain loop {plain:.1f} %, evaluate {row.accuracy} %"


def plain_loop(path: Path, network: nn.Module, test_images: torch.Tensor, test_labels: torch.Tensor) -> float:
    arrays = np.load(path)
    mean, std = (torch.from_numpy(arrays[name]).view(1, -1, 1, 1) for name in ("mean", "std"))

    def normalise(pixels: torch.Tensor) -> torch.Tensor:
        return (pixels.float() / 255 - mean) / std

    images = normalise(torch.from_numpy(arrays["images"]).permute(0, 3, 1, 2))
    labels = torch.from_numpy(arrays["labels"])
    optimizer = torch.optim.SGD(network.parameters(), 0.01, 0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [STEPS * 2 // 3, STEPS * 5 // 6], 0.2)
    for _ in range(STEPS):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(images), labels).backward()
        optimizer.step()
        schedule.step()
    network.eval()
    with torch.no_grad():
        predicted = network(normalise(test_images)).argmax(1)
    return 100 * float((predicted == test_labels).float().mean())
