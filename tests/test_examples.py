"""Every example runs on the embedded dataset and learns something from it."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tinyset.condensation import run
from tinyset.condensed import CondensedSet
from tinyset.data.load import BENCHMARKS
from tinyset.data.streetdigits import streetdigits
from tinyset.methods import resolve

EXAMPLES = Path(__file__).parents[1] / "examples"
CHANCE = 0.1


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def few() -> Any:
    return streetdigits(train=1000, test=200)


@pytest.fixture
def artifact(few: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Ten real images of each digit: a set of pixels is made at once."""
    monkeypatch.setitem(BENCHMARKS, "streetdigits", lambda request: few)
    made = run(resolve("plain", {"method": "random", "images_per_class": 10, "device": "cpu"}), few).condensed
    return str(made.save(tmp_path / "set"))


def test_plain_loop(artifact: str) -> None:
    assert example("plain_loop").main(artifact, "streetdigits", "convnet3:width=8", epochs=60) > 1.5 * CHANCE


def test_dataloader(artifact: str) -> None:
    assert 0 <= example("dataloader").main(artifact, epochs=2) <= 1


def test_scikit_learn(artifact: str) -> None:
    assert example("scikit_learn").main(artifact, "streetdigits") > 1.3 * CHANCE


def test_pretraining(artifact: str) -> None:
    curves = example("pretrain").main(artifact, "streetdigits", first_steps=5, marks=(2, 4), network="convnet1:width=4")
    scratch, after = curves.values()
    assert [steps for steps, _, _ in scratch] == [steps for steps, _, _ in after] == [2, 4]
    assert scratch[0][2] != after[0][2]  # the start left its mark


def test_hugging_face(artifact: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    from tinyset.condensed import load

    ds: CondensedSet = load(artifact)
    for made in example("hugging_face").main(artifact, tmp_path / "digits.parquet"):
        assert len(made) == len(ds) and made.features["label"].names == list(ds.class_names)
        pixels = np.asarray(made[7]["image"]).transpose(2, 0, 1)
        assert np.array_equal(pixels, (ds[7][0] * 255).round().byte().numpy()) and made[7]["label"] == ds[7][1]


def test_examples_are_short() -> None:
    for path in EXAMPLES.glob("*.py"):
        body = [line for line in path.read_text().splitlines() if line.strip()]
        assert len(body) <= 45 or path.name == "read_with_numpy.py", path
