"""Read a condensed set with numpy alone: no torch, no tinyset. For JAX, TensorFlow, MLX, or your own framework.

    python read_with_numpy.py FOLDER        prints what is inside
    images, labels, config = read(FOLDER)   float32 N x C x H x W in [0, 1], int64 labels, config.json
    normalised(images, config)              what networks see, of these images and of real ones

The format is written down in docs/format.md.
"""

import json
import sys
from pathlib import Path

import numpy as np

DTYPES = {"F32": "<f4", "F16": "<f2", "I8": "i1", "I32": "<i4", "I64": "<i8"}


def read(folder):
    """All synthetic images, class after class, their labels and the description."""
    config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    if config["format"] != 1:
        raise ValueError(f"format {config['format']} is not format 1")
    tensors = unpack(safetensors(Path(folder) / "condensed.safetensors"))
    images = {"codes": decode_codes, "pixels": decode_pixels, "tiles": decode_tiles}[config["kind"]](config, tensors)
    spec = config["spec"]
    counts = spec["counts"] if "counts" in spec else [m * spec["decoders"] for m in spec["codes_per_class"]]
    return images, np.repeat(np.arange(len(counts)), counts), config


def safetensors(path):
    """The arrays of a safetensors file: 8 bytes of header length, a JSON header, the numbers."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    arrays = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            numbers = np.frombuffer(data[start + begin : start + end], DTYPES[entry["dtype"]])
            arrays[name] = numbers.reshape(entry["shape"])
    return arrays


def unpack(stored):
    """float32 arrays. int8 ones have a scale per channel (axis 1 of four, else axis 0) in NAME.scale."""
    arrays = {}
    for name, array in stored.items():
        if name.endswith(".scale") and name.removesuffix(".scale") in stored:
            continue
        if array.dtype == np.int8 and name + ".scale" in stored:
            shape = [1] * array.ndim
            shape[1 if array.ndim == 4 else 0] = -1
            array = array.astype(np.float32) * stored[name + ".scale"].reshape(shape)
        arrays[name] = array.astype(np.float32) if array.dtype.kind == "f" else array
    return arrays


def decode_codes(config, tensors):
    """Every code through every decoder of its family: transposed 2x2 convolutions of stride 2, then a sigmoid."""
    spec = config["spec"]
    layers, decoders, families = len(spec["channels"]) - 1, spec["decoders"], spec.get("families", 1)
    family = np.concatenate([np.arange(m) * families // m for m in spec["codes_per_class"]])
    which = family[:, None] * decoders + np.arange(decoders)  # codes x decoders
    maps = np.repeat(tensors["codes"][:, None], decoders, axis=1)  # codes x decoders x C x H x W
    for i in range(layers):
        weight, bias = tensors[f"decoders.{i}.weight"][which], tensors[f"decoders.{i}.bias"][which]
        # with kernel 2 and stride 2 each pixel becomes a 2x2 block: a product per pixel, then a rearrangement
        blocks = np.einsum("mdchw,mdcoyx->mdohywx", maps, weight, optimize=True)
        codes, _, channels, height, _, width, _ = blocks.shape
        maps = blocks.reshape(codes, decoders, channels, 2 * height, 2 * width) + bias[..., None, None]
    _, height, width = config["image_shape"]
    pixels = 1 / (1 + np.exp(-maps[..., :height, :width]))
    return pixels.reshape(-1, *pixels.shape[2:])


def decode_pixels(config, tensors):
    """The stored images; undo the whitening where there is one."""
    images = tensors["images"]
    if config["spec"].get("zca"):
        basis, scale, mean = (tensors[f"zca.{name}"] for name in ("basis", "scale", "mean"))
        images = (images.reshape(len(images), -1) @ basis * scale @ basis.T + mean).reshape(images.shape)
    return images.clip(0, 1)


def decode_tiles(config, tensors):
    """Each stored image holds factor x factor small ones; each is enlarged bilinearly to full size."""
    factor, (_, height, width) = config["spec"]["factor"], config["image_shape"]
    rows, columns = ([round(i * side / factor) for i in range(factor + 1)] for side in (height, width))
    tiles = [
        enlarge(tensors["images"][:, :, rows[r] : rows[r + 1], columns[q] : columns[q + 1]], height, width)
        for r in range(factor)
        for q in range(factor)
    ]
    return np.stack(tiles, axis=1).reshape(-1, *config["image_shape"]).clip(0, 1)


def enlarge(images, height, width):
    """Bilinear, pixel centres aligned at the corners of the area (align_corners=False)."""
    for axis, size in ((2, height), (3, width)):
        old = images.shape[axis]
        at = ((np.arange(size) + 0.5) * old / size - 0.5).clip(0, old - 1)
        low = np.floor(at).astype(int)
        high = np.minimum(low + 1, old - 1)
        share = (at - low).reshape([-1 if a == axis else 1 for a in range(4)]).astype(np.float32)
        images = np.take(images, low, axis) * (1 - share) + np.take(images, high, axis) * share
    return images


def normalised(images, config):
    """(x - mean) / std, then through the whitening filter where there is one."""
    mean, std = (np.array(config[name], np.float32).reshape(1, -1, 1, 1) for name in ("mean", "std"))
    images = (images - mean) / std
    if not config.get("whitening"):
        return images
    kernel = np.array(config["whitening"], np.float32)
    side = kernel.shape[-1]
    wide = np.pad(images, ((0, 0), (0, 0), (side // 2, side // 2), (side // 2, side // 2)), mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(wide, (side, side), axis=(2, 3))
    return np.einsum("nbhwij,cbij->nchw", windows, kernel, optimize=True)


if __name__ == "__main__":
    images, labels, config = read(sys.argv[1])
    print(
        f"{len(images)} images {images.shape[1:]} of {len(config['class_names'])} classes, made by {config['method']}"
    )
    print(f"normalise with mean {config['mean']} and std {config['std']}{', then whiten' * ('whitening' in config)}")
