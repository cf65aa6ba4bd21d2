"""Stopping well: a time limit, SIGINT and SIGTERM are asked about between steps, never inside one."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tinyset.processes import Team


class Stop:
    """Asked between steps. `reason` is None, "time" (the limit is reached) or the name of a signal."""

    def __init__(self, time_limit_s: float | None = None) -> None:
        self._deadline = None if time_limit_s is None else time.monotonic() + time_limit_s
        self._signal: int | None = None

    @property
    def reason(self) -> str | None:
        if self._signal is not None:
            return signal.Signals(self._signal).name
        if self._deadline is not None and time.monotonic() >= self._deadline:
            return "time"
        return None

    @property
    def exit_code(self) -> int:
        """128 + the signal, as shells count; 0 after a time limit, which is a wish fulfilled."""
        return 0 if self._signal is None else 128 + self._signal

    def reason_of_all(self, team: Team) -> str | None:
        """The same answer on every process of a team, asked at the same place: what one was told, all were."""
        if team.size > 1:
            told = team.largest(1 + (self._signal or 0) if self.reason else 0)
            if told == 1 and self._signal is None:
                self._deadline = time.monotonic()
            elif told > 1:
                self._signal = told - 1
            return self.reason if told else None
        return self.reason

    def leave(self, where: str) -> None:
        """Where there is nothing to save: end the work if a stop is asked for."""
        if (reason := self.reason) is not None:
            raise Interrupted(f"Stopped by {reason} {where}; the same command goes on.", self.exit_code)

    def catch(self, number: int, _frame: FrameType | None) -> None:
        self._signal = number


class Interrupted(BaseException):
    """A signal ended the work after its checkpoint; carries the exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@contextmanager
def signals_to(stop: Stop) -> Iterator[Stop]:
    """Within the block the first SIGINT or SIGTERM sets `stop`; a second SIGINT interrupts at once."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def once(number: int, frame: FrameType | None) -> None:
        stop.catch(number, frame)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    for number in before:
        signal.signal(number, once)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
