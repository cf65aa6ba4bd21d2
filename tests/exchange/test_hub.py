"""Sharing, against a folder that stands for the hub, and against a fake of the client library."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.report.made import stored_set
from tinyset import hub
from tinyset.cli import main
from tinyset.condensed import load
from tinyset.errors import RunError, UserError


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    folder = stored_set("pixels").save(tmp_path / "set")
    (folder / "results.jsonl").write_text("private notes")
    return folder


def test_push_and_pull_through_a_folder(artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYSET_HUB", str(tmp_path / "share"))
    assert main(["hub", "push", str(artifact), "me/stripes"]) == 0
    there = tmp_path / "share" / "me" / "stripes"
    assert sorted(p.name for p in there.iterdir()) == [
        "README.md",
        "condensed.safetensors",
        "config.json",
        "preview.png",
    ]
    assert 'tinyset.load("hub:me/stripes")' in (there / "README.md").read_text()
    assert load("hub:me/stripes").fingerprint == load(artifact).fingerprint
    assert main(["hub", "pull", "me/stripes", str(tmp_path / "mine")]) == 0
    assert main(["hub", "pull", "me/stripes", str(tmp_path / "mine")]) == 2
    assert (tmp_path / "mine" / "config.json").read_bytes() == (artifact / "config.json").read_bytes()
    load(artifact).push_to_hub("me/again")
    assert load("hub:me/again").class_names == load(artifact).class_names


def test_bad_names_are_refused(artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYSET_HUB", str(tmp_path / "share"))
    for name in ("../x", "a/b/c", "/etc", "", "a/..", "hub:"):
        with pytest.raises(UserError, match="user/name"):
            hub.push(artifact, name)
    with pytest.raises(UserError, match="no me/none"):
        hub.fetch("hub:me/none")
    with pytest.raises(UserError, match="not a condensed set"):
        hub.push(tmp_path, "me/x")


class FakeHub:
    """What we use of huggingface_hub, recorded."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.calls = folder, []  # type: ignore[var-annotated]
        self.errors = SimpleNamespace(HfHubHTTPError=ConnectionError, LocalEntryNotFoundError=FileNotFoundError)

    def HfApi(self) -> "FakeHub":
        return self

    def create_repo(self, repo: str, **options: Any) -> None:
        self.calls.append((repo, options))

    def upload_folder(self, *, repo_id: str, folder_path: Path, **options: Any) -> None:
        hub.copy(folder_path, self.folder)

    def snapshot_download(self, repo: str, **options: Any) -> str:
        if repo == "me/gone":
            raise ConnectionError("404 Client Error.\nlong explanation")
        self.calls.append((repo, options))
        return str(self.folder)


def test_through_the_client_library(artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TINYSET_HUB", raising=False)
    fake = FakeHub(tmp_path / "remote")
    monkeypatch.setattr(hub, "_library", lambda: fake)
    assert hub.push(artifact, "me/stripes", private=True) == "https://huggingface.co/datasets/me/stripes"
    assert fake.calls[0] == ("me/stripes", {"repo_type": "dataset", "private": True, "exist_ok": True})
    assert load("hub:me/stripes@v1").fingerprint == load(artifact).fingerprint
    assert fake.calls[1][1]["revision"] == "v1"
    with pytest.raises(RunError, match="404 Client Error"):
        hub.fetch("hub:me/gone")


def test_the_real_client_has_what_we_call() -> None:
    library = hub._library()
    assert callable(library.snapshot_download) and callable(library.HfApi().upload_folder)
    assert issubclass(library.errors.HfHubHTTPError, Exception)
    assert issubclass(library.errors.LocalEntryNotFoundError, Exception)
