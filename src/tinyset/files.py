"""Files that are either the old version or the new one, never half of each; and trees of tensors without pickle."""

import contextlib
import ctypes
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as safetensors_bytes

from tinyset.errors import RunError, UserError

META = "tinyset"  # safetensors orders several metadata keys at random: one key keeps the bytes stable
TEMPORARY = ".tmp"  # how names of unfinished files and folders end; they begin with a dot
LOOK_EVERY_S = 0.1  # how often a waiting process looks at a lock
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # Linux: fcntl.h, fs.h


def cache_dir() -> Path:
    """`TINYSET_CACHE`, else the user's cache folder."""
    if given := os.environ.get("TINYSET_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tinyset"


def write_atomic(path: Path, data: bytes | str) -> None:
    """Temporary file beside the target, fsync, rename, fsync of the folder: a reader sees the old bytes or the new ones."""
    if isinstance(data, str):
        data = data.encode()
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=TEMPORARY)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
        temporary = None
        _sync_folder(path.parent)
    except OSError as error:
        raise RunError(f"Cannot write {path}: {error.strerror or error}.") from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """After a power cut the new name is there too. Not every file system can; the data itself is already safe."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def building_folder(target: Path) -> Path:
    """An empty folder beside `target`, to be filled and handed to `replace_folder`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=TEMPORARY))


def replace_folder(new: Path, target: Path) -> None:
    """Put the folder `new` in the place of `target`. At no moment is there nothing, where the system can exchange."""
    new.chmod(0o777 & ~_umask())
    if not target.exists():
        os.rename(new, target)
    elif _exchange(new, target):
        shutil.rmtree(new) if new.is_dir() else new.unlink()
    else:
        old = new.with_name(f"{new.name.removesuffix(TEMPORARY)}.old{TEMPORARY}")
        os.rename(target, old)
        os.rename(new, target)
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    _sync_folder(target.parent)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two names in one step; False where the system or the file system cannot."""
    try:
        swap = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError, TypeError):
        return False
    return swap(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0


def sweep(folder: Path) -> None:
    """Remove what writers that were killed left unfinished. Only for who holds the lock of the folder."""
    with contextlib.suppress(OSError):
        for entry in list(folder.iterdir()):
            if is_temporary(entry.name):
                shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink(missing_ok=True)


def is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith(TEMPORARY)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_json(path: Path, value: Any) -> None:
    write_atomic(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def sha256_file(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def lock(path: Path, *, wait: bool, busy: str, meanwhile: Callable[[], None] | None = None) -> FileLock:
    """An advisory lock on `path` that dies with its owner. `busy`: the sentence said when it is taken.

    `meanwhile` is called while we wait and may raise. Who gets the lock `.lock` of a folder sweeps it.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        guard = FileLock(str(path), timeout=0)
        while True:
            try:
                guard.acquire()
                break
            except Timeout:
                if not wait:
                    raise UserError(busy) from None
            if meanwhile is not None:
                meanwhile()
            time.sleep(LOOK_EVERY_S)
    except OSError as error:
        raise RunError(f"Cannot lock {path}: {error.strerror or error}.") from error
    if path.name == ".lock":
        sweep(path.parent)
    return guard


def save_tree(path: Path, tree: Mapping[str, Any]) -> None:
    """Write nested dicts and lists of tensors, numbers and strings as one checksummed safetensors file."""
    tensors: dict[str, torch.Tensor] = {}
    skeleton = _take_tensors(dict(tree), tensors, "")
    text = json.dumps(skeleton, sort_keys=True)
    meta = json.dumps({"tree": text, "sha256": _digest(text, tensors)})
    write_atomic(path, safetensors_bytes(tensors, {META: meta}))


def load_tree(path: Path, what: str = "file") -> dict[str, Any]:
    """Read what `save_tree` wrote; a damaged file is named and refused."""
    try:
        with safe_open(str(path), framework="pt") as file:
            meta = json.loads((file.metadata() or {})[META])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - safe_open is no dict
        if meta["sha256"] != _digest(meta["tree"], tensors):
            raise ValueError("checksum")
        tree = _put_tensors(json.loads(meta["tree"]), tensors)
    except FileNotFoundError:
        raise RunError(f"The {what} {path} is missing.") from None
    except (OSError, SafetensorError, KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise RunError(f"The {what} {path} is damaged or not ours: delete it or restore it from a copy.") from error
    return tree


def _digest(text: str, tensors: Mapping[str, torch.Tensor]) -> str:
    digest = hashlib.sha256(text.encode())
    for key in sorted(tensors):
        digest.update(key.encode())
        digest.update(tensors[key].reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _take_tensors(node: Any, tensors: dict[str, torch.Tensor], at: str) -> Any:
    if isinstance(node, torch.Tensor):
        tensors[at] = node.detach().cpu().contiguous().clone()
        return {"@": at, "like": _like(tensors[at])}
    if isinstance(node, Mapping):
        return {str(key): _take_tensors(value, tensors, f"{at}/{key}") for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [_take_tensors(value, tensors, f"{at}/{i}") for i, value in enumerate(node)]
    return node


def _like(tensor: torch.Tensor) -> str:
    """Type and shape: part of the checksummed text, so that a damaged header cannot re-interpret whole bytes."""
    return f"{tensor.dtype} {list(tensor.shape)}"


def _put_tensors(node: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    if isinstance(node, dict):
        if "@" in node:
            tensor = tensors[node["@"]]
            if node.get("like", _like(tensor)) != _like(tensor):
                raise ValueError("another type or shape")
            return tensor
        return {key: _put_tensors(value, tensors) for key, value in node.items()}
    if isinstance(node, list):
        return [_put_tensors(value, tensors) for value in node]
    return node
