"""The cache of decoded images: hit, missed, damaged, shared, larger than memory."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from tinyset.data import decoding, load_images
from tinyset.data.cache import Facts, Writer, cached
from tinyset.errors import RunError

from .conftest import picture


@pytest.fixture
def folder(photos):
    return photos({f"{c}/{i}.png": ((8, 8), "RGB") for c in "ab" for i in range(4)})


@pytest.fixture
def decoded(monkeypatch):
    """How many images have been decoded so far."""
    count = []
    original = decoding.pictures.decode
    monkeypatch.setattr(decoding.pictures, "decode", lambda *args: (count.append(1), original(*args))[1])
    return count


def test_the_second_start_decodes_nothing(folder, decoded):
    first, second = load_images(folder, holdout=0.25), load_images(folder, holdout=0.25)
    assert len(decoded) == 8
    assert torch.equal(first.train.images, second.train.images) and first.notes == second.notes
    assert first.train.fingerprint == second.train.fingerprint and first.train.stats == second.train.stats


def test_what_is_asked_for_and_every_file_are_in_the_key(folder, decoded):
    load_images(folder)
    for change in (
        lambda: load_images(folder, image_size=6),
        lambda: load_images(folder, holdout=0.5),
        lambda: (picture((8, 8), "RGB", 99).save(folder / "a" / "0.png"), load_images(folder)),
        lambda: (os.utime(folder / "a" / "1.png", ns=(1, 1)), load_images(folder)),
        lambda: ((folder / "a" / "2.png").rename(folder / "a" / "9.png"), load_images(folder)),
        lambda: ((folder / "b").rename(folder / "c"), load_images(folder)),
    ):
        before = len(decoded)
        change()
        assert len(decoded) == before + 8


def test_the_stored_fingerprint_is_the_one_of_the_pixels(folder):
    images = load_images(folder).train
    fresh = type(images)(images.images.clone(), images.labels, images.class_names)
    assert images.fingerprint == fresh.fingerprint and images.stats == fresh.stats


def test_images_are_mapped_not_read_and_the_file_is_never_written(folder, own_cache):
    images = load_images(folder).train.images
    (path,) = own_cache.rglob("train.u8")
    before = path.read_bytes()
    images.zero_()  # copy-on-write
    assert path.read_bytes() == before
    assert load_images(folder).train.images.any()


@pytest.mark.parametrize("damage", ["truncate", "flip", "index", "remove"])
def test_a_damaged_entry_is_named_and_made_again(folder, own_cache, decoded, damage):
    first = load_images(folder).train.images.clone()
    (path,) = own_cache.rglob("train.u8")
    raw = path.read_bytes()
    if damage == "truncate":
        path.write_bytes(raw[:-5])
    elif damage == "flip":
        path.write_bytes(raw[:100] + bytes([raw[100] ^ 1]) + raw[101:])
    elif damage == "index":
        (path.parent / "index.safetensors").write_bytes(b"junk")
    else:
        path.unlink()
    said = []

    class Ear:
        def start(self, task, total): ...
        def update(self, done, **_): ...
        def finish(self): ...
        def note(self, message):
            said.append(message)

    again = load_images(folder, progress=Ear())
    assert len(decoded) == 16 and torch.equal(first, again.train.images)
    assert len(said) == 1 and "is damaged and is made again" in said[0]


def test_an_unwritable_cache_is_one_sentence(tmp_path, monkeypatch, folder):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TINYSET_CACHE", str(tmp_path / "file" / "below"))
    with pytest.raises(RunError, match="Cannot write the cache"):
        load_images(folder)


def test_a_failed_build_leaves_nothing(own_cache):
    def build(writer: Writer) -> Facts:
        writer.add("train", np.zeros((2, 1, 4, 4), np.uint8), [0, 1])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached("x", build, print)
    assert [path for path in own_cache.rglob("*") if path.suffix != ".lock" and path.is_file()] == []


def test_whoever_comes_second_waits_instead_of_decoding(folder, decoded):
    """The lock is on the file, so threads show what processes would do."""
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: load_images(folder).train.fingerprint, range(3)))
    assert len(decoded) == 8 and len(set(found)) == 1


def test_decoding_holds_few_images_at_a_time(photos):
    """100,000 files: the queue in front of the threads is short, whatever the length of the list."""
    taken, done = [], []

    def items():
        for i in range(2000):
            taken.append(i)
            yield i

    for _ in decoding._parallel(lambda item: item, items()):
        done.append(1)
        assert len(taken) - len(done) <= decoding.BATCH * (2 * (os.cpu_count() or 1) + 2)
    assert len(done) == 2000


def test_the_order_is_that_of_the_list():
    def slow_first(item):
        time.sleep(0.002 if item < 64 else 0)
        return -item

    assert [value for _, value in decoding._parallel(slow_first, iter(range(200)))] == [-i for i in range(200)]


def test_a_second_start_decodes_nothing(photos, monkeypatch):
    """How much faster that is, is a row of `make bench`, not an assertion."""
    folder = photos({f"{c}/{i}.jpg": ((40, 30), "RGB") for c in "ab" for i in range(5)})
    first = load_images(folder)

    def decode(*_):
        raise AssertionError("decoded again")

    monkeypatch.setattr(decoding, "_parallel", decode)
    assert load_images(folder).train.fingerprint == first.train.fingerprint
