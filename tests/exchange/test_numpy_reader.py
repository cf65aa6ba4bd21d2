"""`examples/read_with_numpy.py` decodes every kind and precision to the pixels of the library, without torch."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.report.made import codes_set, families_set, stored_set

EXAMPLE = Path(__file__).parents[2] / "examples" / "read_with_numpy.py"
PROBE = """
import sys, numpy as np
sys.path.insert(0, sys.argv[1])
from read_with_numpy import read
images, labels, config = read(sys.argv[2])
assert "torch" not in sys.modules and "tinyset" not in sys.modules
np.savez(sys.argv[3], images=images, labels=labels)
"""


@pytest.mark.parametrize("kind", ["codes", "codes-high", "families", "pixels", "zca", "tiles"])
def test_same_pixels_within_a_255th(kind: str, tmp_path: Path) -> None:
    if kind.startswith("codes"):
        condensed = codes_set(decoder="high" if kind.endswith("high") else "low", steps=1)
    elif kind == "families":
        condensed = families_set(tmp_path)
    else:
        condensed = stored_set(kind)
    for precision in ("float32", "float16", "int8"):
        stored = condensed.with_precision(precision)
        folder, out = stored.save(tmp_path / precision), tmp_path / f"{precision}.npz"
        if precision == "float32":
            subprocess.run([sys.executable, "-c", PROBE, str(EXAMPLE.parent), str(folder), str(out)], check=True)
        else:
            _read_here(folder, out)
        found = np.load(out)
        assert np.abs(found["images"] - stored.images().numpy()).max() < 1 / 255
        assert found["labels"].tolist() == stored.labels.tolist()


def _read_here(folder: Path, out: Path) -> None:
    names: dict[str, object] = {"__name__": "example"}
    exec(EXAMPLE.read_text(), names)
    images, labels, _ = names["read"](folder)  # type: ignore[operator]
    np.savez(out, images=images, labels=labels)


def test_the_script_says_what_is_inside(tmp_path: Path) -> None:
    folder = stored_set("pixels").save(tmp_path / "set")
    said = subprocess.run([sys.executable, EXAMPLE, folder], check=True, capture_output=True, text=True).stdout
    assert said.startswith("7 images (3, 16, 16) of 3 classes")
