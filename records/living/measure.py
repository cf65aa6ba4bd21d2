"""What growing, slimming and merging cost, on SVHN: `python records/living/measure.py ARTIFACT DATA_DIR OUT`.

ARTIFACT: a KFS set of SVHN's ten digits. Accuracy: mean ± std over seeds of networks trained on the set, on the first
`TEST` test images of each class. Random and herding: real images at the same bytes, one byte a number, selected anew for each seed.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import tinyset
from tinyset.data.imageset import ImageSet, Splits
from tinyset.downstream.living import forget, grow
from tinyset.downstream.merge import merge
from tinyset.downstream.slim import slim
from tinyset.evaluation import Evaluator, Measurement, Results, TrainingSet, from_artifact, from_images
from tinyset.evaluation.rows import measure_rows
from tinyset.files import write_atomic, write_json
from tinyset.machine import environment
from tinyset.protocols import protocol
from tinyset.report import tables
from tinyset.report.charts import bytes_chart
from tinyset.selection import select

TEST, SEEDS, NETWORK, PROTOCOL, CLASS = 300, (0, 1), "convnet3:width=16", "steps:100", "9"
MATCH: dict[str, Any] = {"network": NETWORK, "networks": 10, "real_per_class": 200, "steps": 60, "threads": 1}
SLIM: dict[str, Any] = {"match_network": NETWORK, "networks": 6, "real_per_class": 200, "confirm": 2, "network": NETWORK,
                        "protocol": "steps:60"}  # fmt: skip
HERDING = protocol("steps:60")


def first(of: ImageSet, count: int) -> ImageSet:
    return of.subset(torch.cat([members[:count] for members in of.by_class]))


def real(name: str, data: Splits, budget_bytes: int) -> Callable[[int], TrainingSet]:
    """Real images at these bytes, for each seed."""
    each = max(1, budget_bytes // (10 * 3072))

    def source(seed: int) -> TrainingSet:
        index = select(name, data.train, [each] * 10, seed=seed, network=NETWORK, training=HERDING)
        return from_images(data.train, index, name=name, mirror=data.mirror)

    return source


def main(artifact: str, data_dir: str, out: Path) -> None:
    torch.set_num_threads(1)
    whole = tinyset.load_images("svhn", data_dir=data_dir)
    assert whole.test is not None
    data = Splits(whole.name, whole.train, first(whole.test, TEST), mirror=whole.mirror)
    few = Splits(
        whole.name, first(whole.train, 1000), None, mirror=whole.mirror
    )  # what slim validates on comes from here
    old = tinyset.load(artifact)
    without = forget(old, CLASS)
    halves = [forget_all(old, of) for of in ("01234", "56789")]
    sets = {
        "kfs": old,
        f"kfs, {CLASS} forgotten and grown again, decoders frozen": grow(without, data, CLASS, **MATCH),
        f"kfs, {CLASS} forgotten and grown again, decoders tuned": grow(
            without, data, CLASS, decoders="tuned", **MATCH
        ),
    }
    slims = [slim(old, few, old.bytes // part, **SLIM) for part in (2, 4)]
    for found in slims:
        sets[f"kfs, slimmed to {found.condensed.bytes:,} bytes: {describe(found.chosen.to_dict())}"] = found.condensed
    lab = Evaluator(data, Results(out / "results.jsonl"))
    sources: dict[str, Any] = {name: (lambda seed, of=of: from_artifact(of)) for name, of in sets.items()}
    for name in ("random", "herding"):
        for size in (old.bytes, *(found.condensed.bytes for found in slims)):
            sources[f"{name} at {size:,} bytes"] = real(name, data, size)
    rows = []
    for name, source in sources.items():
        row = measure_rows(lab, source, NETWORK, protocol(PROTOCOL), SEEDS, [Measurement()])[0].to_dict()
        of_class = row["per_class"][CLASS]
        rows.append({k: row[k] for k in ("accuracy", "bytes", "images")} | {"name": name, "of_class": of_class})
        rows[-1]["set"] = name.split(",")[0].split(" at ")[0]
    merged = merge(*halves)
    by_name = all(torch.equal(merged.images(name), old.images(name)) for name in old.class_names)
    found_json = {
        "settings": {
            "test_per_class": TEST,
            "seeds": SEEDS,
            "network": NETWORK,
            "protocol": PROTOCOL,
            "grow": MATCH,
            "slim": SLIM,
        },
        "artifact_sha256": old.fingerprint,
        "artifact": {"steps": old.config.steps, "condense": old.config.condense},
        "halves_merged_are_the_whole": by_name,
        "environment": environment(),
        "rows": rows,
        "slim": [[candidate.to_dict() for candidate in found.candidates] for found in slims],
    }
    write_json(out / "results.json", found_json)
    write_atomic(out / "table.md", tables.markdown([words(row) for row in rows]))
    curve = [row for row in rows if "grown" not in row["name"]]
    bytes_chart(curve, out / "chart", f"SVHN, {NETWORK}, {PROTOCOL}: slimmed, and real images at the same bytes")


def forget_all(of: tinyset.CondensedSet, names: str) -> tinyset.CondensedSet:
    for name in names:
        of = forget(of, name)
    return of


def describe(chosen: dict[str, Any]) -> str:
    return f"{chosen['precision']}, {chosen['decoders']} decoders, {chosen['units_per_class']} codes per class"


def words(row: dict[str, Any]) -> dict[str, str]:
    return {
        "Set": row["name"],
        "Accuracy %": tables.spread(row["accuracy"]),
        "n": str(row["accuracy"]["n"]),
        f"Accuracy of {CLASS} %": f"{row['of_class']:.1f}",
        "Images": f"{row['images']:,}",
        "Bytes": f"{row['bytes']:,}",
    }


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
