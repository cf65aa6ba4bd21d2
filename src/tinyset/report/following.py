"""What a run is doing now, read from its folder: loss, ETA, and pictures of its newest checkpoint."""

import io
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from PIL.Image import Image

from tinyset.condensed import load
from tinyset.config import load_yaml
from tinyset.errors import TinysetError, UserError
from tinyset.files import load_tree
from tinyset.parameterizations.decoders import Decoders
from tinyset.pictures import grid, short
from tinyset.report.gather import read_losses
from tinyset.report.graphs import thinned

RECENT = 50  # steps whose mean duration predicts the rest
QUIET_S = 30.0  # and twenty usual steps without a new line: the run is not working
ACROSS, DOWN = 10, 12  # images of a class, classes


@dataclass
class Following:
    """One run. `state()` is cheap: the page asks for it every second."""

    folder: Path
    _picture: tuple[str, bytes] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if not (self.folder / "config.yaml").is_file():
            raise UserError(f"{self.folder} is not a run: it has no config.yaml.")

    def state(self) -> dict[str, Any]:
        settings = load_yaml((self.folder / "config.yaml").read_text(encoding="utf-8"), "config.yaml")
        losses = read_losses(self.folder / "metrics.jsonl")
        steps, done = int(settings.get("steps") or 0), losses[-1][0] + 1 if losses else 0
        per_step = sum(s for *_, s in losses[-RECENT:]) / max(1, len(losses[-RECENT:]))
        left = max(0, steps - done) * per_step if losses else None
        return {
            "name": self.folder.resolve().name,
            "method": settings.get("method"),
            "steps": steps,
            "done": done,
            "status": self._status(steps, done, per_step),
            "loss": losses[-1][1] if losses and math.isfinite(losses[-1][1]) else None,
            "seconds_per_step": round(per_step, 4) if losses else None,
            "eta_s": round(left, 1) if left is not None else None,
            "curve": [[x, y] for x, y in thinned([(s, v) for s, v, _ in losses if math.isfinite(v)])],
            "picture": self._newest(),
        }

    def _status(self, steps: int, done: int, per_step: float) -> str:
        if (self.folder / "artifact" / "config.json").is_file():
            return "finished" if done >= steps else "stopped early"
        if done == 0:
            return "preparing"
        try:
            silent = time.time() - (self.folder / "metrics.jsonl").stat().st_mtime
        except OSError:
            return "preparing"
        return "silent" if silent > QUIET_S + 20 * per_step else "working"

    # -- pictures ---------------------------------------------------------------------------------------------------

    def _newest(self) -> str | None:
        """The name of what can be drawn: the finished artifact, or the newest checkpoint."""
        if (self.folder / "artifact" / "config.json").is_file():
            return "artifact"
        checkpoints = sorted(self.folder.glob("checkpoint-*.safetensors"))
        return checkpoints[-1].name if checkpoints else None

    def picture(self) -> bytes | None:
        """A PNG of sample images; None where there are none yet, or a file is being replaced."""
        name = self._newest()
        if name is None:
            return None
        if self._picture is None or self._picture[0] != name:
            try:
                sheet = load(self.folder / name).preview() if name == "artifact" else _samples(self.folder / name)
            except (TinysetError, RuntimeError, KeyError, ValueError):
                return None
            file = io.BytesIO()
            sheet.save(file, "PNG")
            self._picture = (name, file.getvalue())
        return self._picture[1]


@torch.no_grad()
def _samples(path: Path) -> Image:
    """A row of images for each class of a checkpoint; of many classes, some."""
    tree = load_tree(path, "checkpoint")
    tensors: Mapping[str, torch.Tensor] = tree["synthetic"]
    stored = tensors["codes" if "codes" in tensors else "images"]
    names, counts = tree.get("class_names", [""]), tree.get("counts", [len(stored)])
    per = max(1, sum(counts) // len(stored))  # synthetic images of a code, or of a sheet of tiles
    ends = list(accumulate(count // per for count in counts))
    rows = []
    for c in torch.linspace(0, len(names) - 1, min(DOWN, len(names))).round().long().tolist():
        units = counts[c] // per
        place = torch.linspace(0, units - 1, min(ACROSS, units)).round().long()
        rows.append((short(names[c]), list(_decoded(tensors, ends[c] - units + place, place, units, per))))
    return grid(rows)


def _decoded(
    tensors: Mapping[str, torch.Tensor], index: torch.Tensor, place: torch.Tensor, units: int, per: int
) -> torch.Tensor:
    """Images of the parameters in a checkpoint, which does not say what they are: codes and decoders, or pixels.

    `place` among the `units` of its class tells the family of a code; `per`: images of a code.
    """
    if "codes" not in tensors:
        low, high = tensors["images"].min(), tensors["images"].max()
        images = tensors["images"][index]
        return images if low >= 0 and high <= 1 else (images - low) / (high - low)  # whitened ones have no range
    weights = [tensors[f"decoders.weights.{i}"] for i in range(_layers(tensors))]
    decoders = Decoders([weights[0].shape[1], *(w.shape[2] for w in weights)], len(weights[0]))
    stored = {f"decoders.{i}.weight": w for i, w in enumerate(weights)}
    decoders.load(stored | {f"decoders.{i}.bias": tensors[f"decoders.biases.{i}"] for i in range(len(weights))})
    family = place * (decoders.count // per) // units
    return decoders(tensors["codes"][index], family * per + torch.arange(len(index)) % per)


def _layers(tensors: Mapping[str, torch.Tensor]) -> int:
    return sum(name.startswith("decoders.weights.") for name in tensors)
