"""Learned labels: a distribution over the classes for each synthetic image, stored and counted like pixels.

Any parameterization can carry them as `soft_labels` (N x C, class after class, rows on the simplex). The helpers here
are what its `groups`, `tensors`, `restore`, `project` and `class_parameters` add.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import nn

from tinyset.errors import UserError

if TYPE_CHECKING:
    from tinyset.parameterizations.base import Parameterization

NAME = "soft_labels"


def learn_labels(synthetic: "Parameterization") -> None:
    """Start from one-hot labels and let an optimizer move them, at the rate named `labels`."""
    if synthetic.soft_labels is None:
        rows = [synthetic.targets(c) for c in range(synthetic.classes)]
        synthetic.soft_labels = nn.Parameter(torch.cat(rows))


def label_groups(synthetic: "Parameterization") -> dict[str, list[nn.Parameter]]:
    return {} if synthetic.soft_labels is None else {"labels": [synthetic.soft_labels]}


def label_tensors(synthetic: "Parameterization") -> dict[str, torch.Tensor]:
    return {} if synthetic.soft_labels is None else {NAME: synthetic.soft_labels.detach()}


def restore_labels(synthetic: "Parameterization", tensors: Mapping[str, torch.Tensor]) -> None:
    if NAME in tensors:
        expected = (sum(synthetic.counts), synthetic.classes)
        if tuple(tensors[NAME].shape) != expected:
            raise UserError(f"The stored labels have shape {tuple(tensors[NAME].shape)}, not {expected}.")
        synthetic.soft_labels = nn.Parameter(tensors[NAME].detach().clone())


def label_parameters(synthetic: "Parameterization", class_: int) -> int:
    return 0 if synthetic.soft_labels is None else synthetic.counts[class_] * synthetic.classes


@torch.no_grad()
def project_labels(synthetic: "Parameterization") -> None:
    if synthetic.soft_labels is not None:
        synthetic.soft_labels.copy_(nearest_distribution(synthetic.soft_labels))


def nearest_distribution(rows: torch.Tensor) -> torch.Tensor:
    """The Euclidean projection of each row onto {p : p >= 0, sum p = 1} (Held, Wolfe & Crowder 1974).

    With u the row sorted downwards and k the largest j with u_j > t_j, t_j = (sum_{i<=j} u_i - 1) / j:
        p = max(row - t_k, 0)
    """
    u, _ = rows.sort(dim=1, descending=True)
    j = torch.arange(1, rows.shape[1] + 1, device=rows.device)
    t = (u.cumsum(1) - 1) / j
    k = (u > t).sum(1, keepdim=True)
    return (rows - t.gather(1, k - 1)).clamp_min(0)
