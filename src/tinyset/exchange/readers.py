"""Other people's condensed images as a pixel artifact: the public `.pt` files of DC, DSA, DM, CAFE, MTT, IDC.

    {"data": [[images, labels], ...], ...}     DC, DSA, DM, CAFE: one pair per experiment, images normalised
    [images, labels]                           IDC, in [0, 1]
    images, and a second file of labels        MTT, images normalised
    {"images": ..., "labels": ...}             `tinyset export --format pt`

Files are opened with `weights_only`: tensors and plain values, no code.
"""

import codecs
import math
import pickle
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tinyset.condensed import CondensedSet, make_config
from tinyset.data.imageset import ImageSet
from tinyset.errors import UserError
from tinyset.parameterizations.labels import NAME as SOFT
from tinyset.parameterizations.pixels import Pixels
from tinyset.progress import Progress, Silent

MOST_BYTES = 2 << 30
CLIPPED = 0.01  # a share of values outside [0, 1] worth a word

Stats = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True)
class Found:
    """Images and labels as a file has them, and what else it says."""

    images: torch.Tensor
    labels: torch.Tensor
    class_names: list[str] | None = None
    stats: Stats | None = None


def import_images(
    path: str | Path,
    *,
    labels: str | Path | None = None,
    experiment: int = 0,
    stats: Stats | None = None,
    class_names: Sequence[str] | None = None,
    real: ImageSet | None = None,
    source: str = "",
    mirror: bool = True,
    protocol: str = "kfs-aug",
    progress: Progress | None = None,
) -> CondensedSet:
    """A pixel artifact. Normalised images are brought back to [0, 1] with `stats`, or those of `real`."""
    file = Path(path)
    found = _find(_open(file), file, experiment, None if labels is None else _open(Path(labels)))
    stats = stats or (real.stats if real is not None else None)
    names = class_names or (real.class_names if real is not None else found.class_names)
    pixels = _pixels(found.images, stats, file, progress or Silent())
    hard, soft = _labels(found.labels, len(pixels), file)
    classes = soft.shape[1] if soft is not None else int(hard.max()) + 1
    names = list(names) if names else [str(c) for c in range(classes)]
    if len(names) < classes or (soft is not None and len(names) != classes):
        raise UserError(f"{file} holds {classes} classes, and {len(names)} class names are given.")
    order = torch.sort(hard, stable=True).indices
    counts = torch.bincount(hard, minlength=len(names)).tolist()
    if 0 in counts:
        raise UserError(f"{file} holds no image of the class {names[counts.index(0)]!r}.")
    shape = tuple(pixels.shape[1:])
    tensors = {"images": pixels[order]} | ({} if soft is None else {SOFT: soft[order]})
    spec = {"image_shape": list(shape), "counts": counts, "zca": False}
    mean, std = stats or found.stats or _own_stats(pixels)
    config = make_config(
        kind="pixels",
        spec=spec,
        class_names=names,
        image_shape=shape,
        mean=list(mean),
        std=list(std),
        mirror=mirror,
        protocol=protocol,
        method=f"imported from {file.name}",
        nominal_params_per_class=math.prod(shape) * len(pixels) / len(names),
        source=source,
        source_fingerprint=real.fingerprint if real is not None else "",
        source_bytes=real.images.numel() if real is not None else 0,
        source_images=len(real) if real is not None else 0,
    )
    return CondensedSet(Pixels.restore(spec, tensors), config)


