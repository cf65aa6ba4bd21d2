"""IDX: the format of MNIST. Big-endian: two zero bytes, the type, the number of axes, their lengths, the bytes."""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

from tinyset.errors import UserError

UBYTE = 8
MAX_BYTES = 1 << 31


def read_idx(path: Path, axes: int) -> np.ndarray:
    """The uint8 array of an IDX file, gzipped or not; a header that lies about its shape is refused."""
    try:
        with open(path, "rb") as file:
            zipped = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if zipped else open(path, "rb") as stream:
            header = stream.read(4 + 4 * axes)
            if len(header) < 4 + 4 * axes or header[:4] != bytes([0, 0, UBYTE, axes]):
                raise UserError(f"{path} is not an IDX file of bytes with {axes} axes.")
            shape = tuple(int.from_bytes(header[4 + 4 * i : 8 + 4 * i], "big") for i in range(axes))
            size = math.prod(shape)
            # the header is compared with what is there: one byte more than promised is read, never more
            content = stream.read(size + 1) if size <= MAX_BYTES else b""
    except (OSError, EOFError, zlib.error, MemoryError) as error:
        raise UserError(f"{path} cannot be read ({error}).") from error
    if len(content) != size:
        raise UserError(f"{path} lies about its shape {'x'.join(map(str, shape))} or is cut short.")
    return np.frombuffer(content, np.uint8).reshape(shape)
