"""Measurements of this machine, made only when asked for: a forecast's rates, and the best chunk size."""

import time
from collections.abc import Callable

import torch

from tinyset.config import CondenseConfig
from tinyset.data.imageset import ImageSet
from tinyset.engine import Embedder, even_chunk
from tinyset.networks import build, reset
from tinyset.plan import Forecast
from tinyset.rng import generator
from tinyset.times import Rates

COMPILED_GAIN = {"forward": 1.3, "step": 1.7}  # over the eager pass: compiling only to measure would take too long
MOST_IMAGES = 32  # of a calibration: it takes about a second


def calibrate(config: CondenseConfig, real: ImageSet, made: Forecast, device: torch.device) -> Rates:
    """Images per second of a few passes; for `torch.compile` those of eager ones times what it is known to give."""
    chunk = min(made.chunk, MOST_IMAGES)
    embed = _embedder(config, real, chunk=chunk, compile=made.runs_on == "kernels", device=device)
    gain = COMPILED_GAIN if made.runs_on == "torch.compile" else {"forward": 1.0, "step": 1.0}
    forward, step = (gain[kind] * rate(embed, real, way_back=kind == "step") for kind in ("forward", "step"))
    return Rates(forward, step)


def tune(
    config: CondenseConfig, real: ImageSet, made: Forecast, device: torch.device, note: Callable[[str], None]
) -> CondenseConfig:
    """`config` with the chunk size written down that was fastest here. Bytes follow from it, so it is never silent."""
    largest = made.chunk if config.chunk is not None else even_chunk(1 << 20, real.image_shape)
    found = {}
    for share in (1, 2, 4):
        chunk = even_chunk(made.chunk, real.image_shape, max(1, largest // share))
        if chunk not in found:
            embed = _embedder(config, real, chunk=chunk, compile=made.runs_on != "torch", device=device)
            found[chunk] = rate(embed, real, way_back=True, rounds=5)
            note(f"--tune: chunk {chunk}: {found[chunk]:.0f} images/s")
    best = max(found, key=lambda chunk: found[chunk])
    note(f"--tune: --chunk {best} from now on; it stands in config.yaml.")
    return config.model_copy(update={"chunk": best})


def rate(embed: Embedder, real: ImageSet, *, way_back: bool, rounds: int = 3) -> float:
    """Images per second of the best of a few rounds, after one that does not count."""
    images = torch.rand(embed.chunk, *real.image_shape, generator=generator(0, "measure")).to(embed.device, embed.dtype)
    images.requires_grad_(way_back)
    best = 0.0
    for number in range(1 + rounds):
        began = time.perf_counter()
        with torch.set_grad_enabled(way_back):
            embedding = embed(images)
        if way_back:
            torch.autograd.grad(embedding.sum(), images)
        if embed.device.type == "cuda":
            torch.cuda.synchronize()
        if number:
            best = max(best, embed.chunk / (time.perf_counter() - began))
    return best


def _embedder(config: CondenseConfig, real: ImageSet, *, chunk: int, compile: bool, device: torch.device) -> Embedder:
    channels, height, width = real.image_shape
    network = build(config.network, channels=channels, image_size=(height, width), classes=real.classes)
    reset(network, generator(0, "measure"))
    return Embedder(network, real.stats, device=device, chunk=chunk, compile=compile, precision=config.precision)
