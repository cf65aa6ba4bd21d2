"""What the explorer decodes in the browser: codes and decoders as numbers, other sets as pictures; nearest real images."""

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
import torch
from PIL import Image

from tinyset.condensed import CondensedSet
from tinyset.data.imageset import ImageSet
from tinyset.parameterizations.base import Parameterization
from tinyset.parameterizations.codes import Codes
from tinyset.parameterizations.tiles import Tiles

MOST_NUMBERS = 3_000_000  # of codes in a page: 6 MB, 8 as text
MOST_PIXELS = 6_000_000  # of images in a page where there are no codes
THUMBNAIL = 48  # side of a real image's thumbnail, at most
CHUNK = 2048


@dataclass(frozen=True)
class Nearest:
    """Of every synthetic image shown, class after class: the real training image of its class that looks most alike."""

    index: torch.Tensor
    distance: torch.Tensor  # root mean square over pixel values in [0, 1]
    real: ImageSet


def shown(condensed: CondensedSet) -> list[int]:
    """How many rows (codes, stored images) of each class the page holds: all, unless it would be too large."""
    made = condensed.parameterization
    columns = columns_of(condensed)
    rows = [count // columns for count in made.counts]
    if _in_browser(made):
        size, most = math.prod(made.codes.shape[1:]), MOST_NUMBERS
    else:
        size, most = columns * math.prod(condensed.image_shape), MOST_PIXELS
    share = max(1, most // (size * len(rows)))
    return [min(count, share) for count in rows]


def _in_browser(made: Parameterization) -> TypeGuard[Codes]:
    """Whether the page decodes it; families come as pictures."""
    return isinstance(made, Codes) and made.families == 1


def columns_of(condensed: CondensedSet) -> int:
    """Images that one stored unit decodes to."""
    made = condensed.parameterization
    if isinstance(made, Codes):
        return made.per_code
    return made.factor**2 if isinstance(made, Tiles) else 1


def explorer_data(name: str, condensed: CondensedSet, nearest: Nearest | None, with_real: bool) -> dict[str, Any]:
    """Plain JSON for the page's script."""
    made, rows = condensed.parameterization, shown(condensed)
    words = ("code", "decoder") if isinstance(made, Codes) else ("stored image", "tile")
    data: dict[str, Any] = {
        "name": name,
        "classes": list(condensed.class_names),
        "shape": list(condensed.image_shape),
        "row": words[0] if columns_of(condensed) > 1 or isinstance(made, Codes) else "image",
        "column": words[1],
        "rows": rows,
        "allRows": [count // columns_of(condensed) for count in made.counts],
        "columns": columns_of(condensed),
    }
    if _in_browser(made):
        data |= _codes(made, rows)
    else:
        data["sprites"] = [_sprite(condensed, c, count) for c, count in enumerate(rows)]
    if nearest is not None:
        data["real"] = _real(nearest, with_real)
    return data


def _codes(made: Codes, rows: Sequence[int]) -> dict[str, Any]:
    """int16 with one scale per channel: within 1/65,000 of the largest code, half the size of float32."""
    places = [first + m for first, count in zip(made.offsets, rows, strict=True) for m in range(count)]
    codes = made.codes.detach().cpu().float()[places]
    scale = (codes.abs().amax((0, 2, 3)) / 32767).clamp_min(1e-12)
    numbers = (codes / scale.view(1, -1, 1, 1)).round().to(torch.int16)
    layers = zip(made.decoders.weights, made.decoders.biases, strict=True)
    return {
        "codeShape": list(codes.shape[1:]),
        "codes": _base64(numbers.numpy()),
        "scale": scale.tolist(),
        "layers": [
            {"in": w.shape[1], "out": w.shape[2], "weight": _base64(w.numpy()), "bias": _base64(b.numpy())}
            for w, b in ((w.detach().cpu().float(), b.detach().cpu().float()) for w, b in layers)
        ],
    }


def _sprite(condensed: CondensedSet, class_: int, rows: int) -> dict[str, Any]:
    """The class's images side by side in one PNG."""
    index = torch.arange(rows * columns_of(condensed))
    with torch.no_grad():
        images = condensed.parameterization.decode(class_, index).cpu()
    return sheet((images.clamp(0, 1) * 255).round().to(torch.uint8))


def sheet(images: torch.Tensor) -> dict[str, Any]:
    """uint8 images N x C x H x W as one picture: {"uri", "across"}."""
    count, channels, height, width = images.shape
    if channels not in (1, 3):
        images = images[:, :1]
    across = max(1, min(count, 4096 // width, math.ceil(math.sqrt(count))))
    down = max(1, math.ceil(count / across))
    canvas = np.zeros((down * height, across * width, images.shape[1]), np.uint8)
    for i, image in enumerate(images.permute(0, 2, 3, 1).numpy()):
        y, x = divmod(i, across)
        canvas[y * height : (y + 1) * height, x * width : (x + 1) * width] = image
    return {"uri": png_uri(Image.fromarray(canvas if canvas.shape[2] == 3 else canvas[..., 0])), "across": across}


def png_uri(picture: Image.Image) -> str:
    file = io.BytesIO()
    picture.save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def _base64(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()).decode()


@torch.no_grad()
def find_nearest(condensed: CondensedSet, real: ImageSet) -> Nearest:
    """By squared pixel distance |s - r|^2 = |s|^2 - 2 s.r + |r|^2, within the class."""
    indices, distances = [], []
    columns = columns_of(condensed)
    for c, rows in enumerate(shown(condensed)):
        members = real.by_class[c]
        images = condensed.parameterization.decode(c, torch.arange(rows * columns)).cpu().flatten(1)
        best = torch.full((len(images),), math.inf)
        where = torch.zeros(len(images), dtype=torch.int64)
        for part in members.split(CHUNK):
            pixels = real.images[part].flatten(1).float() / 255
            square = images.square().sum(1, keepdim=True) - 2 * images @ pixels.T + pixels.square().sum(1)
            found, place = square.min(1)
            closer = found < best
            best = torch.where(closer, found, best)
            where = torch.where(closer, part[place], where)
        indices.append(where)
        distances.append((best.clamp_min(0) / images.shape[1]).sqrt())
    return Nearest(torch.cat(indices), torch.cat(distances), real)


def _real(nearest: Nearest, with_real: bool) -> dict[str, Any]:
    data: dict[str, Any] = {
        "index": nearest.index.tolist(),
        "distance": [round(value, 4) for value in nearest.distance.tolist()],
    }
    if with_real:
        unique, slot = nearest.index.unique(return_inverse=True)
        images = nearest.real.images[unique]
        side = max(images.shape[2:])
        if side > THUMBNAIL:
            size = [max(1, round(edge * THUMBNAIL / side)) for edge in images.shape[2:]]
            small = torch.nn.functional.interpolate(images.float(), size, mode="bilinear", antialias=True)
            images = small.round().clamp(0, 255).to(torch.uint8)
        data |= {"slot": slot.tolist(), "sheet": sheet(images), "size": list(images.shape[2:])}
    return data
