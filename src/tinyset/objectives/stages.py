"""Networks of the bank at stages of their training, beyond the paper: features of a network that has learned a little say more
about the classes than random ones (IDC and later papers live on them).

    network k of the bank = expert k // S after stages[k % S] epochs of `stage_steps` steps, S stages each
"""

from collections.abc import Sequence
from typing import Any

from torch import nn

from tinyset.interrupts import Stop
from tinyset.objectives.experts import Experts, put_weights


class Stages:
    """Experts as the networks of a bank."""

    def __init__(self, experts: Experts, stages: Sequence[int]) -> None:
        self.experts, self.stages = experts, tuple(stages)
        self.identity: dict[str, Any] = {"experts": experts.identity, "stages": list(stages)}

    def ensure(self, networks: int, stop: Stop) -> int:
        """Train what is missing; a multiple of the stages where `stop` came first."""
        experts = self.experts.ensure(-(-networks // len(self.stages)), max(self.stages), stop)
        return min(networks, experts * len(self.stages))

    def put(self, network: nn.Module, k: int) -> None:
        expert, at = divmod(k, len(self.stages))
        put_weights(network, self.experts.load(expert, self.stages[at]))