def _open(path: Path) -> Any:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UserError(f"{path} is larger than {MOST_BYTES >> 30} GiB.")
        with torch.serialization.safe_globals(_numbers()):
            return torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error.strerror or error}.") from None
    except pickle.UnpicklingError:
        raise UserError(f"{path} is no .pt file, or holds Python objects, which are never loaded.") from None
    except (RuntimeError, EOFError, ValueError, KeyError, IndexError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is damaged or no .pt file ({type(error).__name__}).") from None


def _numbers() -> list[Any]:
    """numpy's numbers and arrays: DC's files list accuracies with them. Plain data; old files name the old module."""
    core = np._core.multiarray  # type: ignore[attr-defined]
    kinds = [type(np.dtype(kind)) for kind in ("float64", "float32", "int64", "int32")]
    makers = [(core.scalar, "scalar"), (core._reconstruct, "_reconstruct")]
    named = [(maker, f"numpy.{home}.multiarray.{name}") for maker, name in makers for home in ("core", "_core")]
    return [*named, np.ndarray, np.dtype, *kinds, codecs.encode]


def _find(tree: Any, path: Path, experiment: int, labels: Any) -> Found:
    if labels is not None:
        if isinstance(tree, torch.Tensor) and isinstance(labels, torch.Tensor):
            return Found(tree, labels)
        raise UserError(f"--labels: {path} and the file of labels must each hold one tensor.")
    if isinstance(tree, Mapping) and isinstance(tree.get("data"), list | tuple):
        pairs = tree["data"]
        if not 0 <= experiment < len(pairs):
            raise UserError(f"--experiment {experiment}: {path} holds {len(pairs)}, counted from 0.")
        tree = pairs[experiment]
    if isinstance(tree, Mapping):
        names, mean, std = (tree.get(key) for key in ("class_names", "mean", "std"))
        stats = None
        if isinstance(mean, torch.Tensor) and isinstance(std, torch.Tensor):
            stats = (tuple(mean.flatten().tolist()), tuple(std.flatten().tolist()))
        pair = [tree.get("images"), tree.get(SOFT, tree.get("labels"))]
        given = [str(name) for name in names] if isinstance(names, list) else None
    else:
        pair, given, stats = list(tree) if isinstance(tree, list | tuple) else [tree], None, None
    if len(pair) != 2 or not all(isinstance(part, torch.Tensor) for part in pair):
        hint = " (name the file of labels with --labels)" if isinstance(tree, torch.Tensor) else ""
        raise UserError(f"{path} holds no pair of images and labels{hint}.")
    return Found(pair[0], pair[1], given, stats)


def _pixels(images: torch.Tensor, stats: Stats | None, path: Path, progress: Progress) -> torch.Tensor:
    """float32 in [0, 1]. What looks normalised is refused unless the statistics are known: no guessing."""
    if images.ndim != 4 or 0 in images.shape or images.shape[1] not in (1, 3):
        raise UserError(f"{path}: images must be N x C x H x W with 1 or 3 channels, not {tuple(images.shape)}.")
    if images.dtype == torch.uint8:
        return images.float() / 255
    pixels = images.detach().float()
    if not bool(torch.isfinite(pixels).all()):
        raise UserError(f"{path}: the images hold NaN or infinity.")
    low, high = float(pixels.min()), float(pixels.max())
    if low >= -1e-3 and high <= 1 + 1e-3:
        return pixels.clamp(0, 1)
    if stats is None:
        raise UserError(
            f"{path}: the images range from {low:.2f} to {high:.2f}, so they are normalised: "
            "name their dataset with --data, or give --mean and --std."
        )
    if len(stats[0]) != images.shape[1]:
        raise UserError(f"{path}: the images have {images.shape[1]} channels and the statistics {len(stats[0])}.")
    mean, std = (torch.tensor(values).view(1, -1, 1, 1) for values in stats)
    pixels = pixels * std + mean
    outside = float(((pixels < 0) | (pixels > 1)).float().mean())
    if outside > CLIPPED:
        progress.note(f"{100 * outside:.0f} % of the pixel values lay outside [0, 1], as optimised ones do: clipped.")
    return pixels.clamp(0, 1)


def _labels(labels: torch.Tensor, count: int, path: Path) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Class numbers, and distributions where the file has learned labels."""
    labels = labels.detach()
    if len(labels) != count or labels.ndim not in (1, 2):
        raise UserError(f"{path} holds {count} images and labels of shape {tuple(labels.shape)}.")
    if labels.ndim == 2 and labels.shape[1] > 1:
        soft = labels.float()
        sums = soft.sum(1)
        if not bool(torch.isfinite(soft).all()) or float(soft.min()) < 0 or float((sums - 1).abs().max()) > 1e-3:
            raise UserError(f"{path}: soft labels must be shares of the classes that sum to 1.")
        return soft.argmax(1), soft / sums[:, None]
    hard = labels.flatten()
    if hard.is_floating_point() and not bool((hard == hard.round()).all()):
        raise UserError(f"{path}: labels must be whole numbers.")
    hard = hard.to(torch.int64)
    if int(hard.min()) < 0 or int(hard.max()) >= 100_000:
        raise UserError(f"{path}: labels must be class numbers from 0.")
    return hard, None


def _own_stats(pixels: torch.Tensor) -> Stats:
    mean, std = pixels.mean((0, 2, 3)), pixels.std((0, 2, 3)).clamp_min(0.01)
    return tuple(round(v, 4) for v in mean.tolist()), tuple(round(v, 4) for v in std.tolist())
