"""`python -m benchmarks.scale`: n processes against one process with n threads, and ImageNet-1k on paper; into records/scale.

Every run is a `tinyset condense` as a user starts it, at the paper's 1 image per class of 32x32 (13 codes x 8 decoders and
ConvNet-3); what is compared is the median of the seconds of a step in metrics.jsonl, the first two left out.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "records" / "scale"
FLAGS = [
    *("streetdigits", "--images-per-class", "1", "--network", "convnet3", "--compile", "always", "--networks", "1"),
    *("--real-per-class", "16", "--pretrain-steps", "5", "--device", "cpu", "--quiet", "--overwrite"),
]
SKIPPED = 2  # steps: caches, kernels


def run(processes: int, threads: int, steps: int, folder: Path) -> dict[str, Any]:
    """One run: its median step in seconds, and the hash of what it made."""
    from tinyset.files import sha256_file

    name = f"{processes}x{threads}"
    launcher = (
        ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)] if processes > 1 else []
    )
    command = [*launcher, "-m", "tinyset", "condense", *FLAGS, "--steps", str(steps), "--threads", str(threads)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "TINYSET_CACHE": str(folder / "cache")}
    load = os.getloadavg()[0]
    subprocess.run([sys.executable, *command, "--out", str(folder / name)], env=environment, check=True, cwd=ROOT)
    seconds = [json.loads(line)["seconds"] for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
    shutil.copy(folder / name / "metrics.jsonl", RECORD / f"metrics-{name}.jsonl")
    shutil.copy(folder / name / "config.yaml", RECORD / "config.yaml")
    return {
        "processes": processes,
        "threads_each": threads,
        "seconds_per_step": round(statistics.median(seconds[SKIPPED:]), 4),
        "load_before": round(load, 2),
        "artifact_sha256": sha256_file(folder / name / "artifact" / "condensed.safetensors"),
    }


def measure(steps: int) -> dict[str, Any]:
    from tinyset.machine import environment

    began, rows = time.time(), []
    with tempfile.TemporaryDirectory(prefix="tinyset-scale-") as folder:
        for n in (1, 2, 4):
            for processes, threads in ((1, n), (n, 1)) if n > 1 else ((1, 1),):
                rows.append(run(processes, threads, steps, Path(folder)))
                print(rows[-1], file=sys.stderr, flush=True)
    took = {(row["processes"], row["threads_each"]): row["seconds_per_step"] for row in rows}
    return {
        "date": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(began)),
        "seconds": round(time.time() - began),
        "machine": environment(),
        "command": "python -m benchmarks.scale",
        "rows": rows,
        "efficiency": {str(n): round(took[1, n] / took[n, 1], 3) for n in (1, 2, 4)},  # against n threads
        "speedup": {str(n): round(took[1, 1] / took[n, 1], 3) for n in (1, 2, 4)},  # against one process, one thread
    }


CLASSES, REAL, SIDE, NETWORK, STEPS = 1000, 1_281_167, 224, "convnet6", 20_000
ASSUMED = {"gpu_flops": 40e12, "bandwidth": 25e9}  # sustained per GPU, float32/TF32; between machines, bytes/s per GPU


def imagenet(gpus: int) -> dict[str, float]:
    """One image per class of ImageNet-1k at 224x224, from the planner's own arithmetic. `ASSUMED` is assumed, not measured."""
    from benchmarks.contenders.shapes import convolution_flops
    from tinyset.budget import plan_codes
    from tinyset.engine import activation_bytes
    from tinyset.networks import build

    shape = (3, SIDE, SIDE)
    network = build(NETWORK, channels=3, image_size=(SIDE, SIDE), classes=CLASSES)
    plan = plan_codes((3 * SIDE * SIDE,) * CLASSES, shape)
    numbers, shared = sum(plan.codes) * 3 * SIDE * SIDE // plan.codes[0], plan.decoders * plan.decoder_parameters
    images, flops = plan.codes[0] * plan.decoders, convolution_flops(network, shape)
    features = network.classifier.in_features  # type: ignore[union-attr]
    table, most = 8 * CLASSES * shared, -(-CLASSES // gpus)
    return {
        "gpus": gpus,
        "codes_per_class": plan.codes[0],
        "decoders": plan.decoders,
        "images_per_step": images * CLASSES,
        "flops_per_image_forward": flops,
        "flops_per_step": 2 * flops * images * CLASSES,
        "seconds_of_a_step": 2 * flops * images * most / ASSUMED["gpu_flops"],
        "bytes_all_reduced_per_step": table + 8 * CLASSES + 8,
        "seconds_of_the_all_reduce": 2 * (gpus - 1) / gpus * table / ASSUMED["bandwidth"],
        "hours_of_all_steps": STEPS * 2 * flops * images * most / ASSUMED["gpu_flops"] / 3600,
        "bank_bytes_per_network": 4 * CLASSES * features,
        "bank_bytes": 4 * CLASSES * features * STEPS,
        "bank_hours": STEPS * flops * REAL / gpus / ASSUMED["gpu_flops"] / 3600,
        "gpu_bytes_codes_and_gradient": 8 * numbers,
        "gpu_bytes_adam": 8 * numbers * most / CLASSES,
        "gpu_bytes_activations_of_a_class": images * activation_bytes(network, shape),
        "host_bytes_real_images": 3 * SIDE * SIDE * REAL,
    }


def main() -> int:
    from tinyset.files import write_json

    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--paper", action="store_true", help="only the arithmetic")
    args = parser.parse_args()
    RECORD.mkdir(parents=True, exist_ok=True)
    write_json(RECORD / "imagenet.json", {"assumed": ASSUMED, "rows": [imagenet(gpus) for gpus in (8, 64)]})
    if not args.paper:
        write_json(RECORD / "scale.json", measure(args.steps))
    return 0


if __name__ == "__main__":
    sys.exit(main())
