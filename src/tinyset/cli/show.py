"""The paper's picture figure, per class: one decoder x all codes, and one code x all decoders."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tyro

from tinyset.cli.common import Common

if TYPE_CHECKING:
    from tinyset.cli.console import Console


@dataclass(kw_only=True)
class Args(Common):
    artifact: tyro.conf.Positional[str]
    """A condensed set's folder, or the name of a shipped one."""
    out: str = "show.png"
    """Where the picture goes."""
    decoder: int = 0
    """The decoder that is held while the codes vary."""
    code: int = 0
    """The code that is held while the decoders vary."""
    most: int = 16
    """At most this many images in a row."""
    classes: str | None = None
    """Only these classes, separated by commas."""


def figure(condensed: Any, decoder: int = 0, code: int = 0, most: int = 16, classes: str | None = None) -> Any:
    """The picture, as a PIL image: codes above, styles below them."""
    import torch

    from tinyset.errors import UserError
    from tinyset.pictures import grid, short

    decoders = condensed.config.spec.get("decoders") or 1
    if not 0 <= decoder < decoders:
        raise UserError(f"--decoder {decoder}: the set has decoders 0 to {decoders - 1}.")
    decode = condensed.parameterization.decode
    codes, styles = [], []
    for c, name in _chosen(condensed.class_names, classes):
        count = condensed.parameterization.counts[c] // decoders
        if not 0 <= code < count:
            raise UserError(f"--code {code}: class {name!r} has codes 0 to {count - 1}.")
        codes.append((short(name), list(decode(c, torch.arange(min(most, count)) * decoders + decoder))))
        styles.append((short(name), list(decode(c, torch.arange(min(most, decoders)) + code * decoders))))
    top = grid(codes, title=f"decoder {decoder}, codes 0 to {max(len(row) for _, row in codes) - 1}")
    if decoders == 1:
        return top
    return _stack(top, grid(styles, title=f"code {code}, decoders 0 to {len(styles[0][1]) - 1}"))


def _chosen(names: Any, wanted: str | None) -> list[tuple[int, str]]:
    from tinyset.errors import UserError

    if wanted is None:
        return list(enumerate(names))
    chosen = wanted.split(",")
    for name in chosen:
        if name not in names:
            raise UserError(f"--classes: there is no class {name!r}.")
    return [(names.index(name), name) for name in chosen]


def _stack(top: Any, bottom: Any) -> Any:
    from PIL import Image

    sheet = Image.new("RGB", (max(top.width, bottom.width), top.height + 12 + bottom.height), (255, 255, 255))
    sheet.paste(top, (0, 0))
    sheet.paste(bottom, (0, top.height + 12))
    return sheet


def run(args: Args, console: "Console") -> int:
    from pathlib import Path

    from tinyset.condensed import load
    from tinyset.errors import UserError

    picture = figure(load(args.artifact), args.decoder, args.code, args.most, args.classes)
    try:
        Path(args.out).parent.mkdir(parents=True, exist_ok=True)
        picture.save(args.out)
    except (OSError, ValueError) as error:
        raise UserError(f"Cannot write --out {args.out}: {error}.") from None
    console.json({"picture": args.out, "width": picture.width, "height": picture.height})
    console.print(args.out)
    return 0
