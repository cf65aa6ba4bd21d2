"""From C++ to a library in the cache, by the compiler `torch.compile` needs anyway: about two seconds, once."""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from importlib import resources
from pathlib import Path

from tinyset.files import cache_dir, sha256_file

# not -ffast-math: it would switch off denormal numbers in the whole process, and hide NaNs
FLAGS = (
    *("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"),
    *("-fopenmp", "-shared", "-fPIC", "-std=c++17"),
)
SOURCES = ("product.h", "norm.h", "winograd.h", "gradient.h", "convnet.cpp")  # the last one includes the others


@cache
def library() -> ctypes.CDLL | None:
    """The compiled kernels, or None where they cannot be had: everything then works without them, slower."""
    compiler = next((c for c in (os.environ.get("CXX"), "g++", "clang++") if c and shutil.which(c)), None)
    if compiler is None or platform.system() != "Linux":
        return None
    sources = {name: (resources.files("tinyset.kernels") / name).read_text() for name in SOURCES}
    key = hashlib.sha256(repr((sources, FLAGS, compiler, _cpu())).encode()).hexdigest()[:16]
    folder = cache_dir() / "compiled"
    try:
        whole = next((path for path in sorted(folder.glob(f"kernels-{key}-*.so")) if _whole(path)), None)
        return ctypes.CDLL(str(whole or _build(compiler, sources, folder, f"kernels-{key}")))
    except (OSError, subprocess.SubprocessError):
        return None


def _cpu() -> str:
    """-march=native is another machine's code elsewhere, and home folders travel."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        return platform.machine()


def _whole(path: Path) -> bool:
    """The name ends with the checksum: damaged code would crash, or compute something else."""
    return path.stem.endswith(f"-{sha256_file(path)[:16]}")


def _build(compiler: str, sources: dict[str, str], folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        for file, text in sources.items():
            (Path(scratch) / file).write_text(text)
        command = [compiler, *FLAGS, SOURCES[-1], "-o", "kernels.so"]
        subprocess.run(command, cwd=scratch, check=True, capture_output=True, timeout=300)
        made = Path(scratch) / "kernels.so"
        path = folder / f"{name}-{sha256_file(made)[:16]}.so"
        os.replace(made, path)
    return path
