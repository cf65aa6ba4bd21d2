"""Every random draw comes from an explicit generator derived from one seed and the name of its purpose.

A generator is a pure function of (seed, names), for example `generator(0, "augment", step)`: nothing has to be
carried from step to step, so a run resumed at step 700 draws what an uninterrupted run would have drawn there.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch

Name = str | int


def derive(seed: int, *names: Name) -> int:
    """A 63-bit seed for this purpose, independent of every other purpose's."""
    text = "/".join(str(part) for part in (seed, *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *names: Name) -> torch.Generator:
    """A CPU generator for this purpose. Draws are made on the CPU so that devices agree."""
    return torch.Generator().manual_seed(derive(seed, *names))


@contextmanager
def seeded_globals(seed: int, *names: Name) -> Iterator[None]:
    """Seed torch's global CPU generator inside the block and restore it after: for code that is not ours to change."""
    state = torch.get_rng_state()
    torch.default_generator.manual_seed(derive(seed, *names))
    try:
        yield
    finally:
        torch.set_rng_state(state)
