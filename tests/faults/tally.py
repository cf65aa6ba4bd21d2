"""What was tried and what was survived."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.faults.lab import Lab


class Skip(Exception):
    """This machine cannot do that to us; the reason."""


@dataclass
class Tally:
    """One row of the table."""

    name: str
    tried: int = 0
    failures: list[str] = field(default_factory=list)
    skipped: str | None = None
    seconds: float = 0.0

    def check(self, fault: str, problem: str | None) -> bool:
        """Count a try; `problem` is None where it was survived."""
        self.tried += 1
        if problem is not None:
            self.failures.append(f"{fault}: {problem}")
        return problem is None

    @property
    def survived(self) -> int:
        return self.tried - len(self.failures)


Scenario = Callable[[Lab, Tally], None]
SCENARIOS: dict[str, tuple[str, Scenario]] = {}


def fault(name: str, what: str) -> Callable[[Scenario], Scenario]:
    def register(scenario: Scenario) -> Scenario:
        SCENARIOS[name] = (what, scenario)
        return scenario

    return register


def suffer(name: str, lab: Lab) -> Tally:
    tally = Tally(name)
    began = time.monotonic()
    try:
        SCENARIOS[name][1](lab, tally)
    except Skip as reason:
        tally.skipped = str(reason)
    except Exception as error:
        tally.check(name, f"{type(error).__name__}: {error}")
    tally.seconds = time.monotonic() - began
    if not tally.tried and tally.skipped is None:
        tally.check(name, "nothing was tried")
    return tally


def spread(total: int, most: int) -> list[int]:
    """At most `most` numbers of 1 .. total, evenly spread, both ends included."""
    if total <= most:
        return list(range(1, total + 1))
    return sorted({1 + round(i * (total - 1) / (most - 1)) for i in range(most)})
