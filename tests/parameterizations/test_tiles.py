"""Tiles equal a loop over slices; every factor, every size, any subset."""

import pytest
import torch
import torch.nn.functional as F

from tinyset import rng
from tinyset.data.imageset import ImageSet
from tinyset.errors import UserError
from tinyset.parameterizations.labels import learn_labels
from tinyset.parameterizations.tiles import Tiles


def make(factor: int, size: tuple[int, int] = (8, 8), init: str = "real", counts: tuple[int, ...] = (1, 2)) -> Tiles:
    draw = rng.generator(0, "tiles test")
    images = torch.randint(0, 256, (80, 3, *size), generator=draw, dtype=torch.uint8)
    real = ImageSet(images, torch.arange(80) % 2, ("a", "b"))
    return Tiles.create(real, counts, init, rng.generator(1, "init"), factor=factor)  # type: ignore[arg-type]


@pytest.mark.parametrize(("factor", "size"), [(1, (8, 8)), (2, (8, 8)), (3, (28, 28)), (3, (8, 10)), (4, (32, 32))])
def test_decode_equals_a_loop_over_tiles(factor: int, size: tuple[int, int]) -> None:
    tiles = make(factor, size)
    ys, xs = ([round(i * side / factor) for i in range(factor + 1)] for side in size)
    for c, first in ((0, 0), (1, 1)):
        expected = [
            F.interpolate(stored[None, :, ys[r] : ys[r + 1], xs[q] : xs[q + 1]], size, mode="bilinear")[0]
            for stored in tiles.images.detach()[first : first + tiles.stored_counts[c]]
            for r in range(factor)
            for q in range(factor)
        ]
        assert torch.equal(tiles.decode(c).detach(), torch.stack(expected))
        assert tiles.counts[c] == len(expected)


@pytest.mark.parametrize(("factor", "size"), [(2, (8, 8)), (3, (28, 28))])
def test_every_stored_number_is_used(factor: int, size: tuple[int, int]) -> None:
    tiles = make(factor, size, counts=(1, 1))
    for c in (0, 1):
        tiles.decode(c).sum().backward()
    assert tiles.images.grad is not None and bool((tiles.images.grad > 0).all())


def test_any_subset_in_any_order() -> None:
    tiles = make(3, (28, 28))
    index = torch.tensor([17, 0, 5, 5, 9])
    assert torch.equal(tiles.decode(1, index), tiles.decode(1)[index])
    assert tiles.decode(1, torch.tensor([], dtype=torch.long)).shape == (0, 3, 28, 28)


def test_real_start_is_down_sized_real_images_and_round_trip_is_exact() -> None:
    flat = torch.arange(0, 240, 10, dtype=torch.uint8).view(24, 1, 1, 1).expand(24, 1, 8, 8)
    real = ImageSet(flat, torch.zeros(24).long(), ("a",))
    tiles = Tiles.create(real, (6,), "real", rng.generator(2, "init"), factor=2)
    decoded = (tiles.decode(0)[:, 0, 0, 0] * 255).round().tolist()
    assert sorted(decoded) == list(range(0, 240, 10))  # 24 different images, flat ones stay flat
    learn_labels(tiles)
    again = Tiles.restore(tiles.spec(), tiles.tensors())
    assert torch.equal(again.decode(0), tiles.decode(0)) and again.spec() == tiles.spec()


def test_ledger_projection_and_range() -> None:
    tiles = make(2, init="noise")
    assert sum(tiles.class_parameters(c) for c in (0, 1)) == tiles.tensors()["images"].numel()
    learn_labels(tiles)
    stored = sum(tensor.numel() for tensor in tiles.tensors().values())
    assert sum(tiles.class_parameters(c) for c in (0, 1)) + tiles.shared_parameters() == stored
    with torch.no_grad():
        tiles.images.mul_(3).sub_(1)
    tiles.project()
    images, labels = tiles.decode_all(chunk=3)
    assert images.min() >= 0 and images.max() <= 1 and labels.tolist() == [0] * 4 + [1] * 8


def test_bad_requests_are_one_sentence() -> None:
    with pytest.raises(UserError, match="--tile-factor 9"):
        make(9)
    tiles = make(2)
    with pytest.raises(UserError, match="stored images have shape"):
        Tiles.restore({**tiles.spec(), "counts": [20, 20]}, tiles.tensors())
    with pytest.raises(UserError, match="does not make"):
        Tiles.restore({**tiles.spec(), "counts": [5, 8]}, tiles.tensors())
