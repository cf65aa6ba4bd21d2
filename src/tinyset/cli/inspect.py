"""What a condensed set holds and what it costs, by the paper's count and in real bytes."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import tyro

from tinyset.cli.common import Common

if TYPE_CHECKING:
    from tinyset.cli.console import Console


@dataclass(kw_only=True)
class Args(Common):
    artifact: tyro.conf.Positional[str]
    """A condensed set's folder, or the name of a shipped one."""


def run(args: Args, console: "Console") -> int:
    from rich.table import Table

    from tinyset.condensed import load
    from tinyset.errors import one_line

    condensed = load(args.artifact)
    config = condensed.config
    ledger = condensed.ledger()
    more = {
        "image_shape": list(condensed.image_shape),
        "precision": config.precision,
        "method": config.method,
        "recipe": config.recipe,
        "steps": config.steps,
        "seed": config.seed,
        "protocol": config.protocol,
        "source": config.source,
        "sha256": condensed.fingerprint,
    }
    console.json({**ledger, **more})
    table = Table(show_header=False, box=None)
    for key, value in {**ledger, **more}.items():
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        table.add_row(key.replace("_", " "), one_line(text))
    console.print(table)
    return 0
