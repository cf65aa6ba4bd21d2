"""Do two measurements put the same things first?"""

from collections.abc import Sequence

import numpy as np


def spearman(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Spearman's rank correlation: Pearson's correlation of the ranks, equal values sharing the mean of their ranks.

    None where there is nothing to rank: fewer than two values, or all of them equal.
    """
    rank_a, rank_b = (ranks(values) - (len(values) - 1) / 2 for values in (a, b))
    scale = float(np.sqrt((rank_a**2).sum() * (rank_b**2).sum()))
    return float((rank_a * rank_b).sum()) / scale if scale else None


def ranks(values: Sequence[float]) -> np.ndarray:
    """0 for the smallest; equal values share the mean of their ranks."""
    _, which, counts = np.unique(np.asarray(values, float), return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts + 1) / 2)[which]
