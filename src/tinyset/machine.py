"""What runs underneath: device, threads, the C allocator, the compiler; and a description of it all for records."""

import ctypes
import os
import platform
import shutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch

from tinyset.errors import UserError
from tinyset.processes import local_rank
from tinyset.version import __version__

# glibc's mallopt keys (malloc.h)
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4


def pick_device(name: str) -> torch.device:
    """`auto` is the GPU where there is one; each of the processes that torchrun started on a machine has its own."""
    if name == "auto":
        if torch.cuda.is_available():
            return _own_gpu()
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f"Unknown device {name!r}: choose auto, cpu, cuda, cuda:N or mps.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: there is no CUDA device here.")
    return _own_gpu() if device == torch.device("cuda") else device


def _own_gpu() -> torch.device:
    if (number := local_rank()) is None:
        return torch.device("cuda")
    if number >= (count := torch.cuda.device_count()):
        raise UserError(f"--device cuda: process {number} of this machine has no GPU: {count} are here; start as many.")
    return torch.device("cuda", number)


def set_threads(threads: int | None) -> int:
    """Use this many CPU threads (None: torch's choice) and say how many that is. Bytes depend on the number."""
    if threads is not None:
        torch.set_num_threads(threads)
    return torch.get_num_threads()


@cache
def keep_memory() -> bool:
    """Keep freed memory in the process instead of giving it back to the kernel after every step.

    A matching step frees and asks again for hundreds of megabytes; glibc would map and unmap them each time, and the
    page faults eat up to 40 % of a core. In-process: no wrapper, no LD_PRELOAD. False where the C library is another.
    """
    try:
        libc = ctypes.CDLL(None)
        return all(
            libc.mallopt(key, value) == 1
            for key, value in ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, 2**31 - 1), (M_TOP_PAD, 64 << 20))
        )
    except (OSError, AttributeError, TypeError):
        return False


@cache
def no_compiler() -> str | None:
    """Why `torch.compile` cannot be used here, or None."""
    if sys.platform == "win32":
        return "torch.compile is not set up on Windows"
    if torch.cuda.is_available():
        return None
    if not any(shutil.which(name) for name in (os.environ.get("CXX", ""), "g++", "clang++", "c++") if name):
        return "no C++ compiler found"
    return None


def compiled(
    function: Callable[..., Any], *, enabled: bool, note: Callable[[str], None] | None = None
) -> Callable[..., Any]:
    """`function` compiled for fixed shapes, the compiled code kept between runs; eager where there is no compiler."""
    if not enabled:
        return function
    if reason := no_compiler():
        if note is not None:
            note(f"Running without torch.compile, about 1.5x slower: {reason}.")
        return function
    from tinyset.files import cache_dir

    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_dir() / "compiled"))
    return torch.compile(function, dynamic=False)


def peak_memory_bytes() -> int:
    """The process's highest resident memory so far."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def environment() -> dict[str, Any]:
    """Hardware and software, for `env.json` and records."""
    return {
        "tinyset": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": platform.platform(),
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else None,
    }


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
