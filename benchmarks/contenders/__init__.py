"""What competes. Each function sets itself up, warms up, and returns a function that does a round and says how much."""

from collections.abc import Callable

Run = Callable[[], float]
