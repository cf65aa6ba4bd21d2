"""From a name on the command line to a network."""

import importlib
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tinyset.errors import UserError
from tinyset.networks.convnet import ConvNet
from tinyset.rng import seeded_globals

Factory = Callable[..., nn.Module]

NETWORKS: dict[str, Factory] = {"convnet": ConvNet}


def list_networks() -> list[str]:
    return [f"convnet{depth}" for depth in range(1, 6)] + sorted(set(NETWORKS) - {"convnet"})


def build(spec: str, *, channels: int, image_size: tuple[int, int], classes: int) -> nn.Module:
    """The network `spec` names, with weights still to be drawn by `reset` (a user's factory: drawn under seed 0)."""
    name, options = _parse(spec)
    shape: dict[str, Any] = {"channels": channels, "image_size": image_size, "classes": classes}
    if name in NETWORKS:
        try:
            return NETWORKS[name](**shape, **options)
        except TypeError as error:
            raise UserError(f"The network {spec!r} does not take these options: {error}.") from error
    factory = _user_factory(spec)
    try:
        with seeded_globals(0, "factory", spec):
            network = factory(**shape)
    except TypeError as error:
        raise UserError(f"{spec} must be callable as factory(channels=, image_size=, classes=): {error}.") from error
    _check_logits(spec, network, channels, image_size, classes)
    return network


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
            options[key.strip()] = int(value) if value.strip().lstrip("-").isdigit() else value.strip()
    return name, options


def _user_factory(spec: str) -> Factory:
    module_name, colon, attribute = spec.partition(":")
    if not colon or not attribute:
        raise UserError(
            f"Unknown network {spec!r}: choose one of {', '.join(list_networks())}, or give package.module:factory."
        )
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
        raise UserError(f"The network of {spec} fails on a {channels}x{image_size[0]}x{image_size[1]} image: {error}.") from error
    finally:
        network.train(was_training)
    if tuple(logits.shape) != (2, classes):
        raise UserError(f"The network of {spec} must give logits of shape (batch, {classes}), not {tuple(logits.shape)}.")
