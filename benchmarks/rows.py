"""The rows: what is timed against what, and what is asked of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks.turns import Round, take_turns

Measured = tuple[float, dict[str, float]]  # the value, and the plain numbers behind it


@dataclass(frozen=True)
class Row:
    name: str
    value: float
    target: float
    met: bool
    what: str
    lower_is_better: bool = False
    why: str = ""  # of a miss
    details: dict[str, float] = field(default_factory=dict)


def ratio(fast: Sequence[Round], slow: Sequence[Round]) -> float:
    """The median over the rounds of the ratio of two rates measured one after the other."""
    return median(a.rate / b.rate for a, b in zip(fast, slow, strict=True))


def rate(rounds: Sequence[Round]) -> float:
    return round(median(r.rate for r in rounds), 1)


def against(fast: str, slow: str, rounds: int, **options: Any) -> Measured:
    a, b = take_turns((fast, options), (slow, {}), rounds=rounds)
    return ratio(a, b), {"images_per_s": rate(a), "plain_images_per_s": rate(b)}


def step() -> Measured:
    return against("step.ours", "step.plain", 5)


def gemm() -> Measured:
    from benchmarks.contenders.gemm import SIZES
    from benchmarks.contenders.shapes import CLASSES, IMAGE, NETWORK, convolution_flops
    from tinyset.networks import build

    flops = 2 * convolution_flops(build(NETWORK, channels=3, image_size=IMAGE[1:], classes=CLASSES))
    ours, *products = take_turns(("step.ours", {}), *(("gemm.square", {"size": n}) for n in SIZES), rounds=5)
    best = [max(turn, key=lambda r: r.rate) for turn in zip(*products, strict=True)]
    value = median(a.rate * flops / b.rate for a, b in zip(ours, best, strict=True))
    return value, {"step_gflops": round(rate(ours) * flops / 1e9, 1), "gemm_gflops": round(rate(best) / 1e9, 1)}


def bank() -> Measured:
    return against("bank.ours", "bank.plain", 5)


def evaluate() -> Measured:
    return against("evaluate.ours", "evaluate.plain", 5)


def decode() -> Measured:
    return against("decode.ours", "decode.png", 7)


def memory() -> Measured:
    """Two processes that do one step each, started one after the other."""
    ((small,),) = take_turns(("step.ours", {"codes": 13, "decoders": 8, "warm": False}), rounds=1)
    ((large,),) = take_turns(("step.ours", {"codes": 200, "decoders": 16, "warm": False}), rounds=1)
    return large.peak_bytes / small.peak_bytes, {"bytes": large.peak_bytes, "bytes_at_1040": small.peak_bytes}


def linear() -> Measured:
    large, small = take_turns(("step.ours", {"codes": 160, "decoders": 10, "warm": False}), ("step.ours", {}), rounds=3)
    return ratio(small, large), {"images_per_s": rate(large), "images_per_s_at_1040": rate(small)}


def pairs() -> Measured:
    full = {"codes": 160, "decoders": 12}
    sampled, whole = take_turns(("step.ours", {**full, "batch": 104}), ("step.ours", {**full, "warm": False}), rounds=3)
    value = median(b.seconds / a.seconds for a, b in zip(sampled, whole, strict=True))
    seconds = {"sampled_seconds": sampled, "full_seconds": whole}
    return value, {key: round(median(r.seconds for r in rounds), 2) for key, rounds in seconds.items()}


def cache() -> Measured:
    again, first = take_turns(("folder.again", {}), ("folder.first", {}), rounds=5)
    return ratio(again, first), {"images_per_s": rate(again), "first_images_per_s": rate(first)}


# name: (measure, target, lower is better, what is measured)
TABLE: dict[str, tuple[Callable[[], Measured], float, bool, str]] = {
    "step": (step, 2.5, False, "matching step, 1,040 synthetic images: over the plain eager step"),
    "gemm": (gemm, 0.70, False, "the same: convolution flops over the matrix-multiply rate"),
    "bank": (bank, 2.5, False, "bank images/s: over the plain eager forward pass"),
    "evaluate": (evaluate, 2.0, False, "training epoch: over DataLoader + eager"),
    "decode": (decode, 20.0, False, "decoded images/s: over reading PNG files with Pillow"),
    "memory": (memory, 1.3, True, "peak memory of an exact step: 32,000 images over 1,040"),
    "linear": (linear, 1.15, True, "time per synthetic image: 16,000 over 1,040"),
    "cache": (cache, 10.0, False, "a folder's second start: over its first decode"),
    "pairs": (pairs, 10.0, False, "full-batch step over the sampled step: 19,200 against 1,040 of them"),
}

# A miss keeps its value; the reason is found by hand and kept here until it is gone.
WHY: dict[str, str] = {}
UNEXPLAINED = "slower than on the machine of docs/engine.md, or the machine was busy: see load_average."


def measured(name: str) -> Row:
    measure, target, lower, what = TABLE[name]
    value, details = measure()
    met = value < target if lower else value >= target
    why = "" if met else WHY.get(name, UNEXPLAINED)
    return Row(name, round(value, 3), target, met, what, lower, why, details)


def _row(name: str) -> Callable[[], Row]:
    return lambda: measured(name)


ROWS: dict[str, Callable[[], Row]] = {name: _row(name) for name in TABLE}
