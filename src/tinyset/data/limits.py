"""How much a file may make us hold: strangers' files promise anything."""

import os

from tinyset.errors import UserError

DEFLATE_RATIO = 1100  # deflate shrinks at most 1032 times: a header that promises more lies


def fits_memory(size: int, what: str) -> None:
    """Refuse what would fill the machine before a byte of it is asked for."""
    limit = _memory() // 2
    if size > limit:
        raise UserError(f"{what} would take {size / 1e9:.0f} GB of memory, more than half of this machine's.")


def _memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return 16 << 30
