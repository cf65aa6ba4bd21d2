"""Parquet and Hugging Face directories, as downloaded and as `save_to_disk` writes them."""

import io
import sys

import numpy as np
import pytest

from tinyset.data import load_images
from tinyset.errors import UserError

from .conftest import picture

pyarrow = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def _png(seed):
    buffer = io.BytesIO()
    picture((8, 8), "RGB", seed).save(buffer, "PNG")
    return buffer.getvalue()


def _table(count, labels, start=0, names=None, image="image"):
    images = [{"bytes": _png(start + i), "path": f"{i}.png"} for i in range(count)]
    table = pyarrow.table({image: images, "label": labels})
    if names:
        import json

        features = {"label": {"names": names, "_type": "ClassLabel"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    return table


def test_one_file_with_class_names(tmp_path):
    path = tmp_path / "set.parquet"
    pq.write_table(_table(6, [0, 1, 2] * 2, names=["ant", "bee", "cow"]), path)
    splits = load_images(path)
    assert splits.class_names == ("ant", "bee", "cow") and splits.train.labels.tolist() == [0, 1, 2] * 2
    assert np.array_equal(splits.train.images[3].permute(1, 2, 0).numpy(), np.asarray(picture((8, 8), "RGB", 3)))


def test_hub_layout_in_several_files(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    pq.write_table(_table(4, ["b", "a"] * 2), data / "train-00000-of-00002.parquet")
    pq.write_table(_table(2, ["b", "a"], 4), data / "train-00001-of-00002.parquet")
    pq.write_table(_table(2, ["b", "b"], 6), data / "validation-00000-of-00001.parquet")
    pq.write_table(_table(3, ["b", "b", "a"], 8), data / "test-00000-of-00001.parquet")
    splits = load_images(tmp_path)
    assert splits.train.labels.tolist() == [1, 0, 1, 0, 1, 0] and splits.test.labels.tolist() == [1, 1, 0]


def test_a_subset_keeps_the_names_of_its_classes(tmp_path):
    pq.write_table(_table(4, [2, 0] * 2, names=["ant", "bee", "cow"]), tmp_path / "train.parquet")
    assert load_images(tmp_path).class_names == ("ant", "cow")


def test_save_to_disk(tmp_path):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"img": datasets.Image(), "label": datasets.ClassLabel(names=["x", "y"])})

    def made(count, start):
        rows = {
            "img": [picture((8, 8), "RGB", start + i) for i in range(count)],
            "label": [i % 2 for i in range(count)],
        }
        return datasets.Dataset.from_dict(rows, features=features)

    datasets.DatasetDict({"train": made(6, 0), "test": made(2, 6)}).save_to_disk(tmp_path / "set")
    splits = load_images(tmp_path / "set")
    assert splits.class_names == ("x", "y") and splits.train.counts == (3, 3) and len(splits.test) == 2
    assert np.array_equal(splits.test.images[1].permute(1, 2, 0).numpy(), np.asarray(picture((8, 8), "RGB", 7)))


def test_a_row_that_is_no_image_is_named(tmp_path):
    path = tmp_path / "set.parquet"
    images = [_png(0), b"junk", None, _png(1)]
    pq.write_table(pyarrow.table({"image": pyarrow.array(images, pyarrow.binary()), "label": [0, 0, 1, 1]}), path)
    with pytest.raises(UserError, match=r"2 files are no readable images: .*row 1"):
        load_images(path)
    assert load_images(path, skip_bad=True).train.counts == (1, 1)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (lambda: pyarrow.table({"text": ["a"], "label": [1]}), "no image column"),
        (lambda: pyarrow.table({"image": [b"a"]}), "no label column"),
        (lambda: pyarrow.table({"image": ["a.png"], "label": [1]}), "not encoded images"),
        (lambda: pyarrow.table({"image": [b"a", b"b"], "label": [None, 1]}), "one integer or one string"),
    ],
)
def test_a_table_that_cannot_be_used(tmp_path, table, words):
    path = tmp_path / "set.parquet"
    pq.write_table(table(), path)
    with pytest.raises(UserError, match=words):
        load_images(path)


def test_a_damaged_file(tmp_path):
    path = tmp_path / "set.parquet"
    path.write_bytes(b"PAR1 junk PAR1")
    with pytest.raises(UserError, match=r"set\.parquet is not a readable parquet"):
        load_images(path)


def test_without_pyarrow_the_extra_is_named(tmp_path, monkeypatch):
    (tmp_path / "set.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"tinyset\[hf\]"):
        load_images(tmp_path / "set.parquet")


def test_without_scipy_the_extra_is_named(tmp_path, monkeypatch):
    from . import formats

    formats.svhn(tmp_path)
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    with pytest.raises(UserError, match=r"tinyset\[mat\]"):
        load_images("svhn", data_dir=tmp_path)
