"""From a storage budget to a number of codes and decoders, by the paper's arithmetic; and the ledger of what was spent.

Legend: C classes, M codes per class, D decoders, P parameters of a decoder, S numbers in a code.

    M = round((budget - D P / C) / S), at most 3 % over the nominal budget          (numbers per class)

The paper's ten settings follow from two rules: Low-R decoders below 100,000 numbers per class and High-R above; 8 decoders
below 30,000 numbers per class, 12 below 100,000, 16 above.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tinyset.errors import UserError

FACTOR = {"low": 8, "high": 4}  # pixels per code position, each way
MOST_OVER = 1.03  # the paper goes at most 2.88 % over the nominal budget
MOST_DECODER_SHARE = 0.2  # the paper's largest share is 19 % (10 classes at 1 image each)
HEADER_BYTES = 1024  # safetensors header of an artifact, rounded up
NUMBER_BYTES = {"float32": 4, "float16": 2, "int8": 1}


@dataclass(frozen=True)
class CodePlan:
    """What the codes x decoders parameterization will store."""

    decoder: str  # low | high
    channels: tuple[int, ...]  # of the code, of each hidden map, of the image: 12, 9, 6, 3
    code_shape: tuple[int, int, int]
    codes: tuple[int, ...]  # M of each class
    decoders: int
    nominal: tuple[int, ...]  # the budget of each class in numbers
    families: int = 1  # each with so many decoders, and an equal part of the codes

    @property
    def decoder_parameters(self) -> int:
        return decoder_parameters(self.channels)

    @property
    def params_per_class(self) -> float:
        """The mean over classes of all stored numbers, decoders shared equally."""
        decoders = self.families * self.decoders
        total = sum(self.codes) * math.prod(self.code_shape) + decoders * self.decoder_parameters
        return total / len(self.codes)

    @property
    def overhead_percent(self) -> float:
        return overhead_percent(self.params_per_class, sum(self.nominal) / len(self.nominal))

    def describe(self) -> str:
        codes = f"{self.codes[0]}" if len(set(self.codes)) == 1 else f"{min(self.codes)} to {max(self.codes)}"
        shape = "x".join(str(n) for n in self.code_shape)
        families = f" in {self.families} families" if self.families > 1 else ""
        return (
            f"{codes} codes of {shape} per class{families} x {self.decoders} {self.decoder}-resolution decoders of "
            f"{self.decoder_parameters} parameters: {self.params_per_class:.1f} numbers per class, "
            f"{self.overhead_percent:+.2f} % of the budget"
        )


def overhead_percent(params_per_class: float, nominal: float) -> float:
    return 100 * (params_per_class / nominal - 1)


def decoder_channels(decoder: str, image_channels: int, code_channels: int | None) -> tuple[int, ...]:
    """12-9-6-3 (Low-R) and 12-6-3 (High-R) for RGB; other channel counts keep the proportions 4-3-2-1 and 4-2-1."""
    first = code_channels or 4 * image_channels
    hidden = (3 * first // 4, first // 2) if decoder == "low" else (first // 2,)
    return (first, *(max(1, n) for n in hidden), image_channels)


def decoder_parameters(channels: Sequence[int]) -> int:
    """Weights and biases of the 2x2 transposed convolutions: 738 for Low-R and 369 for High-R on RGB."""
    return sum(4 * a * b + b for a, b in pairwise(channels))


def nominal_budget(
    class_names: Sequence[str],
    image_shape: tuple[int, int, int],
    *,
    images_per_class: int | Sequence[int] | Mapping[str, int] | None = None,
    params_per_class: int | None = None,
) -> tuple[int, ...]:
    """The budget of each class in numbers."""
    classes, image = len(class_names), math.prod(image_shape)
    if params_per_class is not None:
        return (params_per_class,) * classes
    if images_per_class is None:
        images_per_class = 1
    return tuple(n * image for n in per_class(images_per_class, class_names))


def per_class(value: int | Sequence[int] | Mapping[str, int], class_names: Sequence[str]) -> tuple[int, ...]:
    """One number for all classes, a list in class order, or a map from class name ("*": all the others)."""
    if isinstance(value, Mapping):
        unknown = set(value) - set(class_names) - {"*"}
        if unknown:
            raise UserError(f"images_per_class names unknown classes: {', '.join(sorted(unknown))}.")
        missing = [name for name in class_names if name not in value and "*" not in value]
        if missing:
            raise UserError(f"images_per_class has no entry for {missing[0]!r}; '*' stands for all the others.")
        return tuple(value[name] if name in value else value["*"] for name in class_names)
    if isinstance(value, int):
        return (value,) * len(class_names)
    if len(value) == 1:
        return (value[0],) * len(class_names)
    if len(value) != len(class_names):
        raise UserError(f"--images-per-class lists {len(value)} numbers for {len(class_names)} classes.")
    return tuple(value)


def plan_codes(
    nominal: Sequence[int],
    image_shape: tuple[int, int, int],
    *,
    decoder: str = "auto",
    decoders: int | None = None,
    codes: int | None = None,
    code_channels: int | None = None,
    budget_bytes: int | None = None,
    storage: str = "float32",
) -> CodePlan:
    """The planner. `codes` and `decoders` override the arithmetic, as the paper's own table does."""
    classes = len(nominal)
    if budget_bytes is not None:
        numbers = (budget_bytes - HEADER_BYTES) // NUMBER_BYTES[storage]
        nominal = (max(0, numbers // classes),) * classes
    mean = sum(nominal) / classes
    kind = decoder if decoder != "auto" else ("low" if mean < 100_000 else "high")
    image_channels, height, width = image_shape
    channels = decoder_channels(kind, image_channels, code_channels)
    code_shape = (channels[0], math.ceil(height / FACTOR[kind]), math.ceil(width / FACTOR[kind]))
    size, parameters = math.prod(code_shape), decoder_parameters(channels)
    if decoders is None:
        wanted = 8 if mean < 30_000 else 12 if mean < 100_000 else 16
        decoders = max(1, min(wanted, int(MOST_DECODER_SHARE * mean * classes / parameters)))
    shared = decoders * parameters / classes
    if codes is not None:
        counts = (codes,) * classes
    elif budget_bytes is not None:
        # a hard limit: each code also stores its label (4 bytes), so round down
        label = 4 / NUMBER_BYTES[storage]
        counts = (int((nominal[0] - shared) // (size + label)),) * classes
    else:
        counts = tuple(_codes(budget, shared, size) for budget in nominal)
    if min(counts) < 1:
        short = min(range(classes), key=lambda c: counts[c])
        raise UserError(
            f"The budget of {nominal[short]} numbers per class is too small for one code of {size} numbers and a share of "
            f"{shared:.0f} numbers of {decoders} decoder(s): raise the budget or lower --decoders."
        )
    return CodePlan(kind, channels, code_shape, counts, decoders, tuple(nominal))


def _codes(budget: int, shared: float, size: int) -> int:
    count = round((budget - shared) / size)
    if count * size + shared > MOST_OVER * budget:
        count -= 1
    return count
