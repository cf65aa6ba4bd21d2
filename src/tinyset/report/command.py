"""The command that makes a run again, from what its artifact and settings record."""

import shlex
from collections.abc import Mapping
from typing import Any

from tinyset.artifact import ArtifactConfig
from tinyset.config import CondenseConfig, recipes
from tinyset.errors import UserError
from tinyset.methods import resolve

# settings that are no flag of their own name: how they are written, or None where only a recipe file can say them
SPECIAL = {"memory_limit_bytes": "--memory-limit", "time_limit_s": "--time-limit"}
NO_FLAG = ("code_channels", "tile_factor", "pretrain_batch", "pretrain_rate", "decoder_noise", "optimizer", "momentum",
           "decay", "protocol")  # fmt: skip
NOT_THE_RESULT = ("device", "checkpoint_every")


def condense_command(config: ArtifactConfig, settings: Mapping[str, Any], recorded: str | None = None) -> str | None:
    """`recorded` where the run wrote down its own command; else the flags that differ from the recipe."""
    if isinstance(recorded, str) and recorded:
        return recorded
    values = {**config.condense, **settings}
    if not values or not config.source:
        return None
    start = ["tinyset", "condense", config.source, "--out", "RUN"]
    try:  # all of it may be a stranger's: settings are checked, and a recipe that is a path is not opened
        CondenseConfig.parse(values, "settings")
        if config.recipe not in (None, *recipes()):
            return _from_file(start, values)
        usual = resolve(config.recipe, {"method": values.get("method")}).model_dump(mode="json")
    except UserError:
        return _from_file(start, values)
    changed = {
        key: value for key, value in values.items() if key in usual and usual[key] != value and value is not None
    }
    if any(key in NO_FLAG for key in changed) or isinstance(values.get("images_per_class"), dict):
        return _from_file(start, values)
    words = [*start, *(["--recipe", config.recipe] if config.recipe not in (None, "plain") else [])]
    if usual["method"] != resolve(config.recipe, {}).method:
        words += ["--method", usual["method"]]
    for key, value in changed.items():
        if key not in NOT_THE_RESULT:
            words += _flag(key, value, usual.get(key))
    return shlex.join(words)


def _flag(key: str, value: Any, usual: Any) -> list[str]:
    if key in ("options", "rates"):
        flag = "--option" if key == "options" else "--rate"
        return [word for k, v in value.items() if (usual or {}).get(k) != v for word in (flag, f"{k}={v}")]
    if isinstance(value, list):
        value = ",".join(map(str, value))
    return [SPECIAL.get(key, f"--{key.replace('_', '-')}"), str(value)]


def _from_file(start: list[str], values: Mapping[str, Any]) -> str:
    """Settings without a flag: the resolved `config.yaml` of the run is a recipe."""
    return shlex.join([*start, "--recipe", "config.yaml", "--seed", str(values.get("seed", 0))])
