"""A trained network in one file: the weights as safetensors, and beside them what a user of the network must know.

One metadata key, `tinyset`, holds JSON: network, class names, image shape, normalisation, and how it was trained.
"""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

import torch
from pydantic import Field, model_validator
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as safetensors_bytes
from torch import nn

from tinyset.batches import Normalisation, normalisation_of
from tinyset.config import Settings
from tinyset.errors import UserError
from tinyset.files import META, write_atomic
from tinyset.networks import build, list_networks
from tinyset.training import predict
from tinyset.whitening import Filter, check

FORMAT = 1
LARGEST = 4096  # a width, depth or side in a stranger's file
Side = Annotated[int, Field(ge=1, le=LARGEST)]


class ModelCard(Settings):
    """The metadata of a model file."""

    format: int = FORMAT
    network: str
    class_names: list[str] = Field(min_length=1)
    image_shape: tuple[Side, Side, Side]
    mean: list[float]
    std: list[float]
    whitening: Filter | None = None
    protocol: str = ""
    seed: int = 0
    steps: int = 0
    artifact: str = ""  # hash of the condensed set it was trained on
    library: str = ""

    @model_validator(mode="after")
    def _a_number_per_channel(self) -> Self:
        if not len(self.mean) == len(self.std) == self.image_shape[0] or min(self.std) <= 0:
            raise ValueError("mean and std are a number per channel, std above 0")
        if self.whitening is not None:
            check(self.whitening, self.image_shape)
        return self


@dataclass(frozen=True)
class Model:
    """A network with its class names and normalisation: give it images, it gives classes."""

    network: nn.Module
    card: ModelCard

    @property
    def class_names(self) -> tuple[str, ...]:
        return tuple(self.card.class_names)

    @property
    def normalisation(self) -> Normalisation:
        return normalisation_of(self.card.mean, self.card.std, self.card.whitening)

    def predict(self, images: torch.Tensor, device: torch.device | str = "cpu") -> torch.Tensor:
        """The class of every image, N x C x H x W, uint8 or float in [0, 1]."""
        if tuple(images.shape[1:]) != self.card.image_shape:
            raise UserError(f"The network takes images of {self.card.image_shape}, not {tuple(images.shape[1:])}.")
        return predict(self.network, images, normalisation=self.normalisation, device=device)

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> Path:
        target = Path(path)
        if target.is_dir() or (target.exists() and not overwrite):
            raise UserError(f"{target} exists: choose another file or overwrite it.")
        weights = {name: tensor.cpu().contiguous().clone() for name, tensor in self.network.state_dict().items()}
        write_atomic(target, safetensors_bytes(weights, {META: self.card.model_dump_json()}))
        return target


def load_model(path: str | os.PathLike[str], network: nn.Module | None = None) -> Model:
    """A model that `tinyset train` wrote. One of your own architecture needs a `network` to put the weights into."""
    try:
        with safe_open(str(path), framework="pt") as file:
            card = ModelCard.parse(_metadata(file.metadata(), path), str(path))
            names = list(file.keys())
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in names}
            empty = _built(card, path) if network is None else network
            expected = {name: tuple(tensor.shape) for name, tensor in empty.state_dict().items()}
            if shapes != expected:  # compared before a number is read
                raise UserError(f"{path}: its weights are not those of the network {card.network}.")
            weights = {name: file.get_tensor(name) for name in names}
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path} is missing, truncated or not a safetensors file: {error}.") from None
    empty.load_state_dict(weights, assign=network is None)
    return Model(empty.eval(), card)


def _metadata(found: dict[str, str] | None, path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        values = json.loads((found or {})[META])
    except (KeyError, ValueError, RecursionError):
        values = None
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise UserError(f"{path} is not a model of tinyset.")
    return values


def _built(card: ModelCard, path: str | os.PathLike[str]) -> nn.Module:
    """The network without numbers. Code that a file names is not imported, and sizes are bounded."""
    name = card.network.partition(":")[0]
    if name not in list_networks():
        raise UserError(f"{path} holds the weights of {card.network!r}: build it and call load_model(path, network).")
    if max(map(int, re.findall(r"\d+", card.network)), default=0) > LARGEST:
        raise UserError(f"{path}: its network {card.network!r} is too large.")
    channels, height, width = card.image_shape
    try:
        with torch.device("meta"):
            return build(card.network, channels=channels, image_size=(height, width), classes=len(card.class_names))
    except (RuntimeError, ValueError, ArithmeticError) as error:
        raise UserError(f"{path}: its network {card.network!r} cannot be built.") from error
