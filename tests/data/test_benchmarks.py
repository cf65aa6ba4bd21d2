"""Every benchmark on tiny files in its official layout: counts, order, names, and each way they can be wrong."""

import gzip
import io
import pickle
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image

from tinyset.data import load_images
from tinyset.errors import UserError

from . import formats


def test_cifar10_pixels_labels_names(tmp_path):
    folder = formats.cifar10(tmp_path)
    splits = load_images("cifar10", data_dir=tmp_path)
    batch = pickle.loads((folder / "data_batch_2").read_bytes())
    assert splits.train.images.shape == (100, 3, 32, 32) and splits.test.images.shape == (20, 3, 32, 32)
    assert splits.train.images[21].flatten().tolist() == batch["data"][1].tolist()
    assert splits.train.labels[20:40].tolist() == batch["labels"]
    assert splits.class_names[0] == "airplane" and splits.mirror
    assert splits.train.stats == ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))


def test_a_folder_in_the_official_layout_needs_no_name(tmp_path):
    folder = formats.cifar10(tmp_path)
    by_path = load_images(folder)
    assert by_path.name == "cifar10"
    assert by_path.train.fingerprint == load_images("cifar10", data_dir=tmp_path).train.fingerprint
    formats.svhn(tmp_path)
    with pytest.raises(UserError, match="holds cifar10, svhn: name one of them and add --data-dir"):
        load_images(tmp_path)


def test_cifar10_tar_is_the_same_data(tmp_path):
    folder = formats.cifar10(tmp_path / "a")
    (tmp_path / "b").mkdir()
    formats.tar(folder, tmp_path / "b" / "cifar-10-python.tar.gz")
    extracted, archived = (load_images("cifar10", data_dir=tmp_path / name) for name in "ab")
    assert extracted.train.fingerprint == archived.train.fingerprint
    assert torch.equal(extracted.test.images, archived.test.images)
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == ["cifar-10-python.tar.gz"]  # nothing extracted


def test_a_tar_with_paths_outside_writes_nothing(tmp_path):
    folder = formats.cifar10(tmp_path / "a")
    data = tmp_path / "b"
    data.mkdir()
    with tarfile.open(data / "cifar-10-python.tar.gz", "w:gz") as archive:
        archive.add(folder, folder.name)
        for name in ("../escaped", "/tmp/tinyset-escaped", "a/../../escaped"):
            info = tarfile.TarInfo(name)
            info.size = 4
            archive.addfile(info, io.BytesIO(b"evil"))
    before = sorted(tmp_path.rglob("*"))
    assert len(load_images("cifar10", data_dir=data).train) == 100
    outside = [path for path in tmp_path.rglob("*") if path not in before and "cache" not in path.parts]
    assert outside == []


def test_a_tar_bomb_is_refused_before_it_is_inflated(tmp_path):
    """A member that claims 3 GB: the claim is enough."""
    info = tarfile.TarInfo("cifar-10-batches-py/data_batch_1")
    info.size = 3 << 30
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(gzip.compress(info.tobuf() + bytes(1 << 20)))
    with pytest.raises(UserError, match="bomb"):
        load_images("cifar10", data_dir=tmp_path)


def test_home_is_understood(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    formats.mnist(tmp_path / "data")
    assert len(load_images("mnist", data_dir="~/data").train) == 20


def test_cifar100_fine_labels(tmp_path):
    formats.cifar100(tmp_path)
    splits = load_images("cifar100", data_dir=tmp_path)
    assert splits.train.counts == (2,) * 100 and splits.class_names[7] == "fine 7"
    assert splits.train.stats[0] == (0.5071, 0.4866, 0.4409)


@pytest.mark.parametrize("compressed", [True, False])
def test_svhn_label_10_is_the_digit_0(tmp_path, compressed):
    formats.svhn(tmp_path, compressed=compressed)
    splits = load_images("svhn", data_dir=tmp_path)
    assert splits.train.labels[:10].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]
    raw = np.random.default_rng(5).integers(0, 256, (32, 32, 3, 20), dtype=np.uint8)
    assert splits.train.images[3, 2, 10, 20].item() == raw[10, 20, 2, 3]
    assert not splits.mirror and splits.train.stats[0] == (0.4377, 0.4438, 0.4728)


def test_tinyimagenet_order_names_and_grey(tmp_path):
    folder = formats.tinyimagenet(tmp_path)
    splits = load_images("tinyimagenet", data_dir=tmp_path)
    assert splits.class_names == ("über cat", "crane (n00000001)", "crane (n00000000)")  # the order of wnids.txt
    assert splits.train.counts == (4, 4, 4) and splits.test.counts == (1, 1, 1)
    assert splits.train.image_shape == (3, 64, 64)
    assert splits.test.labels[0].item() == 2  # val_0 is n00000000, by its annotation
    with Image.open(folder / "val" / "images" / "val_0.JPEG") as image:
        assert np.array_equal(splits.test.images[0].permute(1, 2, 0).numpy(), np.asarray(image))
    assert any("3 grey" in note for note in splits.notes)


