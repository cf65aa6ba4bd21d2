"""The table of methods: each is a parameterization, an objective, a start, and its paper's hyper-parameters.

Adding a method is one line here, and one file where its objective is new.
"""

from dataclasses import dataclass, field
from typing import Any

from tinyset.config import BUDGETS, CondenseConfig, recipe
from tinyset.errors import UserError

# papers step on normalised pixels: an SGD rate r of theirs is r std^2 of ours, and std is about 0.2 (docs/methods)
STD2 = 0.2**2
SGD: dict[str, Any] = {"optimizer": "sgd", "momentum": 0.5}
DSA = "color_crop_cutout_flip_scale_rotate"
# the plain schedules share a narrow network, Adam, and rates that fall to zero over the last half
NARROW: dict[str, Any] = {"network": "convnet3:width=32"}
SHORT: dict[str, Any] = {**NARROW, "optimizer": "adam", "rates": {"images": 0.03}, "decay": 0.5, "compile": "never"}


@dataclass(frozen=True)
class Method:
    parameterization: str
    objective: str | None  # None: a selection of real images, nothing is trained
    init: str = "real"
    paper: dict[str, Any] = field(default_factory=dict)  # the paper's settings
    plain: dict[str, Any] = field(default_factory=dict)  # what `--recipe plain` changes, for minutes on a CPU
    protocol: str = "kfs-aug"


METHODS: dict[str, Method] = {
    "random":  Method("pixels", None),
    "herding": Method("pixels", None, plain=NARROW),
    "kmeans":  Method("pixels", None, plain=NARROW),
    "dc":   Method("pixels", "gradient", "noise", {**SGD, "steps": 1000, "rates": {"images": 0.1 * STD2}},
                   {**SHORT, "options": {"pool": 20, "real_batch": 64}}),
    "dsa":  Method("pixels", "gradient", "real",
                   {**SGD, "steps": 1000, "rates": {"images": 0.1 * STD2}, "options": {"augment": DSA}},
                   {**SHORT, "options": {"pool": 20, "real_batch": 64}}),
    "dm":   Method("pixels", "distribution", "real",
                   {**SGD, "steps": 20_000, "rates": {"images": 1.0 * STD2},
                    "options": {"real": "batch", "augment": DSA, "scale": "sum"}},
                   {**SHORT, "steps": 1000, "compile": "auto", "options": {"real_batch": 32}}),
    "cafe": Method("pixels", "features", "noise",
                   {**SGD, "steps": 2000, "rates": {"images": 0.1 * STD2}, "options": {"augment": DSA}},
                   {**SHORT, "init": "real",
                    "options": {"shallow_weight": 0.01, "discrimination": 0.1, "real_batch": 32, "query": 4, "window": 3,
                                "inner_limit": 2, "outer_limit": 10}}),
    "mtt":  Method("pixels", "trajectory", "real",
                   {**SGD, "steps": 5000, "rates": {"images": 100 * STD2, "student_rate": 1e-7},
                    "options": {"experts": 100, "augment": DSA}},
                   {**SHORT, "rates": {"images": 0.03, "student_rate": 5e-4},
                    "options": {"experts": 4, "epoch_steps": 15, "expert_batch": 64, "expert_rate": 0.03,
                                "student_steps": 8, "student_rate": 0.02, "augment": "none"}}),
    "idc":  Method("tiles", "gradient", "real",
                   {**SGD, "steps": 2000, "rates": {"images": 0.005},
                    "options": {"distance": "mse", "layers": "conv", "train_on": "real", "augment": DSA, "outer": 100, "inner": 8,
                                "real_batch": 64, "synthetic_batch": 128, "network_batch": 64, "network_momentum": 0.9,
                                "network_decay": 5e-4}},
                   {**SHORT, "options": {"outer": 10, "inner": 4, "pool": 20, "real_batch": 32}}),
    "kip":  Method("pixels", "kernel", "real", {"optimizer": "adam", "steps": 1000, "rates": {"images": 0.008, "labels": 0.04}},
                   {**SHORT, "compile": "auto", "rates": {"images": 0.01}, "networks": 20, "real_per_class": 300, "options": {"real": "moments"}}),
    "kfs":  Method("codes", "distribution", "real", {"optimizer": "adam", "rates": {"codes": 0.1, "decoders": 0.01}}),
    # no paper's: the codes of KFS, asked to teach the networks of FRePo
    "kfr":  Method("codes", "regression", "real",
                   {**NARROW, "optimizer": "adam", "rates": {"codes": 0.02, "decoders": 0.002}, "decay": 0.5, "steps": 1200,
                    "networks": 60, "real_per_class": 500, "pretrain_steps": 1000, "options": {"matching_steps": 400}}, protocol="kfs-cutmix"),
}  # fmt: skip


def method(name: str) -> Method:
    if not isinstance(name, str) or name not in METHODS:
        raise UserError(f"Unknown method {name!r}: choose one of {', '.join(METHODS)}.")
    return METHODS[name]


def resolve(recipe_name: str | None, flags: dict[str, Any]) -> CondenseConfig:
    """The settings of a run: the method's, then the recipe's, then the flags that were given."""
    given = {key: value for key, value in flags.items() if value is not None}
    if recipe_name == "fast" and given.get("method", "kfr") != "kfr":
        recipe_name = "plain"  # `fast` is made for one method
    values = recipe(recipe_name) if recipe_name not in (None, "plain", "paper") else {}
    name = given.get("method") or values.get("method") or "kfs"
    point = method(name)
    layers = [
        {"parameterization": point.parameterization, "objective": point.objective, "init": point.init},
        point.paper,
    ]
    if recipe_name == "plain":
        layers.append(point.plain)
    if name == "kfs" and recipe_name in ("plain", "paper"):
        layers.append(recipe(recipe_name))
    merged: dict[str, Any] = {"method": name, "protocol": point.protocol}
    for key in ("rates", "options"):
        if not isinstance(values.get(key) or {}, dict):
            raise UserError(f"recipe {recipe_name}: {key} must be a mapping of names to values.")
    for layer in [*layers, values, given]:
        for key, value in layer.items():
            merged[key] = {**merged.get(key, {}), **(value or {})} if key in ("rates", "options") else value
    if point.objective is None:
        merged["steps"] = 0
    if all(merged.get(budget) is None for budget in BUDGETS):
        merged["images_per_class"] = 1
    return CondenseConfig.parse(merged, f"recipe {recipe_name}" if recipe_name else "settings")
