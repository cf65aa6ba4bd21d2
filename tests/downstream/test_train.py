"""`tinyset train`: the numbers of `evaluate`, kept in a file that predicts."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import tinyset
from tests.report.made import codes_set, splits
from tinyset.cli import main
from tinyset.data.load import BENCHMARKS
from tinyset.downstream.model import load_model
from tinyset.downstream.train import train
from tinyset.errors import UserError
from tinyset.evaluation import evaluate
from tinyset.files import META
from tinyset.interrupts import Interrupted, Stop

NETWORK = "convnet1:width=4,norm=batch"


def own(*, channels: int, image_size: tuple[int, int], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * image_size[0] * image_size[1], classes))


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return codes_set().save(tmp_path_factory.mktemp("made") / "set")


@pytest.fixture(autouse=True)
def stripes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BENCHMARKS, "streetdigits", lambda request: splits())


@pytest.mark.parametrize("network", [NETWORK, "convnet1:width=8"])  # plain torch, and the CPU kernels
def test_same_accuracy_as_evaluate(
    network: str, artifact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model.safetensors"
    command = ["train", str(artifact), "--network", network, "--protocol", "steps:30", "--out", str(out)]
    assert main([*command, "--data", "streetdigits", "--seed", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    row = evaluate(artifact, splits(), [network], ["steps:30"], seed=3, device="cpu").rows[0]
    assert found["accuracy"] == pytest.approx(row.accuracy.mean, abs=1e-3) and found["accuracy"] > 40
    model, test = load_model(out), splits().test
    assert test is not None and model.class_names == tuple(test.class_names)
    right = model.predict(test.images) == test.labels
    assert 100 * right.float().mean().item() == pytest.approx(found["accuracy"], abs=1e-3)
    assert torch.equal(model.predict(test.images / 255), model.predict(test.images))
    with pytest.raises(UserError, match="takes images of"):
        model.predict(test.images[:, :1])


def test_same_seed_same_bytes_and_nothing_is_overwritten(
    artifact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        assert (
            main(["train", str(artifact), "--network", NETWORK, "--protocol", "steps:3", "--out", str(tmp_path / name)])
            == 0
        )
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert main(["train", str(artifact), "--out", str(tmp_path / "a")]) == 2
    assert "exists" in capsys.readouterr().err


def test_a_stopped_training_goes_on(artifact: Path, tmp_path: Path) -> None:
    class After(Stop):
        asked = 0

        @property
        def reason(self) -> str | None:
            After.asked += 1
            return "SIGINT" if After.asked > 4 else None

    ds = tinyset.load(artifact)
    with pytest.raises(Interrupted, match="run it again to go on"):
        train(ds, NETWORK, "steps:6", device="cpu", stop=After())
    resumed = train(ds, NETWORK, "steps:6", device="cpu").save(tmp_path / "a").read_bytes()
    (tmp_path / "b").unlink(missing_ok=True)
    assert train(ds, NETWORK, "steps:6", device="cpu").save(tmp_path / "b").read_bytes() == resumed


def test_a_network_of_ones_own_is_not_imported_by_a_file(artifact: Path, tmp_path: Path) -> None:
    path = train(tinyset.load(artifact), f"{__name__}:own", "steps:2", device="cpu").save(tmp_path / "model")
    with pytest.raises(UserError, match="call load_model"):
        load_model(path)
    empty = own(channels=3, image_size=(16, 16), classes=3)
    assert load_model(path, empty).predict(torch.zeros(2, 3, 16, 16)).shape == (2,)


def test_strangers_files(artifact: Path, tmp_path: Path) -> None:
    path = train(tinyset.load(artifact), NETWORK, "steps:2", device="cpu").save(tmp_path / "model")
    weights, card = load_file(path), load_model(path).card
    for change, said in [
        ({"network": "convnet1:width=5,norm=batch"}, "not those of the network"),
        ({"network": "vit:depth=100000000"}, "too large"),
        ({"network": "os:system"}, "build it and call"),
        ({"format": 2}, "not a model of tinyset"),
        ({"image_shape": [3, 16]}, "image_shape"),
    ]:
        save_file(weights, tmp_path / "bad", {META: json.dumps({**card.model_dump(mode="json"), **change})})
        with pytest.raises(UserError, match=said):
            load_model(tmp_path / "bad")
    save_file(weights, tmp_path / "bad")
    with pytest.raises(UserError, match="not a model of tinyset"):
        load_model(tmp_path / "bad")
    (tmp_path / "bad").write_bytes(path.read_bytes()[:100])
    with pytest.raises(UserError, match="truncated"):
        load_model(tmp_path / "bad")
