"""How long work tells the world where it is. The library only speaks to this; `cli` draws it."""

from typing import Protocol


class Progress(Protocol):
    def start(self, task: str, total: int) -> None:
        """A task of `total` units begins, and the one before it is over."""

    def update(self, done: int, **values: float) -> None:
        """`done` units are finished; `values` are worth showing (loss, images_per_s)."""

    def note(self, message: str) -> None:
        """One line the user should read."""

    def finish(self) -> None:
        """The last task is over."""


class Silent:
    def start(self, task: str, total: int) -> None: ...
    def update(self, done: int, **values: float) -> None: ...
    def note(self, message: str) -> None: ...
    def finish(self) -> None: ...
