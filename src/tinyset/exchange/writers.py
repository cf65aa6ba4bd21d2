"""A condensed set as ordinary files: decoded, 8 bit, with labels and names. What is lost is the small size."""

import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from tinyset.condensed import CondensedSet
from tinyset.errors import RunError, UserError, needs_extra
from tinyset.exchange.names import folder_names
from tinyset.files import write_atomic
from tinyset.whitening import Filter

ROWS = 1000  # per group of a parquet file


@dataclass(frozen=True)
class Decoded:
    """What every format writes. `images` is uint8, N x C x H x W."""

    images: np.ndarray
    labels: np.ndarray
    soft_labels: np.ndarray | None
    class_names: list[str]
    mean: list[float]
    std: list[float]
    whitening: Filter | None  # of normalised images

    def png(self, i: int) -> bytes:
        pixels = self.images[i]
        if len(pixels) not in (1, 3):
            raise UserError(f"Images of {len(pixels)} channels cannot be PNG files: use --format npz or pt.")
        picture = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
        file = io.BytesIO()
        picture.save(file, "PNG")
        return file.getvalue()


def decoded(condensed: CondensedSet) -> Decoded:
    images, labels = condensed.decode()
    soft = condensed.soft_labels
    return Decoded(
        images=(images.cpu().clamp(0, 1) * 255).round().to(torch.uint8).contiguous().numpy(),
        labels=labels.cpu().to(torch.int64).numpy(),
        soft_labels=None if soft is None else soft.cpu().float().numpy(),
        class_names=list(condensed.class_names),
        mean=condensed.config.mean,
        std=condensed.config.std,
        whitening=condensed.config.whitening,
    )


def export(
    condensed: CondensedSet, dest: str | os.PathLike[str], format: str = "npz", *, overwrite: bool = False
) -> Path:
    """Write `condensed` to `dest`: a folder for `imagefolder`, a file for `npz`, `parquet` and `pt`."""
    if format not in FORMATS:
        raise UserError(f"--format {format}: choose one of {', '.join(FORMATS)}.")
    target = Path(dest)
    if target.is_dir() and format != "imagefolder":
        raise UserError(f"{target} is a folder: name the {format} file to write.")
    if target.exists() and not overwrite and not (target.is_dir() and not any(target.iterdir())):
        raise UserError(f"{target} exists: choose another place or use --overwrite.")
    FORMATS[format](decoded(condensed), target)
    return target


def _imagefolder(images: Decoded, target: Path) -> None:
    """CLASS/000.png ..., as torchvision's ImageFolder reads it; `classes.json` keeps label numbers and true names."""
    folders = folder_names(images.class_names)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    except OSError as error:
        raise RunError(f"Cannot write {target}: {error.strerror or error}.") from error
    try:
        for label, folder in enumerate(folders):
            (building / folder).mkdir()
            members = np.flatnonzero(images.labels == label).tolist()
            digits = len(str(max(len(members) - 1, 0)))
            for place, i in enumerate(members):
                (building / folder / f"{place:0{digits}d}.png").write_bytes(images.png(i))
        (building / "classes.json").write_text(json.dumps(_facts(images, folders), indent=1, ensure_ascii=False) + "\n")
        building.chmod(0o755)
        if target.exists():
            shutil.rmtree(target) if target.is_dir() else target.unlink()
        building.rename(target)
    except OSError as error:
        raise RunError(f"Cannot write {target}: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _facts(images: Decoded, folders: list[str]) -> dict[str, Any]:
    named = zip(folders, images.class_names, strict=True)
    facts: dict[str, Any] = {
        "classes": [{"label": i, "name": name, "folder": folder} for i, (folder, name) in enumerate(named)],
        **_statistics(images),
    }
    if images.soft_labels is not None:
        facts["soft_labels"] = images.soft_labels.round(6).tolist()  # class after class, in the order of the files
    return facts


def _statistics(images: Decoded) -> dict[str, Any]:
    """What images go through before a network sees them."""
    whitening = {} if images.whitening is None else {"whitening": images.whitening}
    return {"mean": images.mean, "std": images.std, **whitening}


def _npz(images: Decoded, target: Path) -> None:
    """`images` N x H x W x C (what JAX and TensorFlow expect), `labels`, `class_names`, `mean`, `std`."""
    arrays = {
        "images": np.ascontiguousarray(images.images.transpose(0, 2, 3, 1)),
        "labels": images.labels,
        "class_names": np.array(images.class_names, dtype=np.str_),
        "mean": np.array(images.mean, np.float32),
        "std": np.array(images.std, np.float32),
    }
    if images.whitening is not None:
        arrays["whitening"] = np.array(images.whitening, np.float32)
    if images.soft_labels is not None:
        arrays["soft_labels"] = images.soft_labels
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    write_atomic(target, file.getvalue())


def _pt(images: Decoded, target: Path) -> None:
    """A plain dict of tensors and the list of names: `torch.load(..., weights_only=True)` opens it."""
    tree: dict[str, Any] = {
        "images": torch.from_numpy(images.images),
        "labels": torch.from_numpy(images.labels),
        "class_names": images.class_names,
        "mean": torch.tensor(images.mean),
        "std": torch.tensor(images.std),
    }
    if images.whitening is not None:
        tree["whitening"] = torch.tensor(images.whitening)
    if images.soft_labels is not None:
        tree["soft_labels"] = torch.from_numpy(images.soft_labels)
    file = io.BytesIO()
    torch.save(tree, file)
    write_atomic(target, file.getvalue())


def _parquet(images: Decoded, target: Path) -> None:
    """Columns `image` (PNG bytes) and `label` (a ClassLabel), as the Hugging Face hub shows and `datasets` loads it."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise needs_extra("pyarrow", "hf", "--format parquet") from None
    count = len(images.labels)
    encoded = [{"bytes": images.png(i), "path": None} for i in range(count)]
    columns: dict[str, Any] = {
        "image": pa.array(encoded, pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
        "label": pa.array(images.labels, pa.int64()),
    }
    features: dict[str, Any] = {
        "image": {"_type": "Image"},
        "label": {"names": images.class_names, "_type": "ClassLabel"},
    }
    if images.soft_labels is not None:
        columns["soft_label"] = pa.array(images.soft_labels.tolist(), pa.list_(pa.float32()))
        features["soft_label"] = {"feature": {"dtype": "float32", "_type": "Value"}, "_type": "List"}
    table = pa.table(columns)
    described = {
        "huggingface": json.dumps({"info": {"features": features}}),
        "tinyset": json.dumps(_statistics(images)),
    }
    file = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(described), file, row_group_size=ROWS)
    write_atomic(target, file.getvalue())


FORMATS: dict[str, Callable[[Decoded, Path], None]] = {
    "imagefolder": _imagefolder,
    "npz": _npz,
    "parquet": _parquet,
    "pt": _pt,
}
