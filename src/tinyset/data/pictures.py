"""One image file of a stranger's -> uint8 pixels. Any type Pillow reads, except those it hands to other programs."""

import io
import os
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

Encoded = Path | bytes

MAX_PIXELS = 64_000_000  # a 64-megapixel photograph takes 192 MB; a "decompression bomb" claims more
MAX_BYTES = 256 << 20
SMALL_BYTES = 1 << 20
GREY = {"1", "L", "LA", "La", "I", "I;16", "I;16L", "I;16B", "I;16N", "F"}
PLAIN = {"1", "L", "RGB"}
KINDS = {"RGBa": "RGBA", "LA": "grey with alpha", "La": "grey with alpha", "P": "palette", "PA": "palette",
         "I": "16-bit", "F": "float"}  # fmt: skip


class Unreadable(Exception):
    """Why a file is no image to us, in a few words."""


@dataclass(frozen=True)
class Look:
    """What the header says."""

    mode: str
    height: int
    width: int

    @property
    def grey(self) -> bool:
        return self.mode in GREY

    @property
    def kind(self) -> str | None:
        """The word for the warning where the mode has to be converted."""
        if self.mode in PLAIN:
            return None
        return "16-bit" if self.mode.startswith("I;16") else KINDS.get(self.mode, self.mode)


@cache
def formats() -> tuple[str, ...]:
    """All of Pillow's formats but those that start Ghostscript or another program, or wrap further formats."""
    Image.init()
    refused = {"EPS", "WMF", "FPX", "MIC", "MPEG", "IPTC", "GRIB", "HDF5", "BUFR", "GBR"}
    common = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")  # tried first: the header pass takes a third less time
    return tuple(dict.fromkeys([*(name for name in common if name in Image.OPEN), *sorted(set(Image.OPEN) - refused)]))


@cache
def extensions() -> frozenset[str]:
    Image.init()
    return frozenset(ending for ending, name in Image.EXTENSION.items() if name in formats())


@contextmanager
def quiet() -> Iterator[None]:
    """Around all decoding: a bomb is an error, every other complaint of Pillow is not for the user."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def look(encoded: Encoded) -> Look:
    """Mode and size, from the header alone."""
    with _opened(encoded, whole=False) as image:
        turned = image.getexif().get(0x0112, 1) in (5, 6, 7, 8)
        width, height = reversed(image.size) if turned else image.size
        return Look(image.mode, height, width)


def decode(encoded: Encoded, size: tuple[int, int], channels: int) -> np.ndarray:
    """Pixels C x H x W: upright as its EXIF says, over white where it is transparent, resized and centre-cropped."""
    with _opened(encoded) as image:
        side = 2 * max(size)
        image.draft("RGB", (side, side))  # a large JPEG is decoded at a fraction of its size
        upright = ImageOps.exif_transpose(image)
        eight = _eight_bit(upright, "L" if channels == 1 else "RGB")
        fitted = eight if eight.size == size[::-1] else ImageOps.fit(eight, size[::-1], Image.Resampling.BICUBIC)
        pixels = np.asarray(fitted)
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)


@contextmanager
def _opened(encoded: Encoded, *, whole: bool = True) -> Iterator[Image.Image]:
    """The image behind a checked header; whatever goes wrong while it is in use becomes `Unreadable`."""
    try:
        with Image.open(_source(encoded, whole), formats=formats()) as image:
            if image.width * image.height > MAX_PIXELS:
                raise Unreadable(f"{image.width} x {image.height} pixels, a decompression bomb")
            yield image
    except _TROUBLE as error:
        raise Unreadable(_reason(error)) from error


def _source(encoded: Encoded, whole: bool) -> Path | io.BytesIO:
    """The bytes, read in one go: Pillow's many small reads make threads fight for the interpreter (2x slower)."""
    if isinstance(encoded, bytes):
        return io.BytesIO(encoded)
    status = os.stat(encoded)
    if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:  # a pipe or a device would never end
        raise Unreadable("no ordinary file of a reasonable size")
    return io.BytesIO(encoded.read_bytes()) if whole or status.st_size < SMALL_BYTES else encoded


def _eight_bit(image: Image.Image, mode: str) -> Image.Image:
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert(mode)
    if image.mode in ("I", "F"):
        return Image.fromarray(_scaled(np.asarray(image))).convert(mode)
    if image.mode in ("RGBA", "RGBa", "LA", "La", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image if image.mode == mode else image.convert(mode)


def _scaled(values: np.ndarray) -> np.ndarray:
    """32-bit grey: [0, 1] floats, bytes or 16-bit values, told apart by their maximum."""
    wide = np.nan_to_num(values.astype(np.float64))
    top = wide.max()
    scale = 255 if values.dtype.kind == "f" and top <= 1 else 1 if top <= 255 else 255 / 65535
    return (wide * scale).clip(0, 255).round().astype(np.uint8)


def _reason(error: Exception) -> str:
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return "a decompression bomb"
    if isinstance(error, Image.UnidentifiedImageError):
        return "no image"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "damaged"


# Pillow's plugins parse strangers' bytes in Python and C: these are what they raise on damage
_TROUBLE = (
    OSError, ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, EOFError, SyntaxError,
    ZeroDivisionError, MemoryError, RuntimeError, NotImplementedError, ArithmeticError, AssertionError,
    Image.DecompressionBombError, Image.DecompressionBombWarning,
)  # fmt: skip
