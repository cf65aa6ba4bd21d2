"""tinyset: a labelled image dataset as a file of kilobytes that trains models almost as well as the original.

Public names are imported when they are first used: `import tinyset` and `tinyset --help` do not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tinyset.version import __version__

_HOMES = {
    "CondensedSet": "tinyset.condensed",
    "ImageSet": "tinyset.data.imageset",
    "Splits": "tinyset.data.imageset",
    "UserError": "tinyset.errors",
    "RunError": "tinyset.errors",
    "condense": "tinyset.condensation",
    "evaluate": "tinyset.evaluation",
    "load": "tinyset.condensed",
    "load_images": "tinyset.data",
}

__all__ = [*_HOMES, "__version__"]

if TYPE_CHECKING:
    from tinyset.condensation import condense
    from tinyset.condensed import CondensedSet, load
    from tinyset.data import load_images
    from tinyset.data.imageset import ImageSet, Splits
    from tinyset.errors import RunError, UserError
    from tinyset.evaluation import evaluate


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tinyset' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
