"""A condensed set in fewer bytes: codes, decoders and precision are dropped where it costs least.

Every precision from the set's own on and every number of decoders is a candidate, with as many codes as then fit the budget.
Which decoders and which codes go is decided one by one by the bank's loss; the loss ranks the candidates; the best few are
confirmed by a short training, tested on a part of the training split that the bank does not see. The test split is not used.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tinyset.bank import open_bank
from tinyset.budget import NUMBER_BYTES
from tinyset.condensed import CondensedSet
from tinyset.data.imageset import ImageSet, Splits
from tinyset.downstream.parts import Parts, changed, per_unit, refuse_families, unit_counts
from tinyset.downstream.subsets import Match, matches, total
from tinyset.errors import UserError
from tinyset.evaluation import carve_validation, evaluate
from tinyset.evaluation.metrics import Spread
from tinyset.evaluation.rows import check
from tinyset.files import cache_dir
from tinyset.machine import pick_device
from tinyset.parameterizations.codes import Codes
from tinyset.progress import Progress, Silent
from tinyset.saving import serialize
from tinyset.storage import PRECISIONS


@dataclass(frozen=True)
class Candidate:
    precision: str
    decoders: tuple[int, ...]  # kept
    units: tuple[tuple[int, ...], ...]  # kept, of each class
    bytes: int
    loss: float
    accuracy: Spread | None = None  # on the validation part

    def to_dict(self) -> dict[str, Any]:
        counts = [len(kept) for kept in self.units]
        return {
            "precision": self.precision,
            "decoders": len(self.decoders),
            "units_per_class": counts[0] if len(set(counts)) == 1 else counts,
            "bytes": self.bytes,
            "loss": self.loss,
            "accuracy": None if self.accuracy is None else self.accuracy.to_dict(),
        }


@dataclass(frozen=True)
class Slimmed:
    condensed: CondensedSet
    chosen: Candidate
    candidates: tuple[Candidate, ...]  # all that fit, best first
    before: Spread  # the set as it was, on the validation part


def slim(
    condensed: CondensedSet,
    data: Splits,
    budget_bytes: int,
    *,
    match_network: str = "convnet3:width=64",
    networks: int = 8,
    real_per_class: int | None = 500,
    confirm: int = 3,
    network: str = "convnet3:width=32",
    protocol: str = "steps:300",
    repeats: int = 1,
    validation: float = 0.1,
    seed: int = 0,
    device: str = "auto",
    progress: Progress | None = None,
) -> Slimmed:
    """The set in at most `budget_bytes`, and how it was found."""
    progress = progress or Silent()
    check(condensed, data)
    refuse_families(condensed.parameterization)
    if budget_bytes >= condensed.bytes:
        raise UserError(f"--budget-bytes {budget_bytes}: the set takes {condensed.bytes} bytes already.")
    if min(confirm, networks, repeats) < 1:
        raise UserError("--confirm, --networks and --repeats must be 1 or more.")
    known, held = carve_validation(data.train, validation, seed)
    known, held = (replace(part, known_stats=condensed.stats) for part in (known, held))
    ranked = rank(condensed, known, budget_bytes, match_network, networks, real_per_class, device, progress)

    def accuracy(of: CondensedSet) -> Spread:
        split = Splits(f"{data.name}, validation", known, held, mirror=data.mirror)
        store = cache_dir() / "results" / f"slim-{of.fingerprint[:32]}.jsonl"  # the set's own folder is left alone
        options: dict[str, Any] = {"device": device, "progress": progress, "results": store}
        return evaluate(of, split, [network], [protocol], repeats, seed, **options).rows[0].accuracy

    tried = []
    for candidate in ranked[:confirm]:
        tried.append(replace(candidate, accuracy=accuracy(cut(condensed, candidate, budget_bytes))))
    best = max(tried, key=lambda candidate: (candidate.accuracy.mean if candidate.accuracy else 0, -candidate.loss))
    found = (*tried, *ranked[confirm:])
    return Slimmed(cut(condensed, best, budget_bytes), best, found, accuracy(condensed))


def rank(
    condensed: CondensedSet,
    real: ImageSet,
    budget_bytes: int,
    match_network: str,
    networks: int,
    real_per_class: int | None,
    device: str,
    progress: Progress,
) -> list[Candidate]:
    """All candidates within the budget, the lowest loss first."""
    bank = open_bank(
        real,
        match_network,
        device=pick_device(device),
        networks=networks,
        real_per_class=real_per_class,
        progress=progress,
    )
    bank.ensure(networks)
    found: list[Candidate] = []
    for precision in PRECISIONS[PRECISIONS.index(condensed.config.precision) :]:
        coarse = condensed.with_precision(precision)
        classes = matches(coarse, bank, networks, progress, f"loss of {precision}")
        found += _candidates(coarse, classes, budget_bytes)
    if not found:
        least = len(serialize(_empty(condensed, [1] * len(condensed.class_names), 1), PRECISIONS[-1]))
        raise UserError(f"--budget-bytes {budget_bytes} is too small: one code per class takes {least} bytes.")
    return sorted(found, key=lambda candidate: candidate.loss)


def _candidates(coarse: CondensedSet, classes: Sequence[Match], budget_bytes: int) -> Iterator[Candidate]:
    made, precision = coarse.parameterization, coarse.config.precision
    decoders = made.per_code if isinstance(made, Codes) else 1
    each = per_unit(made)
    styles = total([of.by_decoder(each) for of in classes])
    for count in range(decoders, 0, -1):
        kept = styles.fewer(count) if isinstance(made, Codes) else list(range(each))
        room = _room(coarse, count, budget_bytes)
        if room is None:
            continue
        per_class = [of.by_code(each, kept) for of in classes]
        units = [of.fewer(most) for of, most in zip(per_class, room[0], strict=True)]
        losses = [of.loss(rows) for of, rows in zip(per_class, units, strict=True)]
        yield Candidate(precision, tuple(kept), tuple(map(tuple, units)), room[1], sum(losses) / len(losses))


def _room(coarse: CondensedSet, decoders: int, budget_bytes: int) -> tuple[list[int], int] | None:
    """The most units of each class that fit beside so many decoders, and their bytes: the largest classes give first."""
    counts = unit_counts(coarse.parameterization)

    def size(most: int) -> int:
        return len(serialize(_empty(coarse, [min(n, most) for n in counts], decoders), coarse.config.precision))

    low, high = 0, max(counts)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if size(middle) <= budget_bytes else (low, middle - 1)
    return ([min(n, low) for n in counts], size(low)) if low else None


def _empty(condensed: CondensedSet, units: Sequence[int], decoders: int) -> Any:
    """The shape of the set with fewer units and decoders; what it holds does not matter."""
    parts = Parts.of(condensed.parameterization)
    kept = tuple(tuple(range(n)) for n in units)
    return _kept(parts, kept, range(decoders) if condensed.config.kind == "codes" else range(per_unit(parts.like)))


def _kept(parts: Parts, units: Sequence[Sequence[int]], decoders: Sequence[int]) -> Any:
    each, spec = per_unit(parts.like), parts.like.spec()
    labels = parts.labels
    if labels is not None:
        labels = tuple(
            rows[[m * each + d for m in kept for d in decoders]] for rows, kept in zip(labels, units, strict=True)
        )
    stored = tuple(of[list(kept)] for of, kept in zip(parts.units, units, strict=True))
    shared, like = parts.shared, parts.like
    if isinstance(like, Codes) and len(decoders) < each:
        shared = {name: tensor[list(decoders)] for name, tensor in shared.items()}
        code_shape = (like.codes.shape[1], like.codes.shape[2], like.codes.shape[3])
        like = Codes(like.image_shape, [1], code_shape, spec["channels"], len(decoders))
    return replace(parts, like=like, units=stored, labels=labels, shared=shared).together()


def cut(condensed: CondensedSet, to: Candidate, budget_bytes: int) -> CondensedSet:
    """The set as the candidate has it."""
    coarse = condensed.with_precision(to.precision)
    made = _kept(Parts.of(coarse.parameterization), to.units, to.decoders)
    return changed(
        condensed,
        made,
        f"slimmed to {budget_bytes} bytes",
        precision=to.precision,
        nominal_params_per_class=budget_bytes / NUMBER_BYTES[to.precision] / len(condensed.class_names),
        source_fingerprint=condensed.config.source_fingerprint,
    )
