"""Arrays, tensors and Datasets from Python."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, TensorDataset

from tinyset.data import ImageSet, from_arrays, from_dataset, load_images
from tinyset.errors import UserError

RNG = np.random.default_rng(0)
BYTES = RNG.integers(0, 256, (6, 3, 5, 4), dtype=np.uint8)  # N x C x H x W
LABELS = [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize(
    "images",
    [
        BYTES,
        BYTES.transpose(0, 2, 3, 1),
        BYTES / 255,
        (BYTES / 255).astype(np.float32).transpose(0, 2, 3, 1),
        torch.from_numpy(BYTES),
        torch.from_numpy(BYTES).float() / 255,
        BYTES.astype(np.int64),
        BYTES.tolist(),
    ],
)
def test_every_layout_and_type_gives_the_same_images(images):
    assert np.array_equal(from_arrays(images, LABELS).images.numpy(), BYTES)


def test_grey():
    assert from_arrays(BYTES[:, 0], LABELS).image_shape == (1, 5, 4)
    assert from_arrays(BYTES[:, :1], LABELS).image_shape == (1, 5, 4)


def test_the_callers_array_is_not_written_to():
    images = BYTES.copy()
    images.flags.writeable = False
    from_arrays(images, LABELS).images.zero_()
    assert np.array_equal(images, BYTES)


@pytest.mark.parametrize(
    ("images", "words"),
    [
        (BYTES / 255 * 2 - 1, "undo the normalisation"),
        (np.full((6, 3, 5, 4), np.nan), "range from nan"),
        (BYTES.astype(np.float32), "in [0, 1]"),
        (BYTES.astype(np.int32) * 2, "[0, 255]"),
        (np.zeros((6, 5, 4, 4), np.uint8), "1 or 3 channels"),
        (np.zeros((6, 2), np.uint8), "6 x 2"),
        (np.zeros((0, 3, 4, 4), np.uint8), "no pixels"),
        (BYTES.astype(str), "not <U"),
        ([[1, 2], [3]], "one shape"),
        (BYTES[:5], "5 images and 6 labels"),
    ],
)
def test_what_would_be_a_guess_is_refused(images, words):
    with pytest.raises(UserError) as caught:
        from_arrays(images, LABELS)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("labels", "names", "index"),
    [
        ([7, 900, -3, 7, 900, -3], ("-3", "7", "900"), [1, 2, 0, 1, 2, 0]),
        (["b/c", "ü", "a b"] * 2, ("a b", "b/c", "ü"), [1, 2, 0, 1, 2, 0]),
        (np.array([[1], [0], [1], [0], [1], [0]]), ("0", "1"), [1, 0] * 3),
        (torch.tensor([1.0, 0.0] * 3), ("0", "1"), [1, 0] * 3),
        ([b"x", b"y"] * 3, ("x", "y"), [0, 1] * 3),
        ([True, False] * 3, ("0", "1"), [1, 0] * 3),
    ],
)
def test_labels_of_any_kind(labels, names, index):
    images = from_arrays(BYTES, labels)
    assert images.class_names == names and images.labels.tolist() == index


def test_class_names_name_the_labels():
    assert from_arrays(BYTES, LABELS, ["x", "y", "z"]).class_names == ("x", "y", "z")
    by_name = from_arrays(BYTES, ["z", "x", "y"] * 2, ["z", "y", "x"])
    assert by_name.class_names == ("z", "y", "x") and by_name.labels.tolist() == [0, 2, 1, 0, 2, 1]


@pytest.mark.parametrize(
    ("labels", "names", "words"),
    [
        ([0, 1, 5, 0, 1, 5], ["a", "b", "c"], "5, which is not one of the 3"),
        (["a", "b", "q"] * 2, ["a", "b", "c"], "'q'"),
        (LABELS, ["a", "a", "b"], "twice"),
        ([0.5] * 6, None, "one integer or one string"),
        ([[1, 2]] * 6, None, "one integer or one string"),
        ([[1], [1, 2]], None, "one integer or one string"),
    ],
)
def test_labels_that_are_wrong(labels, names, words):
    with pytest.raises(UserError) as caught:
        from_arrays(BYTES, labels, names)
    assert words in str(caught.value)


class Pairs(Dataset):
    classes = ["ant", "bee", "cow"]

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def _pil(i):
    return Image.fromarray(BYTES[i].transpose(1, 2, 0))


@pytest.mark.parametrize(
    "items",
    [
        [(BYTES[i], LABELS[i]) for i in range(6)],
        [(torch.from_numpy(BYTES[i]).float() / 255, torch.tensor(LABELS[i])) for i in range(6)],
        [(_pil(i), np.int64(LABELS[i])) for i in range(6)],
        [{"image": _pil(i), "label": LABELS[i]} for i in range(6)],
    ],
)
def test_any_map_style_dataset(items):
    images = from_dataset(Pairs(items))
    assert np.array_equal(images.images.numpy(), BYTES)
    assert images.labels.tolist() == LABELS and images.class_names == ("ant", "bee", "cow")


def test_names_are_used_only_where_they_fit():
    assert from_dataset(Pairs([(BYTES[i], 10 + LABELS[i]) for i in range(6)])).class_names == ("10", "11", "12")


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([], "empty"),
        ([1, 2], "pairs"),
        ([(BYTES[0], 0), (BYTES[1, :, :4], 1)], "2 shapes"),
        ([(BYTES[0], 0), (BYTES[1] - 300.0, 1)], "undo the normalisation"),
    ],
)
def test_a_dataset_that_cannot_be_used(items, words):
    with pytest.raises(UserError, match=words):
        from_dataset(Pairs(items))


def test_load_images_takes_them_all():
    pair = load_images((BYTES, LABELS))
    tensors = load_images(TensorDataset(torch.from_numpy(BYTES), torch.tensor(LABELS)), holdout=0.5)
    ready = load_images(from_arrays(BYTES, LABELS), image_size=8)
    assert pair.test is None and any("--holdout" in note for note in pair.notes)
    assert tensors.train.counts == tensors.test.counts == (1, 1, 1)
    assert ready.train.image_shape == (3, 8, 8)


def test_splits_share_their_classes():
    both = load_images({"train": (BYTES, ["a", "b", "c"] * 2), "test": (BYTES[:2], ["c", "b"])})
    assert both.test.labels.tolist() == [2, 1] and both.test.class_names == ("a", "b", "c")
    assert any("2 test images are also in the training split" in note for note in both.notes)
    with pytest.raises(UserError, match="'q'"):
        load_images({"train": (BYTES, ["a", "b", "c"] * 2), "test": (BYTES[:2], ["c", "q"])})


@pytest.mark.parametrize("source", [42, None, {"test": (BYTES, LABELS)}, {"train": (BYTES, LABELS), "dev": 1}])
def test_what_is_no_source(source):
    with pytest.raises(UserError):
        load_images(source)


def test_a_single_class_and_an_empty_class():
    with pytest.raises(UserError, match="a single class"):
        load_images((BYTES, [1] * 6))
    with pytest.raises(UserError, match="'c' has no training images"):
        load_images(from_arrays(BYTES, [0, 1] * 3, ["a", "b", "c"]))


def test_the_fingerprint_is_of_pixels_labels_and_names():
    base = from_arrays(BYTES, LABELS).fingerprint
    changed = BYTES.copy()
    changed[3, 1, 2, 3] ^= 1
    others = [
        from_arrays(changed, LABELS),
        from_arrays(BYTES, LABELS[::-1]),
        from_arrays(BYTES, LABELS, ["x", "y", "z"]),
    ]
    assert base == from_arrays(BYTES.transpose(0, 2, 3, 1), LABELS).fingerprint
    assert len({base, *(other.fingerprint for other in others)}) == 4


def test_statistics_are_those_of_numpy():
    mean, std = from_arrays(BYTES, LABELS).stats
    pixels = BYTES / 255
    assert np.allclose(mean, pixels.mean((0, 2, 3)), atol=1e-4) and np.allclose(std, pixels.std((0, 2, 3)), atol=1e-4)


def test_the_held_out_images_have_no_say_in_the_statistics():
    dark = np.zeros((20, 1, 4, 4), np.uint8)
    dark[10:] = 100
    splits = load_images((dark, [0, 1] * 10), holdout=0.3)
    assert splits.train.stats == ImageSet(splits.train.images, splits.train.labels, ("0", "1")).stats
