"""How long a forecast run will take, from two measured rates (`tuning.calibrate`).

A forecast: other processes, heat and caches are not in it.
"""

from dataclasses import dataclass, replace

from tinyset.config import CondenseConfig
from tinyset.data.imageset import ImageSet
from tinyset.plan import Forecast, regression_options

COMPILE_S = {"torch": 0.0, "kernels": 3.0, "torch.compile": 60.0}
PRETRAIN_PIXELS_PER_S = 25e6  # of the auto-encoder on two cores
LEARNING = 1.5  # a step of a network's weights, in steps back to the image


@dataclass(frozen=True)
class Rates:
    """Images per second of the network on this machine."""

    forward: float
    step: float  # forward, and back to the image


def with_times(made: Forecast, config: CondenseConfig, real: ImageSet, rates: Rates) -> Forecast:
    """The forecast with seconds, where the work of the objective is known: distribution matching and the regression."""
    if config.objective not in ("distribution", "regression"):
        return made
    per_image = 1 / rates.step + (made.passes - 1) / rates.forward
    pixels = real.image_shape[1] * real.image_shape[2]
    pretrained = config.parameterization == "codes" and config.start is None
    seconds = {
        "auto-encoder": pretrained * config.pretrain_steps * config.pretrain_batch * pixels / PRETRAIN_PIXELS_PER_S,
        "compilation": COMPILE_S[made.runs_on],
        "bank": made.bank_images / rates.forward,
    }
    if config.objective == "distribution":
        seconds["steps"] = made.steps * made.images_per_step * per_image
    else:
        own = regression_options(config)
        matched = made.synthetic_images if own.batch == "full" else own.batch * real.classes
        matching = min(own.matching_steps, made.steps)
        learned = own.pool_steps * made.images_learned
        looked = made.images_per_step * per_image + (own.real_batch + own.context) / rates.forward
        seconds["matching"] = matching * min(matched, made.synthetic_images) * per_image
        seconds["steps"] = (made.steps - matching) * (looked + learned * LEARNING / rates.step)
    return replace(made, seconds={name: round(value, 1) for name, value in seconds.items()})
