"""`.npz` files as numpy, Keras and MedMNIST write them, and as nobody should."""

import io
import zipfile

import numpy as np
import pytest

from tinyset.data import load_images
from tinyset.errors import UserError

RNG = np.random.default_rng(0)
TRAIN = RNG.integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
TEST = RNG.integers(0, 256, (4, 8, 8, 3), dtype=np.uint8)
LABELS, TEST_LABELS = np.array([5, 9] * 3), np.array([9, 5, 9, 9])


@pytest.mark.parametrize(
    "names",
    [
        ("train_images", "train_labels", "test_images", "test_labels"),
        ("x_train", "y_train", "x_test", "y_test"),
        ("X_train", "y_train", "X_test", "y_test"),
        ("images", "labels", "val_images", "val_labels"),
    ],
)
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_the_names_people_use(tmp_path, names, save):
    path = tmp_path / "set.npz"
    save(path, **dict(zip(names, (TRAIN, LABELS, TEST, TEST_LABELS), strict=True)))
    splits = load_images(path)
    assert np.array_equal(splits.train.images.permute(0, 2, 3, 1).numpy(), TRAIN)
    assert splits.class_names == ("5", "9") and splits.test.labels.tolist() == [1, 0, 1, 1]


def test_one_split_with_strings_and_holdout(tmp_path):
    path = tmp_path / "set.npz"
    np.savez(path, images=TRAIN / 255, labels=np.array(["fish/soup", "crème"] * 3))
    splits = load_images(path, holdout=0.34)
    assert splits.class_names == ("crème", "fish/soup") and splits.test.counts == (1, 1)


def test_positional_arrays_and_class_names(tmp_path):
    path = tmp_path / "set.npz"
    np.savez(path, TRAIN, LABELS % 2 * 0 + np.array([0, 1] * 3), class_names=np.array(["a", "b"]))
    assert load_images(path).class_names == ("a", "b")


def test_duplicates_are_reported(tmp_path):
    path = tmp_path / "set.npz"
    np.savez(path, x_train=TRAIN, y_train=LABELS, x_test=TRAIN[:1], y_test=LABELS[:1])
    assert any("1 test image is also" in note for note in load_images(path).notes)


def _raw(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _objects():
    buffer = io.BytesIO()
    np.savez(buffer, images=np.array([{}, []], dtype=object), labels=LABELS)
    return buffer.getvalue()


def _lying():
    """A header that promises 10^12 pixels."""
    member = io.BytesIO()
    np.lib.format.write_array_header_1_0(member, {"descr": "|u1", "fortran_order": False, "shape": (10**6, 1000, 1000)})
    return _zip({"images.npy": member.getvalue() + b"\0" * 99, "labels.npy": b""})


def _bomb():
    """20 MB of zeros for a header of 10 pixels are nothing; a header of 300 GB in a small file is."""
    member = io.BytesIO()
    np.lib.format.write_array_header_1_0(member, {"descr": "|u1", "fortran_order": False, "shape": (300, 10**9)})
    return _zip({"images.npy": member.getvalue() + bytes(20_000_000)})


def _zip(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"junk", "not a readable .npz"),
        (b"", "not a readable .npz"),
        (_raw(images=TRAIN, labels=LABELS)[:300], "not a readable .npz"),
        (_raw(pictures=TRAIN, labels=LABELS), "it holds pictures, labels"),
        (_raw(images=TRAIN, labels=LABELS[:4]), "6 train images and 4 labels"),
        (_raw(x_train=TRAIN, y_train=LABELS, x_test=TEST[:, :4], y_test=TEST_LABELS), "different shapes"),
        (_raw(x_train=TRAIN, y_train=LABELS, x_test=TEST, y_test=TEST_LABELS + 1), "not one of the 2"),
        (_raw(images=TRAIN * 1.0, labels=LABELS), "in [0, 1]"),
        (_raw(images=TRAIN, labels=np.ones(6, int)), "a single class"),
        (_objects(), "Python objects"),
        (_lying(), "lies about its shape"),
        (_bomb(), "lies about its shape"),
        (_zip({"../../evil.npy": b"x"}), "not a readable .npz"),
    ],
)
def test_a_bad_file_gets_one_sentence(tmp_path, raw, words):
    path = tmp_path / "bad.npz"
    path.write_bytes(raw)
    with pytest.raises(UserError) as caught:
        load_images(path)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_memory_is_asked_about_first(tmp_path, monkeypatch):
    monkeypatch.setattr("tinyset.data.limits._memory", lambda: 1000)
    path = tmp_path / "large.npz"
    np.savez(path, images=TRAIN, labels=LABELS)
    with pytest.raises(UserError, match="more than half of this machine's"):
        load_images(path)
