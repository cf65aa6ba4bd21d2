"""Who works on what, and sums that do not depend on how many processes there are.

The pieces of work are fixed by the problem, a piece is done by one process (`Division`), and the float64 results of all
pieces are added in the order of the pieces (`OrderedSum`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from tinyset.processes import ALONE, Team, talking

if TYPE_CHECKING:
    import torch


class OrderedSum:
    """Float64 sums of `count` terms, added in the order of their numbers whichever process made them.

    The same bits for any number of processes. A term is a list of tensors, None for a zero; each is made by one process.
    """

    def __init__(self, team: Team, count: int, like: "Sequence[torch.Tensor]") -> None:
        import torch

        self.team = team
        self.totals = [torch.zeros_like(part, dtype=torch.float64) for part in like]
        self._numbers = [part.numel() for part in like]
        device = like[0].device if like else None
        if team.size > 1:  # a term is a row, and zero on all processes but one
            self._table = torch.zeros(count, sum(self._numbers), dtype=torch.float64, device=device)

    def add(self, at: int, term: "Sequence[torch.Tensor | None]") -> None:
        places = self.totals if self.team.size == 1 else self._places(self._table[at])
        for place, part in zip(places, term, strict=True):
            if part is not None:
                place += part

    def total(self) -> "list[torch.Tensor]":
        if self.team.size > 1:
            rows = self.team.sum_(self._table)
            whole = rows.new_zeros(rows.shape[1])
            for row in rows:
                whole += row
            self.totals = self._places(whole)
        return self.totals

    def _places(self, row: "torch.Tensor") -> "list[torch.Tensor]":
        parts = row.split(self._numbers)
        return [part.view(total.shape) for part, total in zip(parts, self.totals, strict=True)]


@dataclass(frozen=True)
class Division:
    """The classes that this process works on, alone or (then it is one class) with helpers that share its chunks."""

    classes: range
    helpers: Team = ALONE
    speaks: bool = True  # for these classes: each class has one process that does

    @classmethod
    def of(cls, team: Team, chunks: Sequence[int]) -> "Division":
        """Whole classes, balanced by their chunks; where there are more processes than classes, processes for each class."""
        classes = len(chunks)
        if team.size <= classes:
            ends, total = list(accumulate(chunks)), sum(chunks)
            owner = [(2 * end - size) * team.size // (2 * total) for end, size in zip(ends, chunks, strict=True)]
            mine = [c for c in range(classes) if owner[c] == team.rank]
            return cls(range(mine[0], mine[-1] + 1) if mine else range(0))
        return cls._of_one_class(team, chunks)

    @classmethod
    def _of_one_class(cls, team: Team, chunks: Sequence[int]) -> "Division":
        import torch.distributed as dist

        found = cls(range(0), speaks=False)  # nothing is left for this process
        for c, count in enumerate(chunks):  # every process makes every group
            ranks = [rank for rank in range(team.size) if rank * len(chunks) // team.size == c][:count]
            with talking():
                group = dist.new_group(ranks) if len(ranks) > 1 else None
            if team.rank in ranks:
                helpers = Team(ranks.index(team.rank), len(ranks), group)
                found = cls(range(c, c + 1), helpers, helpers.leads)
        return found

    @classmethod
    def everything(cls, team: Team, classes: int) -> "Division":
        """Not divided: every process does all of it, the first one speaks."""
        return cls(range(classes), speaks=team.leads)
