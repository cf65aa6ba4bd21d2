"""From a name on the command line to a network."""

import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tinyset.errors import UserError
from tinyset.files import sha256_file
from tinyset.networks.base import reset
from tinyset.networks.classic import MLP, AlexNet, LeNet
from tinyset.networks.convnet import ConvNet
from tinyset.networks.densenet import DenseNet121
from tinyset.networks.resnet import ResNet
from tinyset.networks.vgg import VGG11
from tinyset.networks.vit import ViT
from tinyset.rng import generator, seeded_globals

Factory = Callable[..., nn.Module]

NETWORKS: dict[str, Factory] = {
    "convnet": ConvNet,
    "mlp": MLP,
    "lenet": LeNet,
    "alexnet": AlexNet,
    "vgg11": VGG11,
    "resnet10": partial(ResNet, stages=(1, 1, 1, 1)),
    "resnet18": partial(ResNet, stages=(2, 2, 2, 2)),
    "densenet121": DenseNet121,
    "vit": ViT,
}


def list_networks() -> list[str]:
    return [f"convnet{depth}" for depth in range(1, 6)] + sorted(set(NETWORKS) - {"convnet"})


def build(spec: str, *, channels: int, image_size: tuple[int, int], classes: int, seed: int = 0) -> nn.Module:
    """The network `spec` names, with weights still to be drawn by `reset` (a user's factory: drawn under `seed`)."""
    name, options = _parse(spec)
    shape: dict[str, Any] = {"channels": channels, "image_size": image_size, "classes": classes}
    if name in NETWORKS:
        try:
            with seeded_globals(seed, "factory"):  # torch's layers draw at construction; the user's state stays
                return NETWORKS[name](**shape, **options)
        except TypeError as error:
            raise UserError(f"The network {spec!r} does not take these options: {error}.") from error
    factory = _user_factory(spec)
    try:
        with seeded_globals(seed, "factory"):
            network = factory(**shape)
    except TypeError as error:
        raise UserError(f"{spec} must be callable as factory(channels=, image_size=, classes=): {error}.") from error
    _check_logits(spec, network, channels, image_size, classes)
    return network


def redraw(
    network: nn.Module, spec: str, seed: int, *, channels: int, image_size: tuple[int, int], classes: int
) -> None:
    """New weights for a network of `build`, in place: what was compiled for it stays.

    `reset` knows our modules; a user's factory is called again under the seed, whatever its modules are.
    """
    if _parse(spec)[0] in NETWORKS:
        reset(network, generator(seed, "weights"))
    else:
        fresh = build(spec, channels=channels, image_size=image_size, classes=classes, seed=seed)
        network.load_state_dict(fresh.state_dict())


def identity(spec: str) -> str:
    """`spec`, and for a user's factory a hash of its source file: an edited network is another network."""
    if _parse(spec)[0] in NETWORKS:
        return spec
    try:
        source = inspect.getsourcefile(inspect.unwrap(_user_factory(spec)))
    except TypeError:  # neither a function nor a class
        source = None
    return f"{spec}@{sha256_file(Path(source))[:16]}" if source and Path(source).exists() else spec


def _parse(spec: str) -> tuple[str, dict[str, Any]]:
    name, _, rest = spec.partition(":")
    options: dict[str, Any] = {}
    if match := re.fullmatch(r"convnet(\d+)", name):
        name, options["depth"] = "convnet", int(match[1])
    if name in NETWORKS and rest:
        for item in rest.split(","):
            key, equals, value = item.partition("=")
            if not equals:
                raise UserError(f"Write network options as key=value, not {item!r} in {spec!r}.")
            options[key.strip()] = _value(value.strip())
    return name, options


def _value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def _user_factory(spec: str) -> Factory:
    module_name, colon, attribute = spec.partition(":")
    if not colon or not attribute:
        raise UserError(
            f"Unknown network {spec!r}: choose one of {', '.join(list_networks())}, or give package.module:factory."
        )
    if os.getcwd() not in sys.path:  # a file beside the user: `python -m` would find it, a console script does not
        sys.path.append(os.getcwd())
    try:
        factory = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise UserError(f"Cannot find the network factory {spec!r}: {error}.") from error
    if not callable(factory):
        raise UserError(f"{spec} is not callable.")
    return factory


@torch.no_grad()
def _check_logits(spec: str, network: nn.Module, channels: int, image_size: tuple[int, int], classes: int) -> None:
    if not isinstance(network, nn.Module):
        raise UserError(f"{spec} must return a torch.nn.Module, not {type(network).__name__}.")
    was_training = network.training
    try:
        logits = network.eval()(torch.zeros(2, channels, *image_size))
    except Exception as error:
        raise UserError(
            f"The network of {spec} fails on a {channels}x{image_size[0]}x{image_size[1]} image: "
            f"{' '.join(str(error).split())[:200].rstrip('.')}."
        ) from error
    finally:
        network.train(was_training)
    if not isinstance(logits, torch.Tensor):
        raise UserError(f"The network of {spec} must give a tensor of logits, not a {type(logits).__name__}.")
    if tuple(logits.shape) != (2, classes):
        raise UserError(
            f"The network of {spec} must give logits of shape (batch, {classes}), not {tuple(logits.shape)}."
        )
