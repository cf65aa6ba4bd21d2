"""Images as a picture: grids of tiles, enlarged so that people can see them."""

from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

GAP = 2
INK, PAPER = (40, 40, 40), (255, 255, 255)


def tile(image: torch.Tensor, scale: int) -> Image.Image:
    """One image, C x H x W in [0, 1], enlarged without smoothing."""
    if image.shape[0] not in (1, 3):
        image = image.mean(0, keepdim=True)
    pixels = (image.detach().cpu().clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    if pixels.shape[2] == 1:
        pixels = np.repeat(pixels, 3, axis=2)
    picture = Image.fromarray(pixels)
    return picture.resize((picture.width * scale, picture.height * scale), Image.Resampling.NEAREST)


def grid(
    rows: Sequence[tuple[str, Sequence[torch.Tensor]]], *, scale: int | None = None, title: str = ""
) -> Image.Image:
    """Rows of images, each with a label at its left; `title` above them."""
    height, width = rows[0][1][0].shape[-2:]
    scale = scale or max(1, round(48 / max(height, width)))
    font = ImageFont.load_default(14)
    measure = ImageDraw.Draw(Image.new("RGB", (1, 1)))
    margin = max((round(measure.textlength(label, font=font)) for label, _ in rows), default=0)
    margin = margin + 8 if margin else 0
    top = 24 if title else 0
    step_x, step_y = width * scale + GAP, height * scale + GAP
    longest = max(len(images) for _, images in rows)
    wide = max(margin + longest * step_x, round(measure.textlength(title, font=font)) + 8)
    sheet = Image.new("RGB", (wide, top + len(rows) * step_y), PAPER)
    draw = ImageDraw.Draw(sheet)
    if title:
        draw.text((4, 3), title, fill=INK, font=font)
    for r, (label, images) in enumerate(rows):
        y = top + r * step_y
        draw.text((4, y + step_y // 2 - 9), label, fill=INK, font=font)
        for i, image in enumerate(images):
            sheet.paste(tile(image, scale), (margin + i * step_x, y))
    return sheet


def short(name: str, most: int = 18) -> str:
    """A class name that fits a margin, on one line."""
    name = " ".join(name.split())
    return name if len(name) <= most else name[: most - 1] + "…"
