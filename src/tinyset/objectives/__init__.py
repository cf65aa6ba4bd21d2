"""What synthetic images are asked to match, by name. A class is imported when it is asked for."""

from importlib import import_module
from typing import TYPE_CHECKING

from tinyset.config import CondenseConfig, Settings
from tinyset.errors import UserError

if TYPE_CHECKING:
    from tinyset.objectives.base import Objective

OBJECTIVES: dict[str, str] = {
    "distribution": "tinyset.objectives.distribution:DistributionMatching",
    "gradient": "tinyset.objectives.gradient:GradientMatching",
    "features": "tinyset.objectives.features:FeatureAlignment",
    "trajectory": "tinyset.objectives.trajectory:TrajectoryMatching",
    "kernel": "tinyset.objectives.kernel:KernelRegression",
    "regression": "tinyset.objectives.regression:Regression",
}


def objective_class(name: str) -> type["Objective"]:
    if name not in OBJECTIVES:
        raise UserError(f"Unknown objective {name!r}: choose one of {', '.join(OBJECTIVES)}.")
    module, _, attribute = OBJECTIVES[name].partition(":")
    found: type[Objective] = getattr(import_module(module), attribute)
    return found


def objective_of(config: CondenseConfig) -> tuple[type["Objective"] | None, Settings | None]:
    """What the settings ask for, and its own options."""
    if config.objective is None:
        return None, None
    kind = objective_class(config.objective)
    fields = kind.Options.model_fields
    values = {key: getattr(config, key) for key in ("networks", "real_per_class", "batch") if key in fields}
    return kind, kind.Options.parse(values | config.options, f"options of the {config.objective} objective")
