"""Images and labels that are already in memory: arrays, tensors, lists, any map-style torch Dataset."""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from PIL import Image

from tinyset.data.imageset import CHUNK, ImageSet
from tinyset.errors import UserError


@runtime_checkable
class MapDataset(Protocol):
    """What torch calls a map-style Dataset."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


def from_arrays(images: Any, labels: Any, class_names: Sequence[str] | None = None) -> ImageSet:
    """An `ImageSet` from images (uint8, or float in [0, 1]; NCHW, NHWC or NHW) and labels (any integers, or strings).

    Labels become 0..C-1 in sorted order. With `class_names`, label i is the class `class_names[i]`.
    """
    pixels = to_uint8(images)
    index, names = encode_labels(labels, class_names)
    return ImageSet(pixels, index, names)


def from_dataset(dataset: MapDataset) -> ImageSet:
    """An `ImageSet` from `dataset[i]` -> (image, label), or {"image": ..., "label": ...} as Hugging Face does."""
    if not len(dataset):
        raise UserError("The dataset is empty.")
    images, labels = [], []
    for i in range(len(dataset)):
        image, label = _pair(dataset[i])
        images.append(to_uint8(_array(image)[None])[0])
        labels.append(label.item() if isinstance(label, torch.Tensor | np.generic) else label)
    sizes = {tuple(image.shape) for image in images}
    if len(sizes) > 1:
        some = " and ".join("x".join(map(str, size)) for size in sorted(sizes)[:2])
        raise UserError(
            f"The dataset holds images of {len(sizes)} shapes ({some}): resize them to one in its transform."
        )
    return from_arrays(torch.stack(images), labels, _own_names(dataset, labels))


def _own_names(dataset: MapDataset, labels: list[Any]) -> list[str] | None:
    """The dataset's `classes`, where every one of them has images and every label has a name."""
    names = getattr(dataset, "classes", None)
    if not isinstance(names, list | tuple) or set(labels) != set(range(len(names))):
        return None
    return [str(name) for name in names]


def _pair(item: Any) -> tuple[Any, Any]:
    if isinstance(item, dict):
        image = next((item[key] for key in ("image", "img", "pixel_values") if key in item), None)
        label = next((item[key] for key in ("label", "labels", "fine_label") if key in item), None)
        if image is not None and label is not None:
            return image, label
    elif isinstance(item, tuple | list) and len(item) == 2:
        return item[0], item[1]
    raise UserError('A dataset must give pairs (image, label) or {"image": ..., "label": ...}.')


def _array(image: Any) -> np.ndarray:
    if isinstance(image, Image.Image):
        return np.asarray(image if image.mode in ("L", "RGB") else image.convert("RGB"))
    return _numpy(image)


def _numpy(values: Any) -> np.ndarray:
    if isinstance(values, torch.Tensor):
        return values.detach().cpu().numpy()
    try:
        return np.asarray(values)
    except ValueError:
        raise UserError("Images must all have one shape.") from None


def to_uint8(images: Any) -> torch.Tensor:
    """uint8 N x C x H x W from what people have; refused with a sentence where it would be a guess."""
    array = _numpy(images)
    if array.ndim == 3:  # grey: N x H x W
        array = array[:, None]
    elif array.ndim == 4 and array.shape[1] not in (1, 3) and array.shape[3] in (1, 3):
        array = array.transpose(0, 3, 1, 2)
    if array.ndim != 4 or array.shape[1] not in (1, 3):
        shape = " x ".join(map(str, array.shape)) or "a single number"
        raise UserError(
            f"Images must be N x C x H x W or N x H x W x C with 1 or 3 channels, or N x H x W, not {shape}."
        )
    if 0 in array.shape:
        raise UserError(f"There are no pixels in images of shape {' x '.join(map(str, array.shape))}.")
    if array.dtype != np.uint8:
        array = _quantised(array)
    return torch.from_numpy(np.ascontiguousarray(array) if array.flags.writeable else array.copy())


def _quantised(array: np.ndarray) -> np.ndarray:
    is_float = array.dtype.kind == "f"
    if not is_float and array.dtype.kind not in "iu":
        raise UserError(f"Images must be uint8, or floats in [0, 1], not {array.dtype}.")
    low, high = array.min(), array.max()
    limit, slack = (1, 1e-3) if is_float else (255, 0)
    if not (low >= -slack and high <= limit + slack):  # written so that NaN is refused
        what = (
            "Float images must be in [0, 1] (undo the normalisation)"
            if is_float
            else "Integer images must be in [0, 255]"
        )
        raise UserError(f"{what}: these range from {low:.4g} to {high:.4g}.")
    result = np.empty(array.shape, np.uint8)
    for start in range(0, len(array), CHUNK):
        part = array[start : start + CHUNK]
        result[start : start + CHUNK] = (part.clip(0, 1) * 255).round() if is_float else part
    return result


def encode_labels(labels: Any, class_names: Sequence[str] | None = None) -> tuple[torch.Tensor, tuple[str, ...]]:
    """Labels as 0..C-1, and the name of each. Sparse integers and strings are numbered in sorted order."""
    values = as_labels(labels)
    known = np.unique(values) if class_names is None else np.array([str(name) for name in class_names])
    names = tuple(str(name) for name in known)
    if len(set(names)) < len(names):
        raise UserError("class_names holds a name twice.")
    if class_names is not None and values.dtype.kind != "U":
        known = np.arange(len(names))
    return index_of(values, known), names


def as_labels(labels: Any) -> np.ndarray:
    """A flat array of int64 or of strings."""
    if isinstance(labels, Iterable) and not isinstance(labels, np.ndarray | torch.Tensor):
        labels = list(labels)
    if isinstance(labels, list) and any(isinstance(label, str | bytes) for label in labels):
        values = np.array(labels, dtype=object)
    else:
        try:
            values = _numpy(labels)
        except UserError:
            raise _bad_labels("lists of different lengths") from None
    if values.ndim == 2 and values.shape[1] == 1:  # N x 1, as many .npz and .mat files have it
        values = values[:, 0]
    if values.ndim != 1:
        raise _bad_labels(f"an array of {values.ndim} axes")
    if values.dtype.kind in "SO":
        values = np.array([_text(value) for value in values.tolist()])
    if values.dtype.kind == "f" and np.all(values == np.floor(values)):
        values = values.astype(np.int64)
    if values.dtype.kind not in "iuUb":
        raise _bad_labels(str(values.dtype))
    return values if values.dtype.kind == "U" else values.astype(np.int64)


def _text(value: Any) -> str:
    """A label among strings. A number becomes its digits; anything else, a missing value above all, is no label."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, str | int):
        return str(value)
    raise _bad_labels(repr(value)[:40])


def _bad_labels(found: str) -> UserError:
    return UserError(f"Labels must be one integer or one string for each image, not {found}.")


def index_of(values: np.ndarray, known: np.ndarray, where: str = "The labels") -> torch.Tensor:
    """The place of every value in `known`; a value that is not there is named."""
    if (values.dtype.kind == "U") != (known.dtype.kind == "U"):
        raise UserError(f"{where} mix numbers and strings.")
    order = np.argsort(known)
    place = order[np.searchsorted(known[order], values).clip(0, len(known) - 1)] if len(values) else values
    wrong = known[place] != values
    if wrong.any():
        raise UserError(f"{where} hold {values[wrong][0].item()!r}, which is not one of the {len(known)} classes.")
    return torch.from_numpy(place.astype(np.int64))
