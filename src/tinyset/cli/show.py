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


def figure(condensed: Any, decoder: int = 0, code: int = 0, most: int = 16) -> Any:
    """The picture, as a PIL image."""
    import torch

    from tinyset.errors import UserError
    from tinyset.pictures import grid, short

    decoders = condensed.config.spec.get("decoders") or 1
    if not 0 <= decoder < decoders:
        raise UserError(f"--decoder {decoder}: the set has decoders 0 to {decoders - 1}.")
    codes, styles = [], []
    for c, name in enumerate(condensed.class_names):
        count = condensed.parameterization.counts[c] // decoders
        if not 0 <= code < count:
            raise UserError(f"--code {code}: class {name!r} has codes 0 to {count - 1}.")
        walk = torch.arange(min(most, count)) * decoders + decoder
        codes.append((short(name), list(condensed.parameterization.decode(c, walk))))
        styles.append(
            (
                short(name),
                list(condensed.parameterization.decode(c, code * decoders + torch.arange(min(most, decoders)))),
            )
        )
    top = grid(codes, title=f"decoder {decoder}, codes 0 to {max(len(r) for _, r in codes) - 1}")
    if decoders == 1:
        return top
    bottom = grid(styles, title=f"code {code}, decoders 0 to {max(len(r) for _, r in styles) - 1}")
    return _stack(top, bottom)


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

    picture = figure(load(args.artifact), args.decoder, args.code, args.most)
    try:
        Path(args.out).parent.mkdir(parents=True, exist_ok=True)
        picture.save(args.out)
    except (OSError, ValueError) as error:
        raise UserError(f"Cannot write --out {args.out}: {error}.") from None
    console.json({"picture": args.out, "width": picture.width, "height": picture.height})
    console.print(args.out)
    return 0
