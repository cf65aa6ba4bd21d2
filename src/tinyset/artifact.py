"""The artifact's format on disk: what `config.json` must say, and tensors that are checked before they are read.

No pickle, no code: an artifact from a stranger can be damaged or wrong, never dangerous.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import Field, model_validator
from safetensors import SafetensorError, safe_open

from tinyset.config import Settings
from tinyset.errors import UserError
from tinyset.files import sha256_file
from tinyset.parameterizations import parameterization_class
from tinyset.parameterizations.base import Parameterization
from tinyset.storage import PRECISIONS, unpack
from tinyset.whitening import Filter, check

FORMAT = 1
TENSORS, CONFIG, CARD, PREVIEW = "condensed.safetensors", "config.json", "README.md", "preview.png"
MOST_BYTES = 4 << 30  # of numbers in an artifact, checked before anything is allocated
MOST_CONFIG_BYTES = 4 << 20
MOST_TENSORS = 1000
MOST_IMAGES = 10_000_000
MOST_NUMBERS = 1 << 26  # of one image
DTYPES = {"F32", "F16", "I8", "I32", "I64"}  # what `storage.pack` writes
RESULTS, PRIVACY = "results.jsonl", "privacy.json"  # measurements of a set are kept with it


class ArtifactConfig(Settings):
    """`config.json`. Everything a user would otherwise have to guess."""

    format: int = FORMAT
    library: str = ""
    kind: str
    spec: dict[str, Any]
    class_names: list[str] = Field(min_length=1, max_length=100_000)
    image_shape: tuple[int, int, int]
    pixel_range: tuple[float, float] = (0.0, 1.0)
    mean: list[float]
    std: list[float]
    whitening: Filter | None = None  # of normalised images, before a network sees them
    mirror: bool = True
    precision: str = "float32"
    protocol: str = "kfs-aug"
    method: str = "kfs"
    recipe: str | None = None
    seed: int = 0
    steps: int = 0
    nominal_params_per_class: float
    source: str = ""
    source_fingerprint: str = ""
    source_bytes: int = 0
    source_images: int = 0
    condense: dict[str, Any] = {}
    history: list[str] = Field(default=[], max_length=10_000)  # what was done to the set since: grown, slimmed, ...
    checksum: str = ""  # of all this and of the tensors; empty: not checked

    @model_validator(mode="after")
    def _sane(self) -> "ArtifactConfig":
        if self.format != FORMAT:
            raise ValueError(f"format {self.format} is not format {FORMAT}, the one this tinyset reads")
        channels, height, width = self.image_shape
        bounded = 1 <= channels <= 64 and 1 <= height <= 8192 and 1 <= width <= 8192
        if not bounded or channels * height * width > MOST_NUMBERS:
            raise ValueError(f"image_shape {self.image_shape} is out of bounds")
        if len(self.mean) != channels or len(self.std) != channels or min(self.std) <= 0:
            raise ValueError("mean and std need one number per channel, and std above 0")
        if self.whitening is not None:
            check(self.whitening, self.image_shape)
        if not all(map(math.isfinite, (*self.mean, *self.std, self.nominal_params_per_class))):
            raise ValueError("mean, std and nominal_params_per_class must be finite numbers")
        if self.nominal_params_per_class <= 0:
            raise ValueError("nominal_params_per_class must be above 0")
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision {self.precision!r} is not one of {', '.join(PRECISIONS)}")
        return self


class PrivacyReport(Settings):
    """`privacy.json`: what `tinyset privacy` measured, for the card. Distances are root-mean-square, pixels in [0, 1]."""

    set: str  # the SHA-256 of the tensors: a report is true of these bytes only
    name: str
    data: str
    bytes: int
    network: str
    protocol: str
    seed: int
    repeats: int
    attack_percent: float
    attack_interval: tuple[float, float]
    attack_images: int
    synthetic_images: int
    real_images: int
    train_distance: float
    held_out_distance: float
    smallest_train_distance: float  # to any image of the whole training split
    reference_distance: float  # of held-out images to training images
    nearer_to_train_percent: float
    nearer_interval: tuple[float, float]

    @classmethod
    def read(cls, folder: Path, tensors_sha256: str) -> "PrivacyReport | None":
        """The report in a set's folder; None where there is none, or it is damaged or of another set."""
        try:
            report = cls.parse(_json(folder / PRIVACY), PRIVACY)
        except UserError:
            return None
        return report if report.set == tensors_sha256 else None

    def section(self) -> str:
        """For the card."""
        low, high = self.attack_interval
        return (
            "\n## Privacy\n\n"
            f"- membership inference: by its loss under a {self.network} trained on this set ({self.protocol}, "
            f"n = {self.repeats}) a training image is told from a held-out one in {self.attack_percent:.1f} % of cases "
            f"(95 % interval {low:.1f} to {high:.1f}, {self.attack_images:,} images; 50 is guessing)\n"
            f"- nearest neighbours: a synthetic image is {self.train_distance:.4f} from the nearest of {self.real_images:,} "
            f"training images and {self.held_out_distance:.4f} from the nearest of as many held-out ones (mean; "
            f"a held-out image is {self.reference_distance:.4f} from the nearest training image); "
            f"{self.nearer_to_train_percent:.1f} % are nearer to a training image (50 where none is remembered); "
            f"the smallest distance to any training image is {self.smallest_train_distance:.4f}\n"
            f"- measured on {self.data}; a probe, not a proof\n"
        )


