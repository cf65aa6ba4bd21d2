"""What a loader is asked for."""

import re
from dataclasses import dataclass
from pathlib import Path

from tinyset.errors import UserError
from tinyset.progress import Progress

Size = int | str | tuple[int, int]
MAX_SIDE = 4096


@dataclass(frozen=True)
class Request:
    source: str
    data_dir: Path
    image_size: tuple[int, int] | None
    holdout: float | None
    skip_bad: bool
    seed: int
    progress: Progress


def parse_image_size(size: Size | None) -> tuple[int, int] | None:
    """(height, width) from 32, "32", "60x40" or (60, 40)."""
    if size is None:
        return None
    if isinstance(size, str):
        match = re.fullmatch(r"(\d{1,5})(?:\s*[x×]\s*(\d{1,5}))?", size.strip())
        if not match:
            raise UserError(f"--image-size {size}: write 32 or 60x40 (height x width).")
        height, width = int(match[1]), int(match[2] or match[1])
    else:
        height, width = (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))
    if not (4 <= height <= MAX_SIDE and 4 <= width <= MAX_SIDE):
        raise UserError(f"--image-size {height}x{width} must lie between 4 and {MAX_SIDE}.")
    return height, width


def not_here(name: str, data_dir: Path) -> UserError:
    """The error for a benchmark whose files are not in the data folder."""
    return UserError(f"{name} is not in {data_dir}: run `tinyset data fetch {name}`, or point --data-dir to its files.")
