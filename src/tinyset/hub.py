"""`hub:user/name`: condensed sets on the Hugging Face hub (extra `[hub]`), or in a folder that stands for it.

With `TINYSET_HUB=/some/folder` names are sub-folders of it: a share of a team, a disk, a test.
"""

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from tinyset.artifact import CARD, CONFIG, PREVIEW, TENSORS
from tinyset.errors import RunError, UserError, needs_extra

PREFIX = "hub:"
FILES = (TENSORS, CONFIG, CARD, PREVIEW)
NAME = re.compile(r"(?:[A-Za-z0-9][\w.-]{0,95}/)?[A-Za-z0-9][\w.-]{0,95}")
FRONT = "---\nlibrary_name: tinyset\ntags: [dataset-condensation, dataset-distillation, tinyset]\n---\n\n"


def is_hub(path: str | os.PathLike[str]) -> bool:
    return isinstance(path, str) and path.startswith(PREFIX)


def fetch(name: str, revision: str | None = None) -> Path:
    """The local folder of `hub:user/name` or `hub:user/name@revision`, downloaded where it is not here yet."""
    repo, _, at = name.removeprefix(PREFIX).partition("@")
    repo, revision = _checked(repo), revision or at or None
    if folder := _folder():
        if revision is not None:
            raise UserError(f"{name}: TINYSET_HUB is a folder and keeps no revisions.")
        if not (folder / repo).is_dir():
            raise UserError(f"There is no {repo} in TINYSET_HUB={folder}.")
        return folder / repo
    hub = _library()
    try:
        place = hub.snapshot_download(repo, repo_type="dataset", revision=revision, allow_patterns=list(FILES))
    except (hub.errors.HfHubHTTPError, hub.errors.LocalEntryNotFoundError, OSError, ValueError) as error:
        raise RunError(f"Cannot fetch {PREFIX}{repo}: {_first_line(error)}.") from None
    return Path(place)


def push(artifact: Path, name: str, *, private: bool = False, message: str = "A condensed set") -> str:
    """Upload a saved artifact's own files, nothing else of its folder; says where it is now."""
    repo = _checked(name.removeprefix(PREFIX))
    if missing := [file for file in (TENSORS, CONFIG) if not (artifact / file).is_file()]:
        raise UserError(f"{artifact} is not a condensed set: it has no {missing[0]}.")
    with tempfile.TemporaryDirectory() as temporary:
        staged = copy(artifact, Path(temporary) / "set")
        _card(staged / CARD, repo)
        if folder := _folder():
            return str(copy(staged, folder / repo))
        hub = _library()
        try:
            api = hub.HfApi()
            api.create_repo(repo, repo_type="dataset", private=private, exist_ok=True)
            api.upload_folder(repo_id=repo, repo_type="dataset", folder_path=staged, commit_message=message)
        except (hub.errors.HfHubHTTPError, OSError, ValueError) as error:
            raise RunError(f"Cannot push to {PREFIX}{repo}: {_first_line(error)}.") from None
    return f"https://huggingface.co/datasets/{repo}"


def _card(path: Path, repo: str) -> None:
    """The hub reads a header of its own, and the example in the card loads from the hub."""
    text = path.read_text(encoding="utf-8") if path.is_file() else f"# {repo}\n"
    if not text.startswith("---\n"):
        text = FRONT + text
    path.write_text(text.replace('tinyset.load("PATH")', f'tinyset.load("{PREFIX}{repo}")'), encoding="utf-8")


def copy(artifact: Path, target: Path) -> Path:
    """The artifact's own files at `target`, byte for byte; complete or not at all, as `CondensedSet.save` does it."""
    building = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
        for file in FILES:
            if (artifact / file).is_file():
                shutil.copyfile(artifact / file, building / file)
        building.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        building.rename(target)
    except OSError as error:
        raise RunError(f"Cannot write {target}: {error.strerror or error}.") from error
    finally:
        if building is not None:
            shutil.rmtree(building, ignore_errors=True)
    return target


def _checked(repo: str) -> str:
    if not NAME.fullmatch(repo) or ".." in repo:
        raise UserError(f"{repo!r} is not the name of a set on the hub: write user/name.")
    return repo


def _folder() -> Path | None:
    given = os.environ.get("TINYSET_HUB")
    return Path(given) if given else None


def _library() -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ImportError:
        raise needs_extra("huggingface_hub", "hub", "The hub") from None
    return huggingface_hub


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
