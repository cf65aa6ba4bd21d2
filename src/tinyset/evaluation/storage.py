"""The storage curve: accuracy against bytes, from one artifact, by coarser numbers and fewer codes or decoders."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from tinyset.condensed import CondensedSet
from tinyset.data.imageset import Splits
from tinyset.evaluation.evaluator import Measurement
from tinyset.evaluation.rows import Evaluation, Row, check, check_request, evaluator, measure_rows
from tinyset.evaluation.sets import Source, from_artifact
from tinyset.interrupts import Stop
from tinyset.progress import Progress
from tinyset.protocols import protocol as named_protocol
from tinyset.storage import PRECISIONS

KEPT = (0.75, 0.5, 0.25)  # shares of codes or decoders that stay


def storage_curve(
    artifact: CondensedSet | str | Path,
    data: Splits,
    network: str = "convnet3",
    protocol: str | None = None,
    repeats: int = 1,
    seed: int = 0,
    *,
    device: torch.device | str = "auto",
    compile: bool | None = None,
    results: Path | None = None,
    fresh: bool = False,
    progress: Progress | None = None,
    stop: Stop | None = None,
) -> Evaluation:
    """A row per variant of the artifact, with its real bytes. All land in the artifact's own results."""
    condensed = check(artifact, data)
    lab = evaluator(condensed, data, device, compile, results, fresh, progress, stop)
    check_request(lab, condensed, [network], repeats)
    recipe = named_protocol(protocol or condensed.protocol)
    rows: list[Row] = []
    for name, variant in variants(condensed):
        rows += measure_rows(lab, _always(variant, name), network, recipe, range(seed, seed + repeats), [Measurement()])
    return Evaluation(data.name, data.class_names, tuple(rows), lab.results.path)


def variants(condensed: CondensedSet) -> Iterator[tuple[str, CondensedSet]]:
    """Each precision; then fewer decoders, then fewer codes, in the artifact's own precision."""
    for precision in PRECISIONS:
        yield precision, condensed.with_precision(precision)
    spec = condensed.config.spec
    for kept in _fewer(spec.get("decoders") or 1):
        decoders = list(range(kept, spec["decoders"]))
        yield f"{kept} of {spec['decoders']} decoders", condensed.drop(decoders=decoders)
    codes: Sequence[int] = spec.get("codes_per_class") or ()
    if codes:
        for kept in _fewer(min(codes)) if "families" not in spec else ():
            yield f"{kept} of {min(codes)} codes", condensed.drop(codes=min(codes) - kept)


def _fewer(count: int) -> list[int]:
    """The counts below `count` that KEPT asks for, most first."""
    return sorted({max(1, round(share * count)) for share in KEPT} - {count}, reverse=True)


def _always(condensed: Any, name: str) -> Source:
    fixed = from_artifact(condensed, name)
    return lambda seed: fixed