def test_tinyimagenet_zip_is_the_same_data(tmp_path):
    folder = formats.tinyimagenet(tmp_path / "a")
    (tmp_path / "b").mkdir()
    formats.zipped(folder, tmp_path / "b" / "tiny-imagenet-200.zip")
    extracted, archived = (load_images("tinyimagenet", data_dir=tmp_path / name) for name in "ab")
    assert extracted.train.fingerprint == archived.train.fingerprint


@pytest.mark.parametrize("name", ["mnist", "fashionmnist"])
@pytest.mark.parametrize("zipped", [True, False])
def test_mnist(tmp_path, name, zipped):
    formats.mnist(tmp_path, name, zipped=zipped)
    splits = load_images(name, data_dir=tmp_path)
    assert splits.train.images.shape == (20, 1, 28, 28) and splits.train.counts == (2,) * 10
    raw = np.random.default_rng(5).integers(0, 256, (20, 28, 28), dtype=np.uint8)
    assert np.array_equal(splits.train.images[:, 0].numpy(), raw)
    assert splits.mirror == (name == "fashionmnist")
    assert splits.class_names[9] == ("9" if name == "mnist" else "Ankle boot")


def test_images_may_be_resized(tmp_path):
    formats.mnist(tmp_path)
    splits = load_images("mnist", data_dir=tmp_path, image_size="16x12")
    assert splits.train.image_shape == (1, 16, 12) and splits.test.image_shape == (1, 16, 12)


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "svhn", "tinyimagenet", "mnist", "fashionmnist"])
def test_a_benchmark_that_is_not_there_says_how_to_get_it(tmp_path, name):
    with pytest.raises(UserError, match=f"tinyset data fetch {name}"):
        load_images(name, data_dir=tmp_path)


def _spoil(path, change):
    path.write_bytes(change(path.read_bytes()))


WRONG = {
    "a hostile batch": ("cifar10", "cifar-10-batches-py/data_batch_1", lambda _: pickle.dumps(print), "asks for"),
    "a cut batch": ("cifar10", "cifar-10-batches-py/test_batch", lambda raw: raw[: len(raw) // 2], "test_batch"),
    "labels outside": (
        "cifar10",
        "cifar-10-batches-py/test_batch",
        lambda raw: raw.replace(b"K\x09", b"K\x0a"),
        "0..9",
    ),
    "junk names": ("cifar100", "cifar-100-python/meta", lambda _: b"junk", "meta"),
    "a mat that lies": ("svhn", "svhn/train_32x32.mat", lambda raw: _patch(raw, 152), "lies about"),
    "a cut mat": ("svhn", "svhn/train_32x32.mat", lambda raw: raw[:5000], "train_32x32.mat"),
    "an idx that lies": ("mnist", "mnist/train-images-idx3-ubyte", lambda raw: raw[:4] + b"\x7f" + raw[5:], "lies"),
    "idx labels outside": ("mnist", "mnist/t10k-labels-idx1-ubyte", lambda raw: raw[:-1] + b"\x0a", "0..9"),
    "a cut idx": ("mnist", "mnist/t10k-images-idx3-ubyte", lambda raw: raw[:100], "cut short"),
    "no idx": ("mnist", "mnist/t10k-images-idx3-ubyte", lambda _: b"hello", "not an IDX"),
}


def _patch(raw, at):
    """Another number where a dimension of X stands."""
    return raw[:at] + b"\xff\xff\xff\x7f" + raw[at + 4 :]


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_named_in_one_sentence(tmp_path, case):
    name, file, change, words = WRONG[case]
    if name == "svhn":
        formats.svhn(tmp_path, compressed=False)
    elif name == "mnist":
        formats.mnist(tmp_path, zipped=False)
    else:
        getattr(formats, name)(tmp_path)
    load_images(name, data_dir=tmp_path)  # it was right before
    _spoil(tmp_path / file, change)
    with pytest.raises(UserError, match=words) as caught:
        load_images(name, data_dir=tmp_path)
    assert file.rpartition("/")[2] in str(caught.value) and "\n" not in str(caught.value)


def test_a_gzip_bomb_is_read_only_as_far_as_promised(tmp_path):
    folder = formats.mnist(tmp_path)
    bomb = formats.idx(np.zeros((20, 28, 28), np.uint8)) + bytes(50_000_000)
    (folder / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(bomb))
    with pytest.raises(UserError, match="lies"):
        load_images("mnist", data_dir=tmp_path)


def test_a_mat_bomb_is_refused(tmp_path):
    import struct
    import zlib

    folder = formats.svhn(tmp_path)
    header = (folder / "train_32x32.mat").read_bytes()[:128]
    bomb = zlib.compress(struct.pack("<II", 14, 2_000_000_000) + bytes(20_000_000), 9)
    (folder / "train_32x32.mat").write_bytes(header + struct.pack("<II", 15, len(bomb)) + bomb)
    with pytest.raises(UserError, match="lies about its content"):
        load_images("svhn", data_dir=tmp_path)
