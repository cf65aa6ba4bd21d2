"""The record of pre-training: test accuracy along a training on real images, from three starts.

python records/pretrain/make.py ARTIFACT SOURCE [DATA_DIR]
"""

import sys
from pathlib import Path

import torch

import tinyset
from tinyset.evaluation import Spread, from_artifact, from_images
from tinyset.evaluation.sets import baseline
from tinyset.files import write_atomic, write_json
from tinyset.machine import environment
from tinyset.networks import build, redraw
from tinyset.progress import Silent
from tinyset.protocols import protocol
from tinyset.report.charts import budget_chart
from tinyset.training import predict, train

NETWORK, BATCH, FIRST_STEPS, MARKS = "convnet3:width=8", 64, 100, (1, 10, 25, 50, 100, 200, 400)
SEEDS, TEST_IMAGES = (0, 1, 2), 2000
HERE = Path(__file__).parent


def main(artifact, source, data_dir=None):
    torch.set_num_threads(1)
    ds, data = tinyset.load(artifact), tinyset.load_images(source, data_dir=data_dir)
    real = from_images(data.train, None, name="real", mirror=data.mirror)
    random = baseline("random-uint8", ds, data, Silent())
    starts = {
        "from scratch": None,
        "condensed set first": lambda seed: from_artifact(ds),
        "random images first": random,
    }
    rows = []
    for name, start in starts.items():
        runs = [along(data, real, start and start(seed), seed) for seed in SEEDS]
        for at in zip(*runs, strict=True):
            rows.append({
                "set": name, "train_steps": at[0][0], "bytes": start(0).bytes if start else 0,
                "first_seconds": round(sum(run[1] for run in at) / len(at), 2),
                "seconds": round(sum(run[2] for run in at) / len(at), 2),
                "accuracy": Spread.of([run[3] for run in at]).to_dict(),
            })  # fmt: skip
    conditions = {
        "data": data.name, "artifact": ds.fingerprint, "network": NETWORK, "first_steps": FIRST_STEPS, "seeds": SEEDS,
        "real_images": len(data.train), "batch": BATCH, "test_images": TEST_IMAGES,
    }  # fmt: skip
    write_json(HERE / "results.json", {**conditions, "rows": rows})
    write_json(HERE / "env.json", environment())
    write_atomic(HERE / "table.md", table(rows))
    for path in budget_chart(
        rows, HERE / "chart", f"{data.name}: {NETWORK} on {len(data.train):,} real images, n = {len(SEEDS)}"
    ):
        print(path)


def along(data, real, start, seed):
    """(step, seconds of the start, seconds on real images, test accuracy) at each mark."""
    channels, height, width = data.train.image_shape
    shape = {"channels": channels, "image_size": (height, width), "classes": data.train.classes}
    network, points, first_s = build(NETWORK, **shape), [], 0.0
    redraw(network, NETWORK, seed, **shape)
    common = {"normalisation": real.normalisation, "mirror": real.mirror, "seed": seed}
    if start is not None:
        first_s = train(network, start.images, start.targets, schedule(FIRST_STEPS), **common).seconds
    test = data.test.subset(torch.arange(TEST_IMAGES))

    def measure(stats, net):
        right = predict(net, test.images, normalisation=real.normalisation) == test.labels
        points.append((stats.steps, first_s, stats.seconds, 100 * right.float().mean().item()))

    marks = dict.fromkeys(MARKS, measure)
    train(network, real.images, real.targets, schedule(MARKS[-1]), **common, at_steps=marks)
    return points


def schedule(steps):
    return protocol(f"steps:{steps}").model_copy(update={"batch": BATCH})


def table(rows):
    lines = [
        "| start | " + " | ".join(f"{m} steps" for m in MARKS) + " | start s | real s |",
        "|---|" + "---:|" * (len(MARKS) + 2),
    ]
    for name in dict.fromkeys(row["set"] for row in rows):
        line = [row for row in rows if row["set"] == name]
        cells = [f"{row['accuracy']['mean']:.1f} ± {row['accuracy']['std']:.1f}" for row in line]
        lines.append(f"| {name} | {' | '.join(cells)} | {line[-1]['first_seconds']:.0f} | {line[-1]['seconds']:.0f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(*sys.argv[1:])
