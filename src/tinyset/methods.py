"""The table of methods: each is a parameterization, an objective, a start, and its paper's hyper-parameters.

Adding a method is one line here, and one file where its objective is new.
"""

from dataclasses import dataclass, field
from typing import Any

from tinyset.config import CondenseConfig, recipe
from tinyset.errors import UserError

SGD: dict[str, Any] = {"optimizer": "sgd", "momentum": 0.5}
DSA = "color_crop_cutout_flip_scale_rotate"


@dataclass(frozen=True)
class Method:
    parameterization: str
    objective: str | None  # None: a selection of real images, nothing is trained
    init: str = "real"
    paper: dict[str, Any] = field(default_factory=dict)  # the paper's settings
    fast: dict[str, Any] = field(default_factory=dict)  # what `--recipe fast` changes, for minutes on a CPU
    protocol: str = "kfs-aug"


METHODS: dict[str, Method] = {
    "random":  Method("pixels", None),
    "herding": Method("pixels", None),
    "kmeans":  Method("pixels", None),
    "dc":   Method("pixels", "gradient", "noise", {**SGD, "steps": 1000, "rates": {"images": 0.1}}),
    "dsa":  Method("pixels", "gradient", "real", {**SGD, "steps": 1000, "rates": {"images": 0.1}, "options": {"augment": DSA}}),
    "dm":   Method("pixels", "distribution", "real",
                   {**SGD, "steps": 20_000, "rates": {"images": 1.0}, "options": {"real": "batch", "augment": DSA, "scale": "sum"}},
                   {"steps": 1000}),
    "cafe": Method("pixels", "features", "noise", {**SGD, "steps": 2000, "rates": {"images": 0.1}, "options": {"augment": DSA}}),
    "mtt":  Method("pixels", "trajectory", "real", {**SGD, "steps": 5000, "rates": {"images": 100.0, "student_rate": 1e-7}}),
    "idc":  Method("tiles", "gradient", "real",
                   {**SGD, "steps": 2000, "rates": {"images": 0.005}, "options": {"distance": "mse", "train_on": "real", "augment": DSA}}),
    "kip":  Method("pixels", "kernel", "real", {"optimizer": "adam", "steps": 1000, "rates": {"images": 0.04, "labels": 0.04}}),
    "kfs":  Method("codes", "distribution", "real", {"optimizer": "adam", "rates": {"codes": 0.1, "decoders": 0.01}}),
}  # fmt: skip


def method(name: str) -> Method:
    if not isinstance(name, str) or name not in METHODS:
        raise UserError(f"Unknown method {name!r}: choose one of {', '.join(METHODS)}.")
    return METHODS[name]


def resolve(recipe_name: str | None, flags: dict[str, Any]) -> CondenseConfig:
    """The settings of a run: the method's, then the recipe's, then the flags that were given."""
    given = {key: value for key, value in flags.items() if value is not None}
    values = recipe(recipe_name) if recipe_name not in (None, "fast", "paper") else {}
    name = given.get("method") or values.get("method") or "kfs"
    point = method(name)
    layers = [
        {"parameterization": point.parameterization, "objective": point.objective, "init": point.init},
        point.paper,
    ]
    if recipe_name == "fast":
        layers.append(point.fast)
    if name == "kfs" and recipe_name in ("fast", "paper"):
        layers.append(recipe(recipe_name))
    merged: dict[str, Any] = {"method": name, "protocol": point.protocol}
    for key in ("rates", "options"):
        if not isinstance(values.get(key) or {}, dict):
            raise UserError(f"recipe {recipe_name}: {key} must be a mapping of names to values.")
    for layer in [*layers, values, given]:
        for key, value in layer.items():
            merged[key] = {**merged.get(key, {}), **(value or {})} if key in ("rates", "options") else value
    if name in METHODS and point.objective is None:
        merged["steps"] = 0
    return CondenseConfig.parse(merged, f"recipe {recipe_name}" if recipe_name else "settings")
