"""One small run, condensed and evaluated by the commands, and its record."""

from pathlib import Path

import numpy as np
import pytest

from tests.report.made import stripes
from tinyset.cli import main

NETWORK = "convnet1:width=4"
FLAGS = "--steps 6 --networks 2 --pretrain-steps 5 --network convnet1:width=4 --decoders 3 --codes 4 --compile never"
SMALL = [*FLAGS.split(), "--threads", "1", "--quiet"]


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`data.npz`, `run` (stopped by nothing) and `record`."""
    folder = tmp_path_factory.mktemp("records")
    train, test = stripes(20, 0, names=("low", "middle", "high")), stripes(10, 1, names=("low", "middle", "high"))
    arrays = {"x_train": train.images, "y_train": train.labels, "x_test": test.images, "y_test": test.labels}
    np.savez(folder / "data.npz", **{name: values.numpy() for name, values in arrays.items()})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TINYSET_CACHE", str(folder / "cache"))
        run, data = str(folder / "run"), str(folder / "data.npz")
        assert main(["condense", data, "--out", run, *SMALL]) == 0
        flags = (
            f"--network {NETWORK},convnet1:width=6 --protocol steps:4 --repeats 3 --baselines random --quiet".split()
        )
        assert main(["evaluate", f"{run}/artifact", "--data", data, *flags]) == 0
        along = f"--network {NETWORK} --budget-steps 1,2,5 --quiet".split()
        assert main(["evaluate", f"{run}/artifact", "--data", data, *along]) == 0
        assert main(["record", run, "--out", str(folder / "record"), "--note", "A note.", "--quiet"]) == 0
    return folder


@pytest.fixture(autouse=True)
def cache(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYSET_CACHE", str(place / "cache"))
