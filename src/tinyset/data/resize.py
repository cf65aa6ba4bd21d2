"""Images that are already tensors, resized and centre-cropped as files are."""

import torch
from torch.nn import functional as F

from tinyset.data.imageset import ImageSet

CHUNK = 1024


def resized(images: ImageSet, size: tuple[int, int] | None) -> ImageSet:
    """The shorter side fits, the longer one is cropped to the middle; antialiased. Untouched where it fits already."""
    height, width = images.images.shape[2:]
    if size is None or size == (height, width):
        return images
    scale = max(size[0] / height, size[1] / width)
    target = max(round(height * scale), size[0]), max(round(width * scale), size[1])
    top, left = (target[0] - size[0]) // 2, (target[1] - size[1]) // 2
    result = torch.empty(len(images), images.images.shape[1], *size, dtype=torch.uint8)
    for start in range(0, len(images), CHUNK):
        chunk = images.images[start : start + CHUNK].float()
        chunk = F.interpolate(chunk, target, mode="bicubic", antialias=True, align_corners=False)
        chunk = chunk[:, :, top : top + size[0], left : left + size[1]]
        result[start : start + CHUNK] = chunk.round().clamp(0, 255).to(torch.uint8)
    return ImageSet(result, images.labels, images.class_names)
