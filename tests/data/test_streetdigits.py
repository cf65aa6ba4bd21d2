"""The embedded default: the same for everyone, balanced, and neither trivial nor hopeless."""

import pytest
import torch

from tinyset.data import load_images
from tinyset.data.streetdigits import _atlas, streetdigits
from tinyset.errors import UserError


@pytest.fixture(scope="module")
def digits():
    return streetdigits(train=1000, test=500)


def test_same_seed_same_bytes_and_any_prefix(digits):
    again = streetdigits(train=510, test=10)
    assert torch.equal(again.train.images, digits.train.images[:510])
    assert torch.equal(again.train.labels, digits.train.labels[:510])
    assert torch.equal(again.test.images, digits.test.images[:10])


def test_seeds_and_splits_differ(digits):
    other = streetdigits(seed=1, train=10, test=10)
    assert not torch.equal(other.train.images, digits.train.images[:10])
    assert not torch.equal(digits.test.images, digits.train.images[:500])


def test_bytes_do_not_depend_on_the_number_of_threads(digits):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2 if before == 1 else 1)
        _atlas.cache_clear()
        other = streetdigits(train=10, test=10)
        assert torch.get_num_threads() != before  # and it is left as it was
    finally:
        torch.set_num_threads(before)
    assert torch.equal(other.train.images, digits.train.images[:10])


def test_shape_classes_balance(digits):
    assert digits.train.image_shape == (3, 32, 32)
    assert digits.class_names == tuple("0123456789")
    assert digits.train.counts == (100,) * 10 and digits.test.counts == (50,) * 10
    assert not digits.mirror
    mean, std = digits.train.stats
    assert all(0.4 < value < 0.6 for value in mean) and all(0.2 < value < 0.35 for value in std)


def test_images_differ_from_each_other(digits):
    flat = digits.train.images.flatten(1)
    assert len(torch.unique(flat, dim=0)) == len(flat)


def test_one_image_per_class_is_no_answer(digits):
    """Nearest neighbour to one image of each class stays near chance: no colour or brightness gives a class away."""
    test = digits.test.images.flatten(1).float()
    for draw in range(3):
        chosen = torch.stack([index[draw] for index in digits.train.by_class])
        nearest = torch.cdist(test, digits.train.images[chosen].flatten(1).float()).argmin(1)
        accuracy = (digits.train.labels[chosen][nearest] == digits.test.labels).float().mean().item()
        assert accuracy < 0.3


def test_digits_can_be_learned():
    """A small network reached 85-88 % in these 120 short steps (three seeds); the module's docstring has the full measure."""
    from tinyset.networks import build, reset

    splits = streetdigits(train=2000, test=500)
    network = build("convnet3:width=16", channels=3, image_size=(32, 32), classes=10)
    generator = torch.Generator().manual_seed(0)
    reset(network, generator)
    optimizer = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9)
    for _ in range(120):
        index = torch.randint(2000, (32,), generator=generator)
        logits = network(splits.train.images[index].float() / 127.5 - 1)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(logits, splits.train.labels[index]).backward()
        optimizer.step()
    with torch.no_grad():
        guess = network(splits.test.images.float() / 127.5 - 1).argmax(1)
    assert (guess == splits.test.labels).float().mean().item() > 0.6


def test_too_few_are_refused():
    with pytest.raises(UserError, match="10 or more"):
        streetdigits(train=5)


def test_by_name_it_is_the_whole_set_and_cached(own_cache, monkeypatch):
    monkeypatch.setattr("tinyset.data.streetdigits.streetdigits", lambda: streetdigits(train=20, test=10))
    first = load_images("streetdigits")
    monkeypatch.setattr("tinyset.data.streetdigits.streetdigits", lambda: pytest.fail("drawn twice"))
    second = load_images("streetdigits")
    assert torch.equal(first.train.images, second.train.images)
    assert second.train.fingerprint == streetdigits(train=20, test=10).train.fingerprint
    assert not second.mirror
