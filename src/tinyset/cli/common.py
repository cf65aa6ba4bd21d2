"""Flags that every verb has, and the short ways people write sizes and durations."""

from dataclasses import dataclass
from typing import Annotated

import tyro


@dataclass(kw_only=True)
class Common:
    seed: int = 0
    """Everything random follows from this number."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps."""
    threads: int | None = None
    """CPU threads. The bytes of a result depend on their number."""
    json: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = False
    """One JSON object on stdout and nothing else there."""
    quiet: bool = False
    """No progress on stderr."""


@dataclass(kw_only=True)
class DataFlags:
    data_dir: str | None = None
    """Where the benchmark files are (default: the user's cache)."""
    image_size: str | None = None
    """Resize and centre-crop folder images to this side, 64, or height x width, 60x40."""
    holdout: float | None = None
    """Share of a folder without a test split that becomes one, for example 0.1."""
    skip_bad: bool = False
    """Skip unreadable image files instead of stopping."""


def read_data(source: str, flags: DataFlags, console: "Console", seed: int = 0) -> "Splits":  # type: ignore[name-defined]  # noqa: F821
    """The source's images; what the loader wants said is said."""
    from tinyset.data import load_images

    splits = load_images(
        source,
        data_dir=flags.data_dir,
        image_size=flags.image_size,
        holdout=flags.holdout,
        skip_bad=flags.skip_bad,
        seed=seed,
        progress=console.progress,
    )
    for note in splits.notes:
        console.note(note)
    return splits
