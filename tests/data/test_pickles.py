"""The pickle machine: reads what CIFAR's authors and numpy write, runs nothing."""

import pickle
import sys

import numpy as np
import pytest

from tinyset.data.pickles import Refused, loads

BATCH = {
    "batch_label": "testing batch 1 of 1",
    "labels": [3, 8, 300, 2**40],
    "data": np.arange(24, dtype=np.uint8).reshape(2, 12),
    "filenames": ["a.png", "ü.png"],
}


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol(protocol):
    read = loads(pickle.dumps(BATCH, protocol=protocol))
    assert read.keys() == BATCH.keys()
    assert np.array_equal(read["data"], BATCH["data"]) and read["data"].dtype == np.uint8
    assert read["labels"] == BATCH["labels"] and read["filenames"] == BATCH["filenames"]


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_fortran_order_and_big_endian(protocol):
    array = np.asfortranarray(np.arange(6, dtype=">i4").reshape(2, 3))
    assert np.array_equal(loads(pickle.dumps(array, protocol=protocol)), array)


def test_python_2_strings():
    """What cPickle of Python 2 wrote in 2009: byte strings for keys, and for the pixels."""
    raw = (
        b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85q\x05"
        b"U\x01bq\x06\x87q\x07Rq\x08(K\x01K\x01K\x04\x86q\x09cnumpy\ndtype\nq\nU\x02u1q\x0bK\x00K\x01\x87q\x0cRq\r"
        b"(K\x03U\x01|q\x0eNNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq\x0fb\x89U\x04\x00\x7f\x80\xffq\x10tq\x11b"
        b"U\x06labelsq\x12]q\x13K\x07au."
    )
    read = loads(raw)
    assert read["data"].tolist() == [[0, 127, 128, 255]] and read["labels"] == [7]


class Hostile:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


def _hostile_pickles(marker):
    script = f"open({str(marker)!r}, 'w').close()"
    yield "exec", Hostile(exec, (script,))
    yield "eval", {"data": Hostile(eval, (f"__import__('pathlib').Path({str(marker)!r}).touch()",))}
    yield "system", {"labels": [Hostile(__import__("os").system, (f"touch {marker}",))]}
    yield "getattr", Hostile(getattr, ("text", "upper"))
    yield "numpy load", Hostile(np.load, (str(marker),))


@pytest.mark.parametrize("protocol", range(6))
def test_a_hostile_pickle_is_refused_and_runs_nothing(tmp_path, protocol):
    marker = tmp_path / "ran"
    for _name, payload in _hostile_pickles(marker):
        raw = pickle.dumps(payload, protocol=protocol)
        with pytest.raises(Refused, match="asks for"):
            loads(raw)
        assert not marker.exists()


def test_the_hostile_pickles_of_this_test_do_run_in_pythons_unpickler(tmp_path):
    """Otherwise the test above would prove nothing."""
    marker = tmp_path / "ran"
    pickle.loads(pickle.dumps(Hostile(exec, (f"open({str(marker)!r}, 'w').close()",))))
    assert marker.exists()


def test_names_on_the_list_are_words_not_functions():
    with pytest.raises(Refused):  # calling the array type itself, which could allocate anything
        loads(b"\x80\x02cnumpy\nndarray\nJ\xff\xff\xff\x7f\x85\x85R.")
    with pytest.raises(Refused, match="encoding"):
        loads(b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R.")


def test_no_attribute_of_anything_can_be_set():
    with pytest.raises(Refused):
        loads(b"\x80\x02c_codecs\nencode\n}X\x08\x00\x00\x00__call__K\x01sb.")


def test_arrays_that_lie():
    raw = pickle.dumps(BATCH["data"], protocol=2)
    with pytest.raises(Refused, match="shape"):
        loads(raw.replace(b"K\x02K\x0c", b"K\x02K\x7f"))
    objects = pickle.dumps(np.array([{}, []], dtype=object), protocol=2)
    with pytest.raises(Refused, match="dtype"):
        loads(objects)


def test_memory_is_never_promised_away():
    """A memo index or a length of 4 GB costs Python's unpickler gigabytes; here it costs nothing."""
    assert loads(b"\x80\x02K\x01r\xff\xff\xff\xff.") == 1
    with pytest.raises(Refused):
        loads(b"\x80\x04\x8e\xff\xff\xff\xff\xff\x00\x00\x00abc.")


def test_a_list_under_many_keys_is_looked_at_once():
    keys = b"".join(b"X\x05\x00\x00\x00%05dh\x00" % i for i in range(20_000))
    raw = b"\x80\x02]q\x00(" + b"K\x01" * 20_000 + b"e}(" + keys + b"u."
    assert len(loads(raw)) == 20_000


@pytest.mark.parametrize(
    "raw",
    [b"", b"\x80\x02", b".", b"(.", b"\x80\x02]q\x00h\x00a.", b"garbage", b"\x80\x02a.", b"\x80\x02u.", b"h\x05."],
)
def test_damage_is_refused(raw):
    with pytest.raises(Refused):
        loads(raw)


def test_deep_nesting_is_refused_not_a_stack_overflow():
    with pytest.raises(Refused):
        loads(b"\x80\x02" + b"]" * 10 * sys.getrecursionlimit() + b"a" * (10 * sys.getrecursionlimit() - 1) + b".")
