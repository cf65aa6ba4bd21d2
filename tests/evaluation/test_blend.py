"""Blending: an image becomes a mixture of itself and the same code by another decoder."""

from typing import Any

import torch

from tests.report.made import codes_set
from tinyset.batches import Batches
from tinyset.condensed import CondensedSet
from tinyset.protocols import Protocol
from tinyset.rng import generator

PLAIN = ((0.0,), (1.0,))


def batches(blend: float, labels: torch.Tensor, styles: int, **changes: Any) -> tuple[torch.Tensor, Batches]:
    """24 images of one pixel that say which they are: bit k of image k is on."""
    images = torch.eye(24).view(24, 1, 4, 6)
    recipe = Protocol(name="t", epochs=1, batch=24, blend=blend, **changes)
    return images, Batches(images, labels, recipe, PLAIN, True, 0, styles=styles)


def test_only_styles_of_one_code_are_mixed_and_shares_add_up_to_one() -> None:
    _, made = batches(0.5, torch.arange(24) // 12, styles=4)
    seen: set[tuple[int, int]] = set()
    untouched = 0
    for step in range(40):
        mixed, labels = made.at(step)
        for row, label in zip(mixed.flatten(1), labels.tolist(), strict=True):
            parts = row.nonzero().flatten().tolist()
            assert abs(float(row.sum()) - 1) < 1e-6 and len(parts) in (1, 2)
            assert len({k // 4 for k in parts}) == 1 and all(k // 12 == label for k in parts)
            untouched += len(parts) == 1
            seen.update((a, b) for a in parts for b in parts if a != b)
    assert len(seen) == 24 * 3  # every image with every other style of its code
    assert 0.5 < untouched / (40 * 24) < 0.75  # half of them, and a fourth of the others meet themselves


def test_learned_labels_are_mixed_like_the_images() -> None:
    soft = torch.rand(24, 3, generator=generator(0))
    _, made = batches(1.0, soft, styles=4)
    mixed, targets = made.at(0)
    torch.testing.assert_close(targets, mixed.flatten(1) @ soft)


def test_without_styles_or_without_blending_nothing_is_drawn() -> None:
    labels = torch.arange(24) // 12
    rest: dict[str, Any] = {"augmentation": "flip-shift", "cutmix": 0.5}
    plain = batches(0.0, labels, 4, **rest)[1].at(3)
    for other in (batches(0.75, labels, 1, **rest)[1].at(3), batches(0.0, labels, 1, **rest)[1].at(3)):
        assert all(torch.equal(a, b) for a, b in zip(plain, other, strict=True))
    assert not torch.equal(plain[0], batches(0.75, labels, 4, **rest)[1].at(3)[0])


def test_the_loader_of_a_set_blends_its_decoders() -> None:
    made = codes_set(steps=0)
    assert made.styles == 3
    blended = CondensedSet(made.parameterization, made.config.model_copy(update={"protocol": "kfs-blend"}))
    mixed = CondensedSet(made.parameterization, made.config.model_copy(update={"protocol": "kfs-cutmix"}))
    one, other = (next(iter(condensed.loader(batch_size=36)))[0] for condensed in (blended, mixed))
    assert one.shape == other.shape and not torch.equal(one, other)
