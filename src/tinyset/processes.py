"""The processes of one run, as torchrun starts them, and what they tell each other. `division.py` divides the work.

torch.distributed does the talking: gloo between CPUs, nccl between GPUs. A program calls `join()` once; from then on the
rooms ask `team()`. Who never joins is a team of one, and torch.distributed is not even imported.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from tinyset.errors import RunError

if TYPE_CHECKING:
    import torch

PATIENCE = timedelta(
    hours=1
)  # of a process that waits for another which is alive but silent; a dead one is noticed at once
T = TypeVar("T")


def launched() -> bool:
    """Whether torchrun (or who sets its variables) started this process."""
    return all(name in os.environ for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"))


def launched_size() -> int:
    """How many processes torchrun started."""
    return int(os.environ["WORLD_SIZE"]) if launched() else 1


def local_rank() -> int | None:
    """The number of this process on its machine; None where torchrun did not start it."""
    return int(os.environ["LOCAL_RANK"]) if launched() else None


def restarted() -> bool:
    """Whether torchrun started us again after a worker died: then a run goes on from its checkpoint."""
    return launched() and int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


@contextmanager
def talking() -> Iterator[None]:
    """torch.distributed tells of a dead or silent peer by all kinds of RuntimeError: one sentence."""
    try:
        yield
    except RuntimeError as error:
        raise RunError(
            "Another process of this run died or does not answer; what was finished is kept: start the same command again "
            "(condense goes on from its last checkpoint with --resume)."
        ) from error


@dataclass(frozen=True)
class Team:
    """Some processes that work together. A team of one asks nobody."""

    rank: int = 0
    size: int = 1
    group: Any = None  # torch.distributed's handle; None: all processes

    @property
    def leads(self) -> bool:
        """The first process alone writes and speaks."""
        return self.rank == 0

    def share(self, count: int) -> range:
        """This process's run of `count` things."""
        return range(self.rank * count // self.size, (self.rank + 1) * count // self.size)

    def sum_(self, tensor: "torch.Tensor") -> "torch.Tensor":
        """The sum over the processes, in place."""
        if self.size > 1 and tensor.numel():
            import torch.distributed as dist

            there = tensor if tensor.device.type in ("cpu", "cuda") else tensor.cpu()
            with talking():
                dist.all_reduce(there, group=self.group)
            if there is not tensor:
                tensor.copy_(there)
        return tensor

    def largest(self, number: int) -> int:
        if self.size == 1:
            return number
        import torch
        import torch.distributed as dist

        box = torch.tensor(number)
        with talking():
            dist.all_reduce(box, dist.ReduceOp.MAX, group=self.group)
        return int(box)

    def first(self, make: Callable[[], T]) -> T:
        """What the first process makes, on all of them."""
        if self.size == 1:
            return make()
        import torch.distributed as dist

        box = [make() if self.leads else None]
        with talking():
            dist.broadcast_object_list(box, 0)
        return box[0]  # type: ignore[return-value]

    def to_first(self, value: T) -> list[T]:
        """Everybody's value in the order of ranks, on the first process; nothing on the others."""
        if self.size == 1:
            return [value]
        import torch.distributed as dist

        values: list[Any] | None = [None] * self.size if self.leads else None
        with talking():
            dist.gather_object(value, values, 0)
        return values or []

    def to_all(self, value: T) -> list[T]:
        """Everybody's value in the order of ranks."""
        if self.size == 1:
            return [value]
        import torch.distributed as dist

        values: list[Any] = [None] * self.size
        with talking():
            dist.all_gather_object(values, value)
        return values

    def rows(self, made: "Mapping[int, torch.Tensor]", count: int) -> "list[torch.Tensor]":
        """Rows 0 .. count-1 on every process, where each made some of them (one or more): adding zeros is exact."""
        if self.size == 1:
            return [made[at] for at in range(count)]
        some = next(iter(made.values()))
        table = some.new_zeros(count, *some.shape)
        for at, row in made.items():
            table[at] = row
        return list(self.sum_(table))

    def put_together_(self, tensor: "torch.Tensor", mine: slice) -> None:
        """Everybody's rows of a tensor, each given by one process, bit for bit: added up as whole numbers."""
        if self.size == 1:
            return
        import torch

        kind = {2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
        bits = torch.zeros_like(tensor, memory_format=torch.contiguous_format).view(kind)
        bits[mine] = tensor[mine].contiguous().view(kind)
        tensor.copy_(self.sum_(bits).view(tensor.dtype))


ALONE = Team()
_team = ALONE


def team() -> Team:
    """All processes of this program, since it joined them."""
    return _team


def join(cuda: bool = False) -> Team:
    """Meet the other processes that torchrun started; called once, by every one of them."""
    global _team
    if not launched() or _team is not ALONE:
        return _team
    if (size := launched_size()) > 1:
        import torch
        import torch.distributed as dist

        if cuda:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        with talking():
            store, rank, _ = next(dist.rendezvous("env://", timeout=PATIENCE))
            # torchrun's store lives longer than its workers: those that died must not be called at their old addresses
            attempt = f"tinyset/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{size}"
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if cuda else "gloo",
                store=dist.PrefixStore(attempt, store),
                rank=rank,
                world_size=size,
                timeout=PATIENCE,
            )
    _team = Team(int(os.environ["RANK"]), size)
    return _team


def leave() -> None:
    """After the work: give up the connections."""
    global _team
    if _team.size > 1:
        import torch.distributed as dist

        dist.destroy_process_group()
    _team = ALONE


def speaks() -> bool:
    """Whether this process says why the run failed: the first one to fail does, what the others say follows from it."""
    if _team.size == 1:
        return not launched() or os.environ["RANK"] == "0"
    from torch.distributed.distributed_c10d import _get_default_store

    try:
        return _get_default_store().add("tinyset/failures", 1) == 1
    except RuntimeError:  # the store is gone with the machine that kept it
        return True
