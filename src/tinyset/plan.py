"""What a run will store, hold in memory and take, said before it starts; a plan that does not fit is refused.

Arithmetic on shapes; `times.py` adds how long it will take.
"""

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from tinyset.budget import HEADER_BYTES, NUMBER_BYTES, CodePlan
from tinyset.config import CondenseConfig
from tinyset.data.imageset import ImageSet
from tinyset.engine import COMPILE_FROM_IMAGES, Embedder, even_chunk
from tinyset.errors import UserError
from tinyset.networks import build
from tinyset.objectives import objective_of
from tinyset.objectives.regression import RegressionOptions

PROGRAM_BYTES = 300_000_000  # Python, torch and this library
COMPILER_BYTES = 350_000_000  # torch.compile and what it leaves behind
STATE_BYTES = 4 + 4 + 8 + 8  # of a learned number: itself, its gradient, its class's gradient (float64), Adam's moments
FLEETING = 0.5  # of the kept activations of a chunk, beside them, while it is worked on
HASH_BYTES = 20  # a network's weight hash in the bank

Sizes = CodePlan | tuple[int, ...]  # what `starts.plan` gives


@dataclass(frozen=True)
class Memory:
    """The peak in bytes, in parts."""

    program: int
    data: int
    parameters: int
    activations: int

    @property
    def total(self) -> int:
        return self.program + self.data + self.parameters + self.activations

    @property
    def still_needed(self) -> int:
        """What a process that has the data and this library in memory will ask for."""
        return self.parameters + self.activations


@dataclass(frozen=True)
class Forecast:
    stores: str
    synthetic_images: int
    stored_numbers: int
    params_per_class: float
    artifact_bytes: int
    steps: int
    networks: int
    bank_bytes: int
    bank_images: int  # real images to embed where nothing is stored yet
    images_per_step: int
    images_learned: int  # at once, by a network of the regression's pool
    passes: int  # over a class's images per step
    chunk: int
    runs_on: str  # kernels, torch.compile or torch
    bytes_per_image: int  # of activations that autograd keeps; 0: not foreseen for this objective
    memory: Memory
    seconds: dict[str, float] | None = None  # None: not foreseen

    def as_json(self) -> dict[str, Any]:
        peak = {"peak_memory_bytes": self.memory.total, "available_memory_bytes": available_memory_bytes()}
        return asdict(self) | peak

    def lines(self) -> list[str]:
        """For people."""
        said = [
            f"stores    {self.stores}",
            f"          {self.stored_numbers:,} numbers, about {self.artifact_bytes:,} bytes; "
            f"they make {self.synthetic_images:,} synthetic images",
            f"steps     {self.steps:,} of {self.images_per_step:,} synthetic images, "
            f"{'one pass' if self.passes == 1 else 'two passes'} per class in chunks of {self.chunk}"
            f", on {self.runs_on}",
            f"bank      {self.networks:,} networks, {gigabytes(self.bank_bytes)}, {self.bank_images:,} embeddings of "
            "real images where nothing is stored yet",
            f"memory    {'about' if self.bytes_per_image else 'more than'} {gigabytes(self.memory.total)} at the peak; "
            f"{gigabytes(available_memory_bytes() or 0)} are free",
        ]
        if self.seconds is None:
            return [*said, "time      not foreseen for this objective"]
        parts = ", ".join(f"{name} {span(value)}" for name, value in self.seconds.items())
        return [*said, f"time      about {span(sum(self.seconds.values()))} on this machine as it is now: {parts}"]


def synthetic_counts(config: CondenseConfig, sizes: Sizes) -> tuple[int, ...]:
    """Synthetic images of each class."""
    if isinstance(sizes, CodePlan):
        return tuple(count * sizes.decoders for count in sizes.codes)
    return tuple(count * (config.tile_factor**2 if config.parameterization == "tiles" else 1) for count in sizes)


def worth_compiling(config: CondenseConfig, real: ImageSet, counts: tuple[int, ...]) -> bool:
    """A fixed rule of the settings, so that the same command gives the same bytes."""
    if config.compile != "auto":
        return config.compile == "always"
    return (
        config.steps * _per_step(config, counts) + config.networks * _per_network(config, real) >= COMPILE_FROM_IMAGES
    )


