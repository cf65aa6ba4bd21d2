"""Small condensed sets of every kind, made in a second or two, and a run folder around one."""

from pathlib import Path
from typing import Any

import torch

from tinyset.condensation import run
from tinyset.condensed import CondensedSet, make_config
from tinyset.data.imageset import ImageSet, Splits
from tinyset.methods import resolve
from tinyset.parameterizations.labels import learn_labels
from tinyset.parameterizations.pixels import Pixels
from tinyset.parameterizations.tiles import Tiles
from tinyset.parameterizations.zca import ZCA
from tinyset.rng import generator

NASTY = ("<script>document.title='broken'</script>", 'a/b & "c"', "größer")
TINY: dict[str, Any] = {
    "images_per_class": 1,
    "steps": 6,
    "networks": 2,
    "pretrain_steps": 20,
    "network": "convnet1:width=4",
    "decoders": 3,
    "codes": 4,
    "device": "cpu",
    "compile": "never",
}

# three sets of `TINY` fit, whose sizes are their own
ROOMY: dict[str, Any] = {"codes": None, "decoders": None, "images_per_class": None, "params_per_class": 4000}


def stripes(
    per_class: int, seed: int, side: int = 16, names: tuple[str, ...] = NASTY, strength: float = 0.45
) -> ImageSet:
    """RGB noise with a bright stripe that says the class."""
    labels = torch.arange(len(names)).repeat_interleave(per_class)
    images = torch.rand(len(labels), 3, side, side, generator=generator(seed, "stripes")) * 0.5
    high = side // len(names)
    for i, label in enumerate(labels.tolist()):
        images[i, label % 3, high * label : high * (label + 1)] += strength
    return ImageSet((images * 255).to(torch.uint8), labels, names)


def splits() -> Splits:
    return Splits("stripes", stripes(20, 0), stripes(10, 1), mirror=False)


def codes_set(**settings: Any) -> CondensedSet:
    return run(resolve("plain", {**TINY, **settings}), splits()).condensed


def families_set(folder: Path, count: int = 3, **settings: Any) -> CondensedSet:
    """`count` sets of different seeds side by side, which are made in `folder` where they are not there."""
    starts = [str(folder / f"family{seed}") for seed in range(count)]
    for seed, start in enumerate(starts):
        if not Path(start).exists():
            codes_set(steps=1, seed=seed).save(start)
    return codes_set(**{**ROOMY, "steps": 0, "start": ",".join(starts), **settings})


def stored_set(kind: str, soft: bool = False) -> CondensedSet:
    """An untrained set of pixels (`zca`: whitened) or tiles that starts from real images."""
    real = stripes(6, 0)
    draw = generator(0, "set")
    made: Pixels | Tiles
    if kind == "tiles":
        made = Tiles.create(real, [2, 1, 1], "real", draw, factor=3)  # 16 / 3: tiles of 5 and 6 pixels
    else:
        made = Pixels.create(real, [3, 2, 2], "real", draw)
        if kind == "zca":
            made = Pixels(real.image_shape, [3, 2, 2], ZCA.fit(real))
            made.assign(real.images[:7] / 255)
    if soft:
        learn_labels(made)
    config = make_config(
        kind=made.kind,
        spec=made.spec(),
        class_names=list(real.class_names),
        image_shape=real.image_shape,
        mean=[0.4, 0.5, 0.6],
        std=[0.2, 0.25, 0.3],
        mirror=False,
        nominal_params_per_class=768.0,
        source="stripes",
        source_bytes=real.images.numel(),
    )
    return CondensedSet(made, config)
