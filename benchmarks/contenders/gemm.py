"""The machine's float32 matrix-multiply rate: the best square product, in floating-point operations."""

import torch

from benchmarks.contenders import Run

SIZES = (1024, 1536, 2048)


def square(size: int) -> Run:
    a, b = torch.randn(size, size), torch.randn(size, size)
    out = torch.empty(size, size)
    times = max(1, int(2e10 / size**3))

    def run() -> float:
        for _ in range(times):
            torch.mm(a, b, out=out)
        return 2.0 * size**3 * times

    run()
    return run
