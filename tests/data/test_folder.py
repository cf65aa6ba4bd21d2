"""People's own folders: any shape, any mode, any mess; one sentence for everything that is wrong."""

import os

import numpy as np
import pytest
import torch
from PIL import Image

from tinyset.data import load_images, pictures
from tinyset.errors import UserError

from .conftest import picture

TWO = {"cats/1.png": ((8, 8), "RGB"), "cats/2.png": ((8, 8), "RGB"), "dogs/1.png": ((8, 8), "RGB")}
SIX = {f"{name}/{i}.png": ((8, 8), "RGB") for name in ("cats", "dogs") for i in range(3)}


def test_train_and_test_folders(photos):
    files = {f"{split}/{name}/{i}.png": ((8, 8), "RGB") for split in ("train", "val") for name in "ab" for i in "12"}
    splits = load_images(photos(files))
    assert splits.train.counts == (2, 2) and splits.test.counts == (2, 2)
    assert splits.train.image_shape == (3, 8, 8) and splits.mirror
    assert splits.notes == ()


def test_pixels_are_those_of_the_file(photos):
    folder = photos(TWO)
    splits = load_images(folder)
    expected = np.asarray(Image.open(folder / "cats" / "2.png")).transpose(2, 0, 1)
    assert np.array_equal(splits.train.images[1].numpy(), expected)
    assert splits.train.labels.tolist() == [0, 0, 1]
    assert splits.test is None and "no test split" in splits.notes[0] and "--holdout" in splits.notes[0]


def test_holdout_takes_a_share_of_every_class(photos):
    files = {f"{c}/{i}.png": ((8, 8), "RGB") for c, count in (("a", 20), ("b", 10), ("c", 1)) for i in range(count)}
    folder = photos(files)
    splits = load_images(folder, holdout=0.2)
    assert splits.train.counts == (16, 8, 1) and splits.test.counts == (4, 2, 0)
    assert any("no images of the class 'c'" in note for note in splits.notes)
    again, other = load_images(folder, holdout=0.2), load_images(folder, holdout=0.2, seed=1)
    assert torch.equal(again.test.images, splits.test.images)
    assert not torch.equal(other.test.images, splits.test.images)


@pytest.mark.parametrize("share", [0, 1, -0.5, 1.5])
def test_a_holdout_outside_0_1_is_refused(photos, share):
    with pytest.raises(UserError, match="--holdout"):
        load_images(photos(TWO), holdout=share)


def test_a_holdout_beside_a_test_split_is_refused(photos):
    files = {f"{split}/{name}/1.png": ((8, 8), "RGB") for split in ("train", "test") for name in "ab"}
    with pytest.raises(UserError, match="test split of its own"):
        load_images(photos(files), holdout=0.1)


def test_a_class_called_train_is_a_class(photos):
    files = {f"{name}/{i}.png": ((8, 8), "RGB") for name in ("bus", "train", "tram") for i in "12"}
    assert load_images(photos(files)).class_names == ("bus", "train", "tram")


def test_names_with_spaces_unicode_and_dots(photos):
    names = ["golden retriever", "ñandú 鳥", "a.b.c", "日本", "50%", "'quoted'", "été"]
    files = {f"{name}/{i}.png": ((8, 8), "RGB") for name in [*names, "e\u0301clair"] for i in "12"}
    assert set(load_images(photos(files)).class_names) == {*names, "\u00e9clair"}  # decomposed on disk, composed here


def test_every_mode_is_converted_with_one_counted_note(photos):
    modes = {"png": ["RGBA", "P", "I;16", "LA", "L", "1", "RGB"], "tiff": ["CMYK"], "jpg": ["RGB"]}
    files = {f"{c}/{e}{i}.{e}": ((9, 7), m) for c in "ab" for e, ms in modes.items() for i, m in enumerate(ms)}
    splits = load_images(photos(files))
    assert splits.train.images.shape == (18, 3, 7, 9)
    (note,) = [note for note in splits.notes if "converted" in note]
    for words in ("14 files", "2 RGBA", "2 palette", "2 16-bit", "2 CMYK", "2 grey with alpha", "4 grey", "8-bit RGB"):
        assert words in note


def test_grey_folders_stay_grey(photos):
    files = {f"{c}/{i}.png": ((8, 8), mode) for c in "ab" for i, mode in enumerate(["L", "L", "I;16"])}
    splits = load_images(photos(files))
    assert splits.train.image_shape == (1, 8, 8)
    grey = np.asarray(picture((8, 8), "I;16", 2)) >> 8
    assert np.array_equal(splits.train.images[2, 0].numpy(), grey)


