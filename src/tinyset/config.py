"""Settings: frozen, validated, readable; a typo is an error that names the key."""

import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from tinyset.errors import UserError

MOST_QUOTED = 100  # letters of a wrong value
BUDGETS = ("images_per_class", "params_per_class", "budget_bytes")  # a set has one of them
MOST_YAML_BYTES, MOST_YAML_VALUES = 1 << 20, 100_000


class Settings(BaseModel):
    """The base of every settings class."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def parse(cls, values: Mapping[str, Any], where: str) -> Self:
        """Validated settings, or one sentence that names the key."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise UserError(f"{where}: {_first_problem(error, cls)}") from None


def _first_problem(error: ValidationError, cls: type[BaseModel]) -> str:
    problem = error.errors()[0]
    key = ".".join(str(part) for part in problem["loc"]) or "settings"
    if problem["type"] == "extra_forbidden":
        return f"unknown key {key!r}; the keys are {', '.join(cls.model_fields)}."
    message = problem["msg"].removeprefix("Value error, ").rstrip(".")
    given = repr(problem["input"])
    given = given if len(given) <= MOST_QUOTED else given[:MOST_QUOTED] + "…"
    return f"{key} = {given}: {message}." if problem["loc"] else f"{message}."


def parse_duration(text: str | float) -> float:
    """Seconds from `90`, `90s`, `10m`, `2h` or `1h30m`."""
    if isinstance(text, int | float):
        return float(text)
    match = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?", text.strip())
    if not match or not any(match.groups()):
        raise UserError(f"{text!r} is not a duration: write 90s, 10m or 2h.")
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds


def parse_bytes(text: str | int) -> int:
    """Bytes from `1500`, `100kB`, `2GB` or `512MiB`."""
    if isinstance(text, int):
        return text
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kKmMgGtT]?)(i?)[bB]?", text.strip())
    if not match:
        raise UserError(f"{text!r} is not a size: write 100kB, 2GB or 512MiB.")
    base = 1024 if match[3] else 1000
    return int(float(match[1]) * base ** " kmgt".index(match[2].lower() or " "))


class CondenseConfig(Settings):
    """Everything that decides what `condense` computes. `config.yaml` of a run is this, resolved."""

    method: str = "kfs"
    parameterization: Literal["pixels", "tiles", "codes"] | None = None
    objective: str | None = None
    init: Literal["noise", "real"] | None = None
    start: str | None = None  # condensed sets to begin with, by name or folder, separated by commas

    images_per_class: int | list[int] | dict[str, int] | None = None
    params_per_class: int | None = Field(None, ge=1)
    budget_bytes: int | None = Field(None, ge=1)

    decoder: Literal["auto", "low", "high"] = "auto"
    decoders: int | None = Field(None, ge=1)
    codes: int | None = Field(None, ge=1)
    code_channels: int | None = Field(None, ge=1)
    tile_factor: int = Field(2, ge=1)
    storage: Literal["float32", "float16", "int8"] = "float32"

    network: str = "convnet3"
    steps: int = Field(1000, ge=0)
    networks: int = Field(100, ge=1)
    real_per_class: int | None = Field(None, ge=1)
    batch: int | Literal["full"] = "full"

    pretrain_steps: int = Field(2000, ge=0)
    pretrain_batch: int = Field(256, ge=1)
    pretrain_rate: float = Field(0.01, gt=0)
    decoder_noise: float = Field(0.1, ge=0)

    optimizer: Literal["adam", "sgd"] = "adam"
    momentum: float = Field(0.5, ge=0, lt=1)
    rates: dict[str, float] = {}
    decay: float = Field(0.0, ge=0, le=1)
    options: dict[str, Any] = {}

    protocol: str | None = None
    seed: int = Field(0, ge=0)
    device: str = "auto"
    threads: int | None = Field(None, ge=1)
    precision: Literal["float32", "bf16"] = "float32"
    compile: Literal["auto", "always", "never"] = "auto"
    chunk: int | None = Field(None, ge=1)
    memory_limit_bytes: int = Field(4_000_000_000, ge=1_000_000)
    time_limit_s: float | None = Field(None, gt=0)
    checkpoint_every: int = Field(100, ge=1)

    @field_validator("batch")
    @classmethod
    def _batch_of_two(cls, value: int | str) -> int | str:
        if isinstance(value, int) and value < 2:
            raise ValueError("the sampled step needs a batch of 2 or more")
        return value

    @field_validator("images_per_class")
    @classmethod
    def _positive(cls, value: Any) -> Any:
        numbers = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else [value]
        if any(n is not None and n < 1 for n in numbers):
            raise ValueError("images per class must be 1 or more")
        return value

    @model_validator(mode="after")
    def _one_budget(self) -> Self:
        given = [budget for budget in BUDGETS if getattr(self, budget) is not None]
        if len(given) > 1:
            raise ValueError(f"give one budget, not {' and '.join(given)}")
        return self


def recipe(name: str) -> dict[str, Any]:
    """The settings of a shipped recipe (`plain`, `fast`, `best`, `paper`, `cifar10-10`, ...) or of a YAML file."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        try:
            return load_yaml(path.read_text(), name)
        except OSError as error:
            raise UserError(f"Cannot read the recipe {name}: {error.strerror}.") from None
        except UnicodeDecodeError:
            raise UserError(f"The recipe {name} is not a text file.") from None
    if name not in recipes():
        raise UserError(f"Unknown recipe {name!r}: choose one of {', '.join(recipes())}, or give a .yaml file.")
    return load_yaml((resources.files("tinyset") / "recipes" / f"{name}.yaml").read_text(), name)


def recipes() -> list[str]:
    folder = resources.files("tinyset") / "recipes"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


class _Loader(yaml.SafeLoader):
    """Plain values only. No `<<`: merging maps into maps is another way to write billions of values on a page."""

    def flatten_mapping(self, node: Any) -> None:
        pass


def load_yaml(text: str, where: str) -> dict[str, Any]:
    """A YAML mapping. Numbers such as 1e-3, which YAML 1.1 reads as strings, are numbers here."""
    if len(text) > MOST_YAML_BYTES:
        raise UserError(f"{where} is too large to be settings.")
    try:
        values = yaml.load(text, _Loader)
        _count(values)
    except yaml.YAMLError as error:
        raise UserError(f"{where} is not valid YAML: {' '.join(str(error).split())}.") from None
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        raise UserError(f"{where} is not valid YAML: a value cannot be read.") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise UserError(f"{where} must be a mapping of settings, not a {type(values).__name__}.")
    return {str(key): _numbers(value) for key, value in values.items()}


def _count(value: Any, seen: int = 0) -> int:
    """How many values there are, aliases followed: a page of YAML can stand for billions of them, or contain itself."""
    if seen > MOST_YAML_VALUES:
        raise ValueError("too many values")
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for child in children:
        seen = _count(child, seen + 1)
    return seen


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _numbers(v) for key, v in value.items()}
    if isinstance(value, list):
        return [_numbers(v) for v in value]
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+", value):
        return float(value)
    return value
