"""Sets that live: a class is added to a condensed set, or forgotten by it. The old set is never touched.

A new class of a KFS set costs its codes: the decoders that are there serve it, frozen. Its codes start as the least-squares
codes of real images under all D decoders in the space of logits, and are then trained by the one outer loop:

    theta_n = argmin_theta sum_d | theta A_d + b_d - logit(x_n) |^2  =  (logit(x_n) sum_d A_d' - sum_d b_d A_d') (sum_d A_d A_d')^-1

| symbol | here |
|---|---|
| A_d, b_d | decoder d as the affine map of a code position to the logits of its patch (`Decoders.affine`) |
| x_n | a patch of a real image |
"""

from typing import Any, Literal

import torch

from tinyset.condensed import CondensedSet
from tinyset.config import CondenseConfig
from tinyset.data.imageset import ImageSet, Splits
from tinyset.downstream.parts import Parts, changed, class_index, per_unit, refuse_families, unit_counts
from tinyset.errors import UserError
from tinyset.interrupts import Stop
from tinyset.loop import Loop
from tinyset.machine import keep_memory, pick_device, set_threads
from tinyset.methods import resolve
from tinyset.parameterizations.autoencoder import padded
from tinyset.parameterizations.base import Parameterization
from tinyset.parameterizations.codes import Codes
from tinyset.parameterizations.decoders import Decoders
from tinyset.parameterizations.pixels import Pixels, choose
from tinyset.parameterizations.tiles import Tiles
from tinyset.progress import Progress, Silent
from tinyset.rng import generator

RIDGE = 1e-4  # of the mean diagonal: decoders may leave a direction of the code unused


def forget(condensed: CondensedSet, class_name: str) -> CondensedSet:
    """The set without this class: its codes or images, its name and its column of learned labels are gone.

    Decoders and whitening stay as they are. They were learned while the class was there: to be rid of that too, condense again.
    """
    c = class_index(condensed, class_name)
    if len(condensed.class_names) == 1:
        raise UserError(f"--class {class_name}: it is the only class of the set.")
    made = Parts.of(condensed.parameterization).without(c).together()
    names = [name for name in condensed.class_names if name != class_name]
    # how many of the source's images were of the class is not recorded: nothing is claimed about the rest
    return changed(condensed, made, "a class was forgotten", class_names=names, source_bytes=0, source_images=0)


