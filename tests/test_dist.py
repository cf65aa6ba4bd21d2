"""The wheel alone, in an environment of its own outside the checkout: it loads, trains, condenses and reports.

The environment sees the installed dependencies (torch is not downloaded again) but not the editable checkout.
"""

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from tests.report.made import stripes

ROOT = Path(__file__).parents[1]


def shipped() -> list[str]:
    folder = resources.files("tinyset") / "shipped"
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []


TRAIN = """
import sys, torch, tinyset
assert "site-packages" in tinyset.__file__ and not tinyset.__file__.startswith(sys.argv[2]), tinyset.__file__
from tinyset.networks import build
ds = tinyset.load(sys.argv[1])
channels, height, width = ds.image_shape
network = build("convnet3:width=8", channels=channels, image_size=(height, width), classes=len(ds.class_names))
optimizer = torch.optim.SGD(network.parameters(), 0.02, 0.9)
losses = []
for step, (images, targets) in enumerate(ds.loader(epochs=8, batch_size=64)):
    loss = torch.nn.functional.cross_entropy(network(images), targets)
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    losses.append(loss.item())
    if step == 24:
        break
third = max(1, len(losses) // 3)
print(sum(losses[:third]) / third, sum(losses[-third:]) / third)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make dist` builds."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def clean(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel installed; its bin folder."""
    home = tmp_path_factory.mktemp("clean") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    (wheel,) = built.glob("*.whl")
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--disable-pip-version-check", str(wheel)], check=True)
    (site,) = (home / "lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")  # a path line runs no other .pth
    return home / "bin"


def run(clean: Path, cwd: Path, *words: str) -> str:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    environment |= {"TINYSET_CACHE": str(cwd / "cache"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([str(clean / words[0]), *words[1:]], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_is_in_the_files(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    needed = [
        "tinyset/py.typed",
        "tinyset/recipes/fast.yaml",
        "tinyset/recipes/plain.yaml",
        "tinyset/report/assets/explorer.js",
        "tinyset/cli/report.py",
    ]
    assert set(needed) <= set(names)
    assert all(name.startswith(("tinyset/", "tinyset-")) for name in names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as packed:
        inside = {name.partition("/")[2] for name in packed.getnames()}
    assert {
        "README.md",
        "CHANGELOG.md",
        "LICENSE",
        "pyproject.toml",
        "docs/format.md",
        "src/tinyset/__init__.py",
    } <= inside


def test_the_wheel_alone_condenses_trains_and_reports(clean: Path, tmp_path: Path) -> None:
    assert run(clean, tmp_path, "tinyset", "--version").startswith("tinyset ")
    small = "--steps 2 --networks 1 --real-per-class 10 --network convnet3:width=8 --pretrain-steps 20 --quiet --json"
    real = stripes(20, 0, side=32)
    np.savez(tmp_path / "stripes.npz", images=real.images.numpy(), labels=real.labels.numpy())
    said = run(clean, tmp_path, "tinyset", "condense", "stripes.npz", "--out", "run", *small.split())
    assert json.loads(said)["bytes"] < 130_000
    first, last = map(float, run(clean, tmp_path, "python", "-c", TRAIN, "run/artifact", str(ROOT)).split())
    assert last < first
    run(clean, tmp_path, "tinyset", "report", "run", "--no-nearest")
    assert (tmp_path / "run" / "report.html").stat().st_size > 50_000


@pytest.mark.skipif(not shipped(), reason="no condensed set is shipped with the package yet")
def test_a_shipped_set_trains(clean: Path, tmp_path: Path) -> None:
    name = shipped()[0]
    first, last = map(float, run(clean, tmp_path, "python", "-c", TRAIN, name, str(ROOT)).split())
    assert last < first
    assert json.loads(run(clean, tmp_path, "tinyset", "inspect", name, "--json"))["classes"] >= 2
