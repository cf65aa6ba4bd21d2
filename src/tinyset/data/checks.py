"""What every source is asked before it is handed on: each oddity gets one clear sentence."""

import dataclasses
import hashlib

import numpy as np
import torch

from tinyset import rng
from tinyset.data.imageset import CHUNK, ImageSet, Splits
from tinyset.errors import UserError


def check(splits: Splits) -> Splits:
    """Refuse what cannot be condensed; add to the notes what the user should know."""
    train, test = splits.train, splits.test
    if train.classes < 2:
        name = f" ({train.class_names[0]!r})" if train.class_names else ""
        raise UserError(f"{splits.name} holds a single class{name}: two or more are needed to train a classifier.")
    if empty := [name for name, count in zip(train.class_names, train.counts, strict=True) if not count]:
        raise UserError(f"{splits.name}: the class {empty[0]!r} has no training images{_others(empty)}.")
    notes = list(splits.notes)
    if test is None:
        notes.append("There is no test split: keep a part of the training images for it with --holdout 0.1.")
    elif untested := [name for name, count in zip(test.class_names, test.counts, strict=True) if not count]:
        notes.append(f"The test split has no images of the class {untested[0]!r}{_others(untested)}.")
    return dataclasses.replace(splits, notes=tuple(notes))


def _others(names: list[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""


def duplicates(train: torch.Tensor, test: torch.Tensor) -> int:
    """How many test images are in the training split pixel for pixel."""
    if train.shape[1:] != test.shape[1:]:
        return 0
    return int(np.isin(_hashes(test), _hashes(train)).sum())


def duplicates_note(train: torch.Tensor, test: torch.Tensor) -> tuple[str, ...]:
    count = duplicates(train, test)
    if not count:
        return ()
    which = "1 test image is" if count == 1 else f"{count} test images are"
    return (f"{which} also in the training split, pixel for pixel: accuracies will flatter.",)


def _hashes(images: torch.Tensor) -> np.ndarray:
    """64 bits per image, read chunk by chunk so that data larger than memory passes through."""
    result = np.empty(len(images), np.uint64)
    at = 0
    for chunk in images.split(CHUNK):
        for image in chunk.numpy():
            digest = hashlib.blake2b(np.ascontiguousarray(image).data, digest_size=8).digest()
            result[at] = int.from_bytes(digest, "little")
            at += 1
    return result


def holdout_mask(labels: torch.Tensor, classes: int, share: float, seed: int) -> torch.Tensor:
    """True for the images kept for testing: `share` of every class, at least one, never all of them."""
    check_holdout(share)
    generator = rng.generator(seed, "holdout")
    mask = torch.zeros(len(labels), dtype=torch.bool)
    for c in range(classes):
        members = torch.nonzero(labels == c).flatten()
        count = min(max(round(share * len(members)), 1), len(members) - 1)
        mask[members[torch.randperm(len(members), generator=generator)[: max(count, 0)]]] = True
    return mask


def check_holdout(share: float | None) -> None:
    if share is not None and not 0 < share < 1:
        raise UserError(f"--holdout {share:g} must lie between 0 and 1.")


def with_holdout(splits: Splits, share: float | None, seed: int) -> Splits:
    """Carve a test split out of the training images where the source has none."""
    check_holdout(share)
    if share is None:
        return splits
    if splits.test is not None:
        raise UserError(f"--holdout {share:g}: {splits.name} has a test split of its own; leave the flag out.")
    mask = holdout_mask(splits.train.labels, splits.train.classes, share, seed)
    train, test = (_part(splits.train, torch.nonzero(part).flatten()) for part in (~mask, mask))
    return dataclasses.replace(splits, train=train, test=test)


def _part(whole: ImageSet, index: torch.Tensor) -> ImageSet:
    """A part with its own statistics: those of the whole would let the test images speak in the training."""
    return ImageSet(whole.images[index], whole.labels[index], whole.class_names)
