"""IDX: the format of MNIST. Big-endian: two zero bytes, the type, the number of axes, their lengths, the bytes."""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

from tinyset.data.limits import DEFLATE_RATIO
from tinyset.errors import UserError

UBYTE = 8


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
            # the promise is compared with the file before memory is asked for; then one byte more is read, never all
            possible = size <= path.stat().st_size * (DEFLATE_RATIO if zipped else 1)
            content = stream.read(size + 1) if possible else b""
    except (OSError, EOFError, zlib.error, MemoryError) as error:
        raise UserError(f"{path} cannot be read ({error}).") from error
    if len(content) != size:
        raise UserError(f"{path} lies about its shape {'x'.join(map(str, shape))} or is cut short.")
    return np.frombuffer(content, np.uint8).reshape(shape)
