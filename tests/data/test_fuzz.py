"""5,000 mutated files of strangers: an answer or one sentence, never a crash, a hang, or code that runs."""

import io
import os
import pickle
import random
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tinyset.data import cifar, pictures
from tinyset.data.idx import read_idx
from tinyset.data.npz import read_npz
from tinyset.data.svhn import read_mat
from tinyset.errors import UserError

from . import formats
from .conftest import picture

PER_FORMAT = 1250
SLOW_S = 2  # of processor time, so that a busy machine fails nothing
FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "pickle.find_class", "shutil.", "socket.")
NASTY = [b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\xff\xff\xff\x7f", b"\x7f\xff\xff\xff", b"\x00\x00\x00\x80"]

_heard: list[str] | None = None


def _hook(event, _args):
    if _heard is not None and event.startswith(FORBIDDEN):
        _heard.append(event)


@pytest.fixture
def listening():
    """What the interpreter was asked to do meanwhile. (An audit hook cannot be removed, only stopped listening to.)"""
    global _heard
    if not getattr(sys, "_tinyset_fuzz_hook", False):
        sys.addaudithook(_hook)
        sys._tinyset_fuzz_hook = True
    _heard = []
    yield _heard
    _heard = None


@pytest.fixture
def scratch(tmp_path):
    """A file to write thousands of times: in memory where there is such a place."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as folder:
        yield Path(folder) / "mutated"


def mutate(raw: bytes, dice: random.Random) -> bytes:
    data = bytearray(raw)
    for _ in range(dice.choice([1, 1, 2, 4, 8])):
        # headers are where the lies are
        at = dice.randrange(min(len(data), 300)) if dice.random() < 0.7 else dice.randrange(len(data))
        kind = dice.randrange(6)
        if kind == 0:
            data[at] = dice.randrange(256)
        elif kind == 1:
            data[at] ^= 1 << dice.randrange(8)
        elif kind == 2:
            data[at : at + 4] = dice.choice(NASTY)
        elif kind == 3:
            data[at:at] = dice.randbytes(dice.randrange(1, 9))
        elif kind == 4:
            del data[at : at + dice.randrange(1, 40)]
        else:
            del data[max(at, 1) :]
        data = data or bytearray(b"\0")
    return bytes(data)


def _cifar_seeds():
    batch = {"data": np.arange(2 * 3072, dtype=np.uint32).astype(np.uint8).reshape(2, 3072), "labels": [1, 2]}
    return [pickle.dumps(batch, protocol=protocol) for protocol in range(6)]


def _npz_seeds():
    seeds = []
    for save in (np.savez, np.savez_compressed):
        buffer = io.BytesIO()
        save(buffer, images=np.zeros((2, 3, 3), np.uint8), labels=np.array(["a", "b"]))
        seeds.append(buffer.getvalue())
    headers = io.BytesIO()  # damage inside the member, with a zip around it that is whole
    np.save(headers, np.zeros((2, 3, 3), np.uint8))
    seeds.append(headers.getvalue())
    return seeds


def _mat_seeds(tmp_path):
    paths = [formats.svhn(tmp_path / str(packed), 2, compressed=packed) / "train_32x32.mat" for packed in (True, False)]
    return [path.read_bytes() for path in paths]


def _idx_seeds():
    import gzip

    raw = formats.idx(np.zeros((2, 4, 4), np.uint8))
    return [raw, gzip.compress(raw)]


def _picture_seeds():
    seeds = []
    for form, mode in [("PNG", "P"), ("JPEG", "RGB"), ("JPEG", "CMYK"), ("GIF", "P"), ("BMP", "RGB"), ("TIFF", "RGB"),
                       ("WEBP", "RGB"), ("PPM", "RGB"), ("TGA", "RGBA"), ("ICO", "RGBA"), ("PNG", "I;16")]:  # fmt: skip
        buffer = io.BytesIO()
        picture((9, 8), mode, 1).save(buffer, form)
        seeds.append(buffer.getvalue())
    return seeds


def _survives(read, seeds, path, seed):
    """Feed mutations to `read`; returns how many were refused. Anything but UserError is a failure of the test."""
    dice = random.Random(seed)
    refused, sentences = 0, set()
    for number in range(PER_FORMAT):
        raw = mutate(seeds[number % len(seeds)], dice)
        start = time.process_time()
        try:
            read(path, raw)
        except UserError as error:
            refused += 1
            sentences.add(str(error))
        assert time.process_time() - start < SLOW_S, raw[:200]
    assert not any("\n" in sentence for sentence in sentences)
    return refused


def _in_file(read):
    def run(path, raw):
        path.write_bytes(raw)
        read(path)

    return run


def _npz(path, raw):
    if raw[:1] == b"\x93":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("images.npy", raw)
    else:
        path.write_bytes(raw)
    read_npz(path)


def test_cifar_pickles(scratch, listening):
    refused = _survives(lambda path, raw: cifar._batch(raw, path, 10), _cifar_seeds(), scratch, 1)
    assert refused > PER_FORMAT // 2 and listening == []


def test_idx(scratch, listening):
    refused = _survives(_in_file(lambda path: read_idx(path, 3)), _idx_seeds(), scratch, 2)
    assert refused > PER_FORMAT // 4 and listening == []


def test_npz(scratch, listening):
    refused = _survives(_npz, _npz_seeds(), scratch, 3)
    assert refused > PER_FORMAT // 4 and listening == []


def test_mat(scratch, tmp_path, listening):
    refused = _survives(_in_file(read_mat), _mat_seeds(tmp_path), scratch, 4)
    assert refused > PER_FORMAT // 4 and listening == []


def test_images(scratch, listening):
    def read(_, raw):
        try:
            pictures.look(raw)
            assert pictures.decode(raw, (8, 8), 3).shape == (3, 8, 8)
        except pictures.Unreadable as error:
            raise UserError(str(error)) from error

    with pictures.quiet():
        refused = _survives(read, _picture_seeds(), scratch, 5)
    assert refused > PER_FORMAT // 10 and listening == []