def forecast(config: CondenseConfig, real: ImageSet, sizes: Sizes) -> Forecast:
    channels, height, width = real.image_shape
    counts, numbers = synthetic_counts(config, sizes), _stored_numbers(sizes, real)
    compiled = worth_compiling(config, real, counts)
    runs_on, kept, features = "torch", 0, 0
    if config.objective in ("distribution", "regression"):
        runs_on, kept, features = _engine(config, real, compiled)
    held = _held(config, counts)
    passes = 1 if held * kept <= config.memory_limit_bytes else 2
    chunk = even_chunk(held, real.image_shape, config.chunk)
    uses_bank = _uses_bank(config)
    learned = min(regression_options(config).pool_batch, held) if config.objective == "regression" else 0
    at_once = max((held if passes == 1 else chunk) + FLEETING * chunk, (1 + FLEETING) * learned)
    return Forecast(
        stores=sizes.describe()
        if isinstance(sizes, CodePlan)
        else f"{sum(sizes)} images of {channels}x{height}x{width}",
        synthetic_images=sum(counts),
        stored_numbers=numbers,
        params_per_class=numbers / real.classes,
        artifact_bytes=numbers * NUMBER_BYTES[config.storage] + HEADER_BYTES,
        steps=config.steps,
        networks=config.networks if uses_bank else 0,
        bank_bytes=bank_bytes(config.networks, real.classes, features) if uses_bank else 0,
        bank_images=config.networks * _per_network(config, real) if uses_bank else 0,
        images_per_step=_per_step(config, counts),
        images_learned=learned,
        passes=passes,
        chunk=chunk,
        runs_on=runs_on,
        bytes_per_image=kept,
        memory=Memory(
            program=PROGRAM_BYTES + COMPILER_BYTES * (runs_on == "torch.compile"),
            data=real.images.numel(),
            parameters=numbers * STATE_BYTES,
            activations=int(at_once * kept),
        ),
    )


def bank_bytes(networks: int, classes: int, features: int) -> int:
    """CIFAR-100 under 20,000 ConvNet-3: 100 x 2,048 float32 each, 16 GB."""
    return networks * (classes * features * 4 + HASH_BYTES)


def refuse_what_does_not_fit(made: Forecast, config: CondenseConfig, available: int | None) -> None:
    """Raise with the flags that would make it fit. `available`: of `available_memory_bytes`; None: nobody knows."""
    if available is None or made.memory.still_needed <= available:
        return
    sentence = (
        f"This plan needs about {gigabytes(made.memory.still_needed)} of memory and {gigabytes(available)} are free: "
    )
    room = available - made.memory.parameters
    per_chunked = (1 + FLEETING) * made.bytes_per_image
    if made.images_learned * per_chunked > room and (fewer := int(room / per_chunked)) >= 1:
        raise UserError(sentence + f"--option pool_batch={fewer} comes first.")
    if made.passes == 1 and made.chunk * per_chunked <= room:
        limit = max(1, int(made.chunk * made.bytes_per_image / 1e6))
        raise UserError(sentence + f"--memory-limit {limit}MB takes two passes instead of one, and fits.")
    if (chunk := int(room / per_chunked)) >= 1:
        lower = "" if made.passes == 2 else f" --memory-limit {max(1, int(chunk * made.bytes_per_image / 1e6))}MB"
        raise UserError(sentence + f"--chunk {chunk}{lower} fits.")
    raise UserError(sentence + "choose fewer --images-per-class or a narrower --network.")


def available_memory_bytes(device: str = "cpu", meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """What could be had now without swapping; all memory where the system does not say; None where nothing is known."""
    if device == "cuda":
        return torch.cuda.mem_get_info()[0]
    try:
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


def span(seconds: float) -> str:
    return (
        f"{seconds / 3600:.1f} h"
        if seconds >= 5400
        else f"{seconds / 60:.0f} min"
        if seconds >= 90
        else f"{seconds:.0f} s"
    )


def _engine(config: CondenseConfig, real: ImageSet, compiled: bool) -> tuple[str, int, int]:
    """What the embedding runs on, bytes of activations of one image, and its number of features."""
    channels, height, width = real.image_shape
    network = build(config.network, channels=channels, image_size=(height, width), classes=real.classes)
    embed = Embedder(
        network, real.stats, device=torch.device("cpu"), chunk=1, compile=compiled, precision=config.precision
    )
    with torch.no_grad():
        features = network.features(torch.zeros(1, *real.image_shape)).shape[1]  # type: ignore[operator]
    return embed.runs_on, embed.activation_bytes(real.image_shape), features


def regression_options(config: CondenseConfig) -> RegressionOptions:
    _, options = objective_of(config)
    assert isinstance(options, RegressionOptions)
    return options


def _uses_bank(config: CondenseConfig) -> bool:
    if config.objective == "regression":
        return regression_options(config).matching_steps > 0
    return config.objective == "distribution" and config.options.get("real", "bank") == "bank"


def _held(config: CondenseConfig, counts: tuple[int, ...]) -> int:
    """Images whose activations one pass keeps at once: those of a class and step, or of all classes for a regression."""
    if config.objective == "regression":
        return _per_step(config, counts)
    return max(counts) if config.batch == "full" else min(config.batch, max(counts))


def _per_step(config: CondenseConfig, counts: tuple[int, ...]) -> int:
    if config.objective == "regression":
        return min(regression_options(config).synthetic_batch or sum(counts), sum(counts))
    return sum(n if config.batch == "full" else min(config.batch, n) for n in counts)


def _per_network(config: CondenseConfig, real: ImageSet) -> int:
    return sum(min(config.real_per_class or n, n) for n in real.counts)


def _stored_numbers(sizes: Sizes, real: ImageSet) -> int:
    if isinstance(sizes, CodePlan):
        return round(sizes.params_per_class * real.classes)
    channels, height, width = real.image_shape
    return sum(sizes) * channels * height * width
