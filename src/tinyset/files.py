"""Files that are either the old version or the new one, never half of each; and trees of tensors without pickle."""

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as safetensors_bytes

from tinyset.errors import RunError, UserError

META = "tinyset"  # safetensors orders several metadata keys at random: one key keeps the bytes stable


def cache_dir() -> Path:
    """`TINYSET_CACHE`, else the user's cache folder."""
    if given := os.environ.get("TINYSET_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tinyset"


def write_atomic(path: Path, data: bytes | str) -> None:
    """Temporary file beside the target, fsync, rename: a reader sees the old bytes or the new ones."""
    if isinstance(data, str):
        data = data.encode()
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        raise RunError(f"Cannot write {path}: {error.strerror or error}.") from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_json(path: Path, value: Any) -> None:
    write_atomic(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def sha256_file(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def lock(path: Path, *, wait: bool, busy: str) -> FileLock:
    """An advisory lock on `path` that dies with its owner. `busy`: the sentence said when it is taken."""
    path.parent.mkdir(parents=True, exist_ok=True)
    guard = FileLock(str(path), timeout=-1 if wait else 0)
    try:
        guard.acquire()
    except Timeout:
        raise UserError(busy) from None
    except OSError as error:
        raise UserError(f"Cannot lock {path}: {error.strerror or error}.") from error
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
    except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:
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
        return {"@": at}
    if isinstance(node, Mapping):
        return {str(key): _take_tensors(value, tensors, f"{at}/{key}") for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [_take_tensors(value, tensors, f"{at}/{i}") for i, value in enumerate(node)]
    return node


def _put_tensors(node: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    if isinstance(node, dict):
        if set(node) == {"@"}:
            return tensors[node["@"]]
        return {key: _put_tensors(value, tensors) for key, value in node.items()}
    if isinstance(node, list):
        return [_put_tensors(value, tensors) for value in node]
    return node