def grow(
    condensed: CondensedSet,
    data: Splits,
    class_name: str,
    *,
    decoders: Literal["frozen", "tuned"] = "frozen",
    units: int | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> CondensedSet:
    """The set with one class more, condensed from the images of that name in `data.train`.

    `units`: its codes (images, for a set of pixels); as many as the other classes have where None. `decoders="tuned"` trains
    all codes and the decoders together; classes that `data` does not have are held in place by their own synthetic images.
    `settings`: steps, network, networks, real_per_class, seed, ... of `CondenseConfig`.
    """
    progress = progress or Silent()
    if class_name in condensed.class_names:
        raise UserError(f"--class {class_name}: the set has it already; forget it first.")
    real = images_of(data.train, class_name, condensed)
    old = condensed.parameterization
    refuse_families(old)
    if decoders == "tuned" and not isinstance(old, Codes):
        raise UserError(f"--decoders tuned: a set of {old.kind} has no decoders.")
    counts = unit_counts(old)
    count = units if units is not None else round(sum(counts) / len(counts))
    if count < 1:
        raise UserError(f"--codes {count}: one or more are needed.")
    config = matching_settings(old.kind, settings)
    names = (*condensed.class_names, class_name)
    new = new_class(old, real, count, config.seed)
    if decoders == "frozen":
        match(new, Splits(class_name, real, mirror=condensed.mirror), config, progress)
        whole = with_classes(old, new)
    else:
        whole = with_classes(old, new)
        everything = _old_and_new(condensed, data.train, real, names)
        match(whole, Splits(class_name, everything, mirror=condensed.mirror), config, progress)
    known = condensed.config.source_bytes > 0
    return changed(
        condensed,
        whole.cpu(),
        f"grown by the class {class_name!r}: {config.steps} steps, decoders {decoders}",
        class_names=list(names),
        source_bytes=condensed.config.source_bytes + real.images.numel() if known else 0,
        source_images=condensed.config.source_images + len(real) if known else 0,
    )


def matching_settings(kind: str, settings: dict[str, Any]) -> CondenseConfig:
    """Distribution matching as the set's kind does it: KFS for codes, DM for images and tiles."""
    method = "kfs" if kind == "codes" else "dm"
    return resolve("plain", {**settings, "method": method, "parameterization": kind, "rates": {"labels": 0.01}})


def match(synthetic: Parameterization, data: Splits, config: CondenseConfig, progress: Progress) -> None:
    """The one outer loop, in memory: moves all of `synthetic` that has a gradient."""
    from tinyset.runs import RunFolder

    set_threads(config.threads)
    keep_memory()
    device = pick_device(config.device)
    with RunFolder(None, config, resume=False, overwrite=False) as folder:
        Loop(config, data, synthetic.to(device), device, folder, progress, Stop(config.time_limit_s)).run()
    synthetic.cpu()


def images_of(real: ImageSet, class_name: str, condensed: CondensedSet) -> ImageSet:
    """The images of one class as a set of their own, normalised as the condensed set is."""
    if class_name not in real.class_names:
        raise UserError(
            f"--class {class_name}: the source has no such class; it has {', '.join(real.class_names[:20])}."
        )
    if real.image_shape != condensed.image_shape:
        ours, theirs = ("x".join(map(str, shape)) for shape in (condensed.image_shape, real.image_shape))
        raise UserError(f"The source's images are {theirs} and those of the condensed set {ours}: use --image-size.")
    members = real.by_class[real.class_names.index(class_name)]
    if len(members) == 0:
        raise UserError(f"--class {class_name}: the source has no training images of it.")
    return ImageSet(real.images[members], torch.zeros(len(members), dtype=torch.int64), (class_name,), condensed.stats)


@torch.no_grad()
def new_class(old: Parameterization, real: ImageSet, units: int, seed: int) -> Parameterization:
    """`units` units of a class of `real`, started from its images, with the decoders or the whitening of `old`, frozen."""
    images = units * (per_unit(old) if isinstance(old, Tiles) else 1)
    index = choose(real, 0, images, generator(seed, "new class", real.class_names[0]))
    pixels = real.images[index].float() / 255
    made: Parameterization
    if isinstance(old, Codes):
        made = Codes(old.image_shape, [units], tuple(old.codes.shape[1:]), old.decoders.channels, old.per_code)  # type: ignore[arg-type]
        made.decoders.load({name: tensor.cpu() for name, tensor in old.decoders.tensors().items()})
        made.decoders.requires_grad_(False)
        made.codes.copy_(encode(made.decoders, real.images[index]))
    elif isinstance(old, Tiles):
        made = Tiles(old.image_shape, [units], old.factor)
        made.assign_tiles(pixels)
    elif isinstance(old, Pixels):
        made = Pixels(old.image_shape, [units], old.zca)
        made.assign(pixels)
    else:
        raise UserError(f"A set of {old.kind} cannot grow.")
    return made


def with_classes(old: Parameterization, new: Parameterization) -> Parameterization:
    """Both in one, the classes of `new` after those of `old`; they have the same decoders or none."""
    count = old.classes + new.classes
    before, after = Parts.of(old.cpu()), Parts.of(new.cpu())
    both = before.placed(range(old.classes), count).and_units_of(after.placed(range(old.classes, count), count))
    return both.together()


@torch.no_grad()
def encode(decoders: Decoders, images: torch.Tensor) -> torch.Tensor:
    """Codes B x C_0 x h x w whose images under all decoders are nearest to `images` (uint8), by the equation above."""
    pixels = padded(images, decoders.factor)
    matrices, offsets = decoders.affine()  # D x C_0 x (f f C), D x 1 x (f f C)
    square = torch.einsum("dip,djp->ij", matrices, matrices).double()
    square += RIDGE * square.diagonal().mean() * torch.eye(len(square), dtype=torch.float64)
    right = decoders.logits(pixels) @ matrices.sum(0).T - torch.einsum("dop,dip->i", offsets, matrices)
    codes = torch.linalg.solve(square, right.double().flatten(0, 1).T).T.float()
    return decoders.codes_at(codes, pixels)


def _old_and_new(condensed: CondensedSet, source: ImageSet, new: ImageSet, names: tuple[str, ...]) -> ImageSet:
    """For every old class its real images where the source has them, else the synthetic ones; then the new class."""
    parts = []
    for c, name in enumerate(condensed.class_names):
        if name in source.class_names:
            parts.append(images_of(source, name, condensed).images)
        else:
            parts.append((condensed.images(c) * 255).round().to(torch.uint8))
    parts.append(new.images)
    labels = torch.repeat_interleave(torch.arange(len(parts)), torch.tensor([len(part) for part in parts]))
    return ImageSet(torch.cat(parts), labels, names, condensed.stats)
