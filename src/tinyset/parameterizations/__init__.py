"""How synthetic images are stored, by name. A class is imported when it is asked for."""

from importlib import import_module
from typing import TYPE_CHECKING

from tinyset.errors import UserError

if TYPE_CHECKING:
    from tinyset.parameterizations.base import Parameterization

PARAMETERIZATIONS: dict[str, str] = {
    "pixels": "tinyset.parameterizations.pixels:Pixels",
    "tiles": "tinyset.parameterizations.tiles:Tiles",
    "codes": "tinyset.parameterizations.codes:Codes",
}


def parameterization_class(kind: str) -> type["Parameterization"]:
    if kind not in PARAMETERIZATIONS:
        raise UserError(f"Unknown parameterization {kind!r}: choose one of {', '.join(PARAMETERIZATIONS)}.")
    module, _, name = PARAMETERIZATIONS[kind].partition(":")
    found: type[Parameterization] = getattr(import_module(module), name)
    return found
