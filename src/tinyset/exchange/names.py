"""Class names as folder names: readable where they can be, safe on every file system, never two alike."""

import re
from collections.abc import Sequence

UNSAFE = re.compile(r'[\x00-\x1f\x7f<>:"/\\|?*%]')
RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)  # Windows
MOST_BYTES = 120


def folder_names(class_names: Sequence[str]) -> list[str]:
    """One folder name per class, in order; `a/b` becomes `a%2Fb`."""
    taken: set[str] = set()
    names = []
    for label, name in enumerate(class_names):
        safe = _safe(name, label)
        while safe.casefold() in taken:  # `Cat` and `cat` are one folder on many disks
            safe += f"~{label}"
        taken.add(safe.casefold())
        names.append(safe)
    return names


def _safe(name: str, label: int) -> str:
    quoted = UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", name)
    if quoted.startswith("."):
        quoted = "%2E" + quoted[1:]
    if quoted.endswith((" ", ".")):
        quoted = f"{quoted[:-1]}%{ord(quoted[-1]):02X}"
    encoded = quoted.encode("utf-8", "replace")
    if not quoted or RESERVED.fullmatch(quoted) or len(encoded) > MOST_BYTES:
        return f"{label}~{encoded[:MOST_BYTES].decode('utf-8', 'ignore')}" if quoted else f"class{label}"
    return quoted
