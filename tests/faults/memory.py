"""A plan that will not fit in memory is refused before it starts, and the flags it names make it fit."""

import re

from tests.faults.lab import Hurt, Lab
from tests.faults.tally import Tally, fault


def _free(size: int) -> Hurt:
    """A machine with so many bytes left."""
    return Hurt({"tinyset.condensation.available_memory_bytes": lambda *_: size})


@fault("memory", "a plan larger than the memory is refused, and fits with the flags that are named")
def memory(lab: Lab, tally: Tally) -> None:
    flags = ["--steps", "2", "--images-per-class", "4"]
    cache = lab.warm_cache(*flags)
    named = 0
    for free in (0, 200_000, 400_000, 700_000, 1_000_000, 2_000_000):
        run = lab.fresh() / "run"
        done = lab.run(lab.condense(run, *flags), cache, _free(free))
        if done.code == 0:
            tally.check(f"{free} bytes", None)
            continue
        problem = None if done.code == 2 and "of memory" in (done.sentence or "") else str(done)
        problem = problem or ("something was left behind" if run.exists() else None)
        remedy = re.findall(r"(--(?:chunk|memory-limit)) (\S+)", done.sentence or "")
        if problem is None and remedy:
            named += 1
            more = [part for pair in remedy for part in pair]
            again = lab.run(lab.condense(run, *flags, *more), cache, _free(free))
            problem = None if again.code == 0 else f"{' '.join(more)} does not help: {again}"
        tally.check(f"{free} bytes", problem)
    tally.check("the sweep", None if named else "no refusal named a flag")
