"""A finished run with results, made once; and one browser for all tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver

from tests.report.browser import chromium
from tests.report.made import TINY, splits
from tinyset.condensation import run
from tinyset.condensed import load
from tinyset.evaluation import accuracy_along, evaluate, storage_curve
from tinyset.methods import resolve

NETWORK = "convnet1:width=4"


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """KFS on stripes whose classes have nasty names: metrics, checkpoint, artifact, results of every kind."""
    folder = tmp_path_factory.mktemp("runs") / "stripes"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TINYSET_CACHE", str(tmp_path_factory.mktemp("cache")))
        data = splits()
        run(resolve("plain", TINY), data, out=folder, recipe="plain")
        condensed = load(folder / "artifact")
        evaluate(condensed, data, [NETWORK, "convnet1:width=6"], ["steps:3"], 2, baselines=["random", "full"])
        evaluate(condensed, data, [NETWORK], ["steps:3"], corruptions=["noise:0.1"])
        accuracy_along([condensed], data, NETWORK, [1, 2, 4], names=[condensed.config.method])
        storage_curve(condensed, data, NETWORK, "steps:3")
    return folder


@pytest.fixture(scope="session")
def browser() -> Iterator[webdriver.Chrome]:
    with chromium() as driver:
        yield driver