def seal(values: Mapping[str, Any], tensors_sha256: str) -> str:
    """The checksum of an artifact: over the values of its config.json and the bytes of its tensors."""
    text = json.dumps({key: value for key, value in values.items() if key != "checksum"}, sort_keys=True)
    return hashlib.sha256(f"{text}\n{tensors_sha256}".encode()).hexdigest()


def verify(folder: Path, config: ArtifactConfig) -> None:
    """Refuse a set that is not, byte for byte, what was saved."""
    values = _json(folder / CONFIG)
    if config.checksum and config.checksum != seal(values, sha256_file(folder / TENSORS)):
        raise UserError(
            f"{folder} was damaged or changed after it was written: fetch it again (or, if the change is yours, remove "
            f"`checksum` from its {CONFIG})."
        )


def read_config(path: Path) -> ArtifactConfig:
    return ArtifactConfig.parse(_json(path), str(path))


def _json(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MOST_CONFIG_BYTES:
            raise UserError(f"{path} is too large to be a condensed set's.")
        values = json.loads(path.read_bytes())
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error.strerror}.") from None
    except (ValueError, RecursionError):
        raise UserError(f"{path} is not valid JSON.") from None
    if not isinstance(values, dict):
        raise UserError(f"{path} is not a JSON object.")
    return values


def read_tensors(path: Path, config: ArtifactConfig) -> Parameterization:
    """Shapes are compared with the config, and sizes bounded, before a tensor is read."""
    kind = parameterization_class(config.kind)
    if not path.is_file():  # neither a folder nor a pipe that never ends
        raise UserError(f"{path} is missing.")
    try:
        with safe_open(str(path), framework="pt") as file:
            names = set(file.keys())
            if len(names) > MOST_TENSORS:
                raise UserError(f"{path} holds {len(names)} tensors: a condensed set has a few.")
            slices = {name: file.get_slice(name) for name in names}
            shapes = {name: tuple(part.get_shape()) for name, part in slices.items()}
            if strange := sorted(name for name, part in slices.items() if str(part.get_dtype()) not in DTYPES):
                raise UserError(f"{path}: the tensor {strange[0]!r} is of a type that condensed sets do not have.")
            if sum(math.prod(shape) for shape in shapes.values()) * 4 > MOST_BYTES:
                raise UserError(f"{path} would need more than {MOST_BYTES >> 30} GiB of memory.")
            _check_labels(path, config, file, shapes)
            packed = {name: file.get_tensor(name) for name in names - {"labels"}}
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path} is missing, truncated or not a safetensors file: {error}.") from None
    try:
        tensors = unpack(packed)
        for name, tensor in tensors.items():
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                raise UserError(f"{path}: the tensor {name!r} holds NaN or infinity.")
        made = kind.restore(config.spec, tensors)
    except KeyError as error:
        raise UserError(f"{path}: {error} is missing.") from None
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError, MemoryError) as error:
        raise UserError(f"{path} does not fit its {CONFIG}: {' '.join(str(error).split())[:200]}.") from None
    if made.image_shape != config.image_shape or made.classes != len(config.class_names):
        raise UserError(f"{path} does not fit its {CONFIG}: shapes or class counts differ.")
    if sum(made.counts) > MOST_IMAGES:
        raise UserError(f"{path} would decode to {sum(made.counts):,} images.")
    return made


def _check_labels(path: Path, config: ArtifactConfig, file: Any, shapes: Mapping[str, tuple[int, ...]]) -> None:
    units = config.spec.get("codes_per_class") or config.spec.get("counts")
    if "labels" not in shapes:
        raise UserError(f"{path}: 'labels' is missing.")
    labels = file.get_tensor("labels")
    if not isinstance(units, list) or not all(isinstance(n, int) and 0 < n < 1 << 24 for n in units):
        raise UserError(f"{path}: the numbers of codes in its {CONFIG} are not whole numbers.")
    if labels.ndim != 1 or labels.is_floating_point() or len(labels) != sum(units):
        raise UserError(f"{path}: the labels do not fit its {CONFIG}.")
    expected = torch.repeat_interleave(torch.arange(len(units)), torch.tensor(units))
    if not torch.equal(labels.long(), expected):
        raise UserError(f"{path}: the labels do not fit its {CONFIG}.")
