"""Which numbers a process moves: the rows of its classes, with their optimizer state, and what all classes share.

Alone a process owns everything and the optimizer sees the parameters themselves. In a team it sees views of its own rows:
other rows are neither moved nor given a state here, and are put together for a checkpoint and at the end. Shared
parameters are moved by every process alike: all have the same gradient, to the bit.
"""

from typing import Any

import torch
from torch import nn

from tinyset.division import Division
from tinyset.parameterizations.base import Parameterization
from tinyset.processes import Team


class Ownership:
    def __init__(self, synthetic: Parameterization, division: Division, team: Team) -> None:
        self.team = team
        self._given = division.speaks
        self._rows: dict[nn.Parameter, slice] = {}  # of each parameter with rows of every class
        self._owned: list[tuple[nn.Parameter, nn.Parameter]] = []  # (parameter, what the optimizer moves), in its order
        if team.size > 1:
            named, mine = dict(synthetic.named_parameters()), division.classes
            for name in synthetic.rows(0):
                first, last = (synthetic.rows(c)[name] for c in (mine[0], mine[-1])) if mine else (slice(0, 0),) * 2
                self._rows[named[name]] = slice(first.start, last.stop)

    def moved(self, parameter: nn.Parameter) -> nn.Parameter:
        """What the optimizer is given for a parameter: itself, or our rows of it (the same memory)."""
        rows = self._rows.get(parameter)
        own = parameter if rows is None else nn.Parameter(parameter.data[rows])
        self._owned.append((parameter, own))
        return own

    def hand_over(self) -> None:
        """The gradients of our rows, to what the optimizer moves."""
        for parameter, own in self._owned:
            if own is not parameter:
                own.grad = torch.zeros_like(own) if parameter.grad is None else parameter.grad[self._rows[parameter]]
                parameter.grad = None

    @torch.no_grad()
    def put_together(self) -> None:
        """All rows of all parameters, on every process."""
        for parameter, rows in self._rows.items():
            self.team.put_together_(parameter.data, rows if self._given else slice(0, 0))

    def whole_state(self, state: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
        """The optimizer's state as one process would have it."""
        return {at: {key: self._whole(at, value) for key, value in values.items()} for at, values in state.items()}

    def own_state(self, state: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
        """The inverse: our rows of a whole state."""
        return {at: {key: self._part(at, value) for key, value in values.items()} for at, values in state.items()}

    def _whole(self, at: int, value: Any) -> Any:
        parameter, own = self._owned[at]
        if own is parameter or not isinstance(value, torch.Tensor) or value.shape != own.shape:
            return value
        rows = self._rows[parameter]
        whole = torch.zeros_like(parameter, dtype=value.dtype)
        whole[rows] = value
        self.team.put_together_(whole, rows if self._given else slice(0, 0))
        return whole

    def _part(self, at: int, value: Any) -> Any:
        parameter, own = self._owned[at]
        if own is parameter or not isinstance(value, torch.Tensor) or value.shape != parameter.shape:
            return value
        return value[self._rows[parameter]].clone()
