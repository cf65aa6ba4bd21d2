"""A condensed set as bytes, and as a folder that is there complete or not at all."""

import json
import shutil
from pathlib import Path

import torch
from PIL import Image
from safetensors.torch import save as safetensors_bytes

from tinyset.artifact import (
    CARD,
    CONFIG,
    FORMAT,
    PREVIEW,
    PRIVACY,
    RESULTS,
    TENSORS,
    ArtifactConfig,
    PrivacyReport,
    seal,
)
from tinyset.errors import RunError, UserError
from tinyset.files import META, building_folder, replace_folder, write_atomic, write_json
from tinyset.parameterizations.base import Parameterization
from tinyset.storage import pack


def serialize(made: Parameterization, precision: str) -> bytes:
    """`condensed.safetensors`: the packed tensors, and the class of each code (of each image where there are no codes)."""
    tensors = pack({name: tensor.cpu() for name, tensor in made.tensors().items()}, precision)
    units = made.spec().get("codes_per_class") or made.counts
    tensors["labels"] = torch.repeat_interleave(torch.arange(len(units), dtype=torch.int32), torch.tensor(units))
    return safetensors_bytes(tensors, {META: json.dumps({"format": FORMAT})})


def check_place(target: Path, overwrite: bool) -> None:
    """Nothing is replaced unasked, and nothing but a condensed set ever."""
    if target.exists() and any(target.iterdir() if target.is_dir() else [target]) and not overwrite:
        raise UserError(f"{target} exists and is not empty: choose another place or overwrite it.")
    if target.is_dir() and any(target.iterdir()) and not (target / CONFIG).exists():
        raise UserError(f"{target} holds other files and is not a condensed set: it is left alone.")


def write_set(
    target: Path,
    config: ArtifactConfig,
    *,
    tensors: bytes,
    fingerprint: str,
    card: str,
    preview: Image.Image,
    privacy: PrivacyReport | None,
) -> None:
    """The folder, in place of what was there. Measurements of the same set stay with it."""
    values = config.model_dump(mode="json", exclude={"whitening"} if config.whitening is None else None)
    try:
        building = building_folder(target)
    except OSError as error:
        raise RunError(f"Cannot write {target}: {error.strerror or error}.") from error
    try:
        write_atomic(building / TENSORS, tensors)
        write_json(building / CONFIG, values | {"checksum": seal(values, fingerprint)})
        write_atomic(building / CARD, card)
        preview.save(building / PREVIEW)
        if privacy is not None:
            shutil.copyfile(target / PRIVACY, building / PRIVACY)
        if (target / RESULTS).is_file():  # keyed by content: still true of what they were measured on
            shutil.copyfile(target / RESULTS, building / RESULTS)
        replace_folder(building, target)
    except OSError as error:
        raise RunError(f"Cannot write {target}: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(building, ignore_errors=True)
