"""`tinyset watch`: reads a run while it is being written, for this machine only."""

import json
import shutil
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.report.browser import complaints, requests
from tinyset.cli import main
from tinyset.errors import UserError
from tinyset.pictures import grid
from tinyset.report.following import Following, _samples
from tinyset.report.watching import server


@pytest.fixture
def working(run_folder: Path, tmp_path: Path) -> Path:
    """The run as it was after three steps: no artifact, a line half written."""
    folder = tmp_path / "working"
    shutil.copytree(run_folder, folder, ignore=shutil.ignore_patterns("artifact", ".lock"))
    lines = (run_folder / "metrics.jsonl").read_text().splitlines()
    (folder / "metrics.jsonl").write_text("\n".join(lines[:3]) + '\n{"step": 3, "lo')
    return folder


@pytest.fixture
def address(working: Path) -> Iterator[str]:
    made = server(Following(working), 0)
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{made.server_port}"
    made.shutdown()
    made.server_close()
    thread.join()


def fetch(url: str, **headers: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_state_of_a_working_and_a_finished_run(working: Path, run_folder: Path) -> None:
    state = Following(working).state()
    assert (state["done"], state["steps"], state["status"]) == (3, 6, "working")
    assert state["eta_s"] == pytest.approx(3 * state["seconds_per_step"], abs=0.1) and len(state["curve"]) == 3
    picture = Following(working).picture()
    assert picture is not None and picture.startswith(b"\x89PNG")
    labelled = _samples(next(working.glob("checkpoint-*.safetensors")))
    plain = grid([("", [torch.zeros(3, 16, 16)] * 4)] * 3)  # 3 classes x 4 codes, without names
    assert labelled.height == plain.height and labelled.width > plain.width + 50, "each row has its class's name"
    finished = Following(run_folder)
    assert finished.state()["status"] == "finished" and finished.picture() is not None
    (working / "metrics.jsonl").unlink()
    assert Following(working).state()["status"] == "preparing"


def test_what_is_served_and_to_whom(address: str) -> None:
    assert json.loads(fetch(f"{address}/state")[1])["done"] == 3
    assert fetch(f"{address}/picture.png")[1].startswith(b"\x89PNG")
    assert b"Content-Security-Policy" in fetch(address)[1]
    assert fetch(f"{address}/config.yaml")[0] == 404 and fetch(f"{address}/../../etc/passwd")[0] == 404
    assert fetch(f"{address}/state", Host="evil.example:80")[0] == 403
    assert address.startswith("http://127.0.0.1:")


def test_the_page_follows(browser: webdriver.Chrome, address: str, working: Path, run_folder: Path) -> None:
    requests(browser), complaints(browser)
    browser.get(address)
    wait = WebDriverWait(browser, 20)

    def text(name: str) -> str:
        return browser.find_element(By.CSS_SELECTOR, f'[data-part="{name}"]').text

    wait.until(lambda _: text("done") == "3")
    assert text("name") == "working" and text("steps") == "of 6"
    wait.until(lambda d: d.execute_script("return document.querySelector('img').naturalWidth") > 0)
    shutil.copyfile(run_folder / "metrics.jsonl", working / "metrics.jsonl")
    shutil.copytree(run_folder / "artifact", working / "artifact")
    wait.until(lambda _: text("status") == "Finished." and text("done") == "6")
    assert all(url.startswith((address, "data:")) for url in requests(browser))
    assert complaints(browser) == []
    browser.get("about:blank")


def test_once_and_refusals(working: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(working), "--once"]) == 0
    assert capsys.readouterr().out.startswith("working: working, step 3 of 6, loss ")
    assert main(["watch", str(tmp_path), "--once"]) == 2
    with pytest.raises(UserError, match="--port"):
        server(Following(working), 99_999)
