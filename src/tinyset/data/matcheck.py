"""Is this a MATLAB 5 file of plain numeric arrays that keeps its promises?

scipy's reader trusts the sizes inside a file: on mutated ones it reads outside its buffers and the process dies. So
every element is walked here first, in Python, and only files whose sizes all add up are given to scipy.
"""

import math
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from tinyset.data.limits import DEFLATE_RATIO, fits_memory
from tinyset.errors import UserError

HEADER = 128
INT8, INT32, UINT32, MATRIX, COMPRESSED = 1, 5, 6, 14, 15
ITEM_SIZES = {1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 4, 7: 4, 9: 8, 12: 8, 13: 8}  # bytes per number, by storage type
CLASSES = {6: "double", 7: "single", 8: "int8", 9: "uint8", 10: "int16", 11: "uint16", 12: "int32", 13: "uint32",
           14: "int64", 15: "uint64"}  # fmt: skip


class Lie(ValueError):
    """A size, type or order that does not fit the rest of the file."""


@dataclass(frozen=True)
class Variable:
    shape: tuple[int, ...]
    kind: str


def check_mat(path: Path) -> dict[str, Variable]:
    """The variables by name, or one sentence about what is wrong."""
    try:
        size = path.stat().st_size
        fits_memory(size, str(path))
        data = path.read_bytes()
        version, order = data[124:126], data[126:128]
        if len(data) > HEADER and (order, version) == (b"IM", b"\x00\x02"):
            raise UserError(f"{path} is a MATLAB 7.3 file: save it as version 5 (-v7).")
        if len(data) <= HEADER or (order, version) != (b"IM", b"\x00\x01") or b"\0" in data[:4]:
            raise UserError(f"{path} is not a readable MATLAB 5 file.")
        return _variables(memoryview(data), path)
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error.strerror or error}.") from error
    except (Lie, struct.error, zlib.error, UnicodeDecodeError, MemoryError) as error:
        raise UserError(f"{path} lies about its content or is damaged ({error}).") from error


def _variables(data: memoryview, path: Path) -> dict[str, Variable]:
    found: dict[str, Variable] = {}
    at = HEADER
    while at < len(data):
        kind, size = struct.unpack_from("<II", data, at)
        body = data[at + 8 : at + 8 + size]
        if len(body) != size:
            raise Lie("a variable is cut short")
        if kind == COMPRESSED:
            body = _inflated(body, path)
            kind = MATRIX
        if kind != MATRIX:
            raise Lie("an element that is no array")
        name, variable = _matrix(body)
        if name in found:
            raise Lie(f"two variables {name!r}")
        found[name] = variable
        at += 8 + size
    return found


def _inflated(packed: memoryview, path: Path) -> memoryview:
    """The one array inside a compressed element: its own size is read first, and never more than that is inflated."""
    inflater = zlib.decompressobj()
    tag = inflater.decompress(packed, 8)
    kind, size = struct.unpack("<II", tag)
    if kind != MATRIX or size > DEFLATE_RATIO * len(packed):
        raise Lie("a compressed element that cannot be what it says")
    fits_memory(size, f"A variable of {path}")
    body = inflater.decompress(inflater.unconsumed_tail, size + 1)
    if len(body) != size or inflater.decompress(inflater.unconsumed_tail, 1) or not inflater.eof:
        raise Lie("a compressed element of another size than it says")
    return memoryview(body)


def _matrix(body: memoryview) -> tuple[str, Variable]:
    """Flags, dimensions, name and one block of real numbers, filling the body exactly."""
    kind, flags, at = _element(body, 0)
    if kind != UINT32 or len(flags) != 8 or flags[1] & 0x08 or flags[0] not in CLASSES:
        raise Lie("an array that is not of plain real numbers")
    kind, sides, at = _element(body, at)
    if kind != INT32 or len(sides) % 4 or not 8 <= len(sides) <= 32:
        raise Lie("dimensions that are none")
    shape = struct.unpack(f"<{len(sides) // 4}i", sides)
    if min(shape) < 0:
        raise Lie("a negative dimension")
    kind, name, at = _element(body, at)
    if kind != INT8 or not 1 <= len(name) <= 63:
        raise Lie("a variable without a name")
    kind, numbers, at = _element(body, at)
    if kind not in ITEM_SIZES or math.prod(shape) * ITEM_SIZES[kind] != len(numbers):
        raise Lie(f"the shape {'x'.join(map(str, shape))} does not fit its {len(numbers)} bytes")
    if at != len(body):
        raise Lie("bytes after an array")
    return str(name, "ascii"), Variable(shape, CLASSES[flags[0]])


def _element(body: memoryview, at: int) -> tuple[int, memoryview, int]:
    """(type, content, where the next one begins). Up to four bytes of content may sit inside the tag itself."""
    (first,) = struct.unpack_from("<I", body, at)
    small = first >> 16
    if small:
        if small > 4:
            raise Lie("a short element that is too long")
        return first & 0xFFFF, body[at + 4 : at + 4 + small], at + 8
    kind, size = struct.unpack_from("<II", body, at)
    content = body[at + 8 : at + 8 + size]
    end = at + 8 + size + (-size) % 8
    if len(content) != size or end > len(body):
        raise Lie("an element is cut short")
    return kind, content, end