def test_transparency_lies_over_white(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        Image.new("RGBA", (8, 8), (200, 0, 0, 0)).save(tmp_path / name / "clear.png")
    assert load_images(tmp_path).train.images.unique().tolist() == [255]


def test_phones_turn_their_photographs(tmp_path):
    """EXIF orientation 6: stored lying, shown upright."""
    for name in "ab":
        (tmp_path / name).mkdir()
        image = Image.new("RGB", (16, 8), "black")
        image.paste((255, 255, 255), (0, 0, 8, 8))
        exif = Image.Exif()
        exif[0x0112] = 6
        image.save(tmp_path / name / "photo.png", exif=exif)
    splits = load_images(tmp_path)
    assert splits.train.image_shape == (3, 16, 8)
    assert splits.train.images[0, :, 0].float().mean() > 250 and splits.train.images[0, :, -1].float().mean() < 5


def test_sizes_are_made_one(photos):
    files = {f"{c}/{i}.jpg": ((20 + 30 * i, 90 - 20 * i), "RGB") for c in "ab" for i in range(3)}
    folder = photos(files)
    splits = load_images(folder)
    assert splits.train.image_shape == (3, 32, 32)
    assert any("3 sizes" in note and "--image-size" in note for note in splits.notes)
    chosen = load_images(folder, image_size=(12, 10))
    assert chosen.train.image_shape == (3, 12, 10)
    assert not any("sizes" in note for note in chosen.notes)


def test_the_middle_is_kept(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        image = Image.new("RGB", (60, 20), "black")
        image.paste((255, 255, 255), (20, 0, 40, 20))
        image.save(tmp_path / name / "wide.png")
    assert load_images(tmp_path, image_size=20).train.images.float().mean() > 250


def test_unreadable_files_are_listed_ten_and_a_count(photos):
    folder = photos(SIX)
    for i in range(12):
        (folder / "cats" / f"bad{i:02d}.jpg").write_bytes(b"not an image")
    with pytest.raises(UserError) as caught:
        load_images(folder)
    sentence = str(caught.value)
    assert "12 files" in sentence and "bad09.jpg" in sentence and "bad10.jpg" not in sentence
    assert "and 2 more" in sentence and "--skip-bad" in sentence
    splits = load_images(folder, skip_bad=True)
    assert splits.train.counts == (3, 3)
    assert any("12 files" in note for note in splits.notes)


def test_a_truncated_jpeg_is_unreadable_not_half_an_image(photos):
    folder = photos({**SIX, "dogs/cut.jpg": ((64, 64), "RGB")})
    path = folder / "dogs" / "cut.jpg"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(UserError, match=r"1 file is no readable image: .*cut\.jpg"):
        load_images(folder)
    assert load_images(folder, skip_bad=True).train.counts == (3, 3)


def _bomb(path):
    """A PNG that promises 60,000 x 60,000 pixels in a few bytes."""
    import struct
    import zlib

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")
    )


def test_a_decompression_bomb_is_named(photos):
    folder = photos(SIX)
    _bomb(folder / "cats" / "bomb.png")
    with pytest.raises(UserError, match=r"bomb\.png \(a decompression bomb\)"):
        load_images(folder)


def test_a_pixel_count_below_pillows_limit_and_above_ours_is_refused(photos, monkeypatch):
    monkeypatch.setattr(pictures, "MAX_PIXELS", 70)
    folder = photos({**SIX, "cats/large.png": ((9, 9), "RGB")})
    with pytest.raises(UserError, match=r"large\.png \(9 x 9 pixels, a decompression bomb\)"):
        load_images(folder)


def test_postscript_never_reaches_ghostscript(photos):
    folder = photos(SIX)
    (folder / "cats" / "evil.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n")
    assert "EPS" not in pictures.formats()
    with pytest.raises(UserError, match=r"evil\.png \(no image\)"):
        load_images(folder)


def test_a_symlink_loop_is_an_error_not_a_hang(photos):
    folder = photos(SIX)
    (folder / "cats" / "again").symlink_to(folder / "cats", target_is_directory=True)
    with pytest.raises(UserError, match="link to a folder above"):
        load_images(folder)


def test_broken_links_are_unreadable(photos):
    folder = photos(SIX)
    (folder / "cats" / "gone.png").symlink_to("nowhere.png")
    (folder / "cats" / "self.png").symlink_to("self.png")
    with pytest.raises(UserError, match="2 files") as caught:
        load_images(folder)
    assert "gone.png" in str(caught.value) and "self.png" in str(caught.value)


def test_a_pipe_is_no_image(photos):
    folder = photos(SIX)
    os.mkfifo(folder / "cats" / "pipe.png")
    with pytest.raises(UserError, match=r"pipe\.png"):
        load_images(folder)


def test_links_to_other_disks_work(photos, tmp_path):
    folder, elsewhere = photos(TWO), photos({"x/1.png": ((8, 8), "RGB")}, "elsewhere")
    (folder / "birds").symlink_to(elsewhere / "x", target_is_directory=True)
    assert load_images(folder).class_names == ("birds", "cats", "dogs")


def test_hidden_and_foreign_files_are_not_images(photos):
    folder = photos(TWO)
    for name in (".DS_Store", "Thumbs.db", "notes.txt", "labels.csv"):
        (folder / "cats" / name).write_text("x")
    (folder / ".git").mkdir()
    assert load_images(folder).train.counts == (2, 1)


def test_nested_images_belong_to_their_class(photos):
    files = {"cats/2020/may/1.png": ((8, 8), "RGB"), "cats/2.png": ((8, 8), "RGB"), "dogs/1.png": ((8, 8), "RGB")}
    assert load_images(photos(files)).train.counts == (2, 1)


def test_duplicates_of_training_images_in_the_test_split_are_reported(photos):
    files = {f"{split}/{name}/{i}.png": ((8, 8), "RGB") for split in ("train", "test") for name in "ab" for i in "12"}
    folder = photos(files)
    for i in "12":
        (folder / "test" / "b" / f"{i}.png").write_bytes((folder / "train" / "a" / "1.png").read_bytes())
    assert any("2 test images are also in the training split" in note for note in load_images(folder).notes)


def _empty(folder):
    folder.mkdir()


def _files_only(folder):
    folder.mkdir()
    picture().save(folder / "1.png")


def _one_class(folder):
    (folder / "cats").mkdir(parents=True)
    picture().save(folder / "cats" / "1.png")


def _empty_class(folder):
    _one_class(folder)
    (folder / "dogs").mkdir()


def _class_of_junk(folder):
    _one_class(folder)
    (folder / "dogs").mkdir()
    (folder / "dogs" / "a.png").write_bytes(b"junk")


def _unknown_test_class(folder):
    for name in ("train/a", "train/b", "test/a", "test/c"):
        (folder / name).mkdir(parents=True)
        picture().save(folder / name / "1.png")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_empty, "is empty"),
        (_files_only, "no class folders"),
        (_one_class, "a single class ('cats')"),
        (_empty_class, "dogs holds no readable image"),
        (_class_of_junk, "a.png (no image)"),
        (_unknown_test_class, "c is a class that"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence_and_nothing_is_left(tmp_path, own_cache, make, words):
    folder = tmp_path / "photos"
    make(folder)
    with pytest.raises(UserError) as caught:
        load_images(folder)
    assert words in str(caught.value) and "\n" not in str(caught.value)
    left = [path for path in own_cache.rglob("*") if path.is_file() and path.suffix != ".lock"]
    assert left == []


def test_a_class_of_junk_is_an_error_even_with_skip_bad(tmp_path):
    folder = tmp_path / "photos"
    _class_of_junk(folder)
    with pytest.raises(UserError, match=r"'dogs' of .* holds no readable image"):
        load_images(folder, skip_bad=True)


def test_nothing_but_junk(tmp_path):
    for name in "ab":
        (tmp_path / "photos" / name).mkdir(parents=True)
        (tmp_path / "photos" / name / "1.png").write_bytes(b"junk")
    with pytest.raises(UserError, match="2 files are no readable images"):
        load_images(tmp_path / "photos", skip_bad=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_without_permission(photos):
    folder = photos(TWO)
    (folder / "cats").chmod(0)
    try:
        with pytest.raises(UserError, match="cats"):
            load_images(folder)
    finally:
        (folder / "cats").chmod(0o755)


def test_progress_is_told(photos):
    class Ear:
        said: list = []

        def start(self, task, total):
            self.said.append((task, total))

        def update(self, done, **_):
            self.said.append(done)

        def note(self, message): ...
        def finish(self): ...

    load_images(photos(SIX), progress=Ear())
    assert Ear.said == [("Reading headers", 6), 6, ("Decoding images", 6), 6]


@pytest.mark.parametrize("size", ["banana", "0", 3, "12x", 5000, (2, 8)])
def test_an_impossible_image_size(photos, size):
    with pytest.raises(UserError, match="--image-size"):
        load_images(photos(TWO), image_size=size)


def test_an_unknown_source_names_the_choices():
    with pytest.raises(UserError, match=r"streetdigits, cifar10, .*folder of class folders"):
        load_images("cifar11")


def test_a_file_of_another_kind(tmp_path):
    (tmp_path / "a.txt").write_text("hello")
    with pytest.raises(UserError, match=r"a\.txt is neither a folder nor one of \.npz, \.parquet"):
        load_images(tmp_path / "a.txt")
