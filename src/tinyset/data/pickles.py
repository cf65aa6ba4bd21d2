"""A pickle reader that can only build data: numbers, strings, bytes, lists, tuples, dicts and numpy arrays.

Python's own unpickler calls whatever a file names. This one interprets the opcodes itself, imports nothing and calls
nothing: the few names that the CIFAR files contain (numpy's array constructor and the like) are recognised by their
text. Any other name, opcode or shape is refused before anything happens.
"""

import io
import math
import pickletools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

MAX_BYTES = 1 << 29  # the largest official file is 155 MB
_MARK = object()
_NAMES = {
    ("numpy.core.multiarray", "_reconstruct"): "reconstruct",
    ("numpy._core.multiarray", "_reconstruct"): "reconstruct",
    ("numpy.core.numeric", "_frombuffer"): "frombuffer",
    ("numpy._core.numeric", "_frombuffer"): "frombuffer",
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): "dtype",
    ("_codecs", "encode"): "encode",
}
_PLAIN = (int, float, str, bytes)
_DTYPES = {"u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8", "b1"}


class Refused(ValueError):
    """The file is damaged, or asks for more than data."""


class _Name:
    """A recognised name: a word on the stack, not a thing that can be called."""

    def __init__(self, word: str) -> None:
        self.word = word


class _Pending:
    """An array or dtype whose state comes with a later BUILD."""

    def __init__(self, kind: str, code: str = "") -> None:
        self.kind, self.code = kind, code
        self.array: np.ndarray | None = None


def loads(data: bytes) -> Any:
    """The data in a pickle, or `Refused`."""
    if len(data) > MAX_BYTES:
        raise Refused("larger than any file of this kind")
    machine = _Machine()
    try:
        with warnings.catch_warnings(action="ignore"):  # of the escapes in damaged text strings
            for opcode, argument, _ in pickletools.genops(io.BytesIO(data)):
                if opcode.name == "STOP":
                    return _finished(machine.pop())
                machine.step(opcode.name, argument)
    except Refused:
        raise
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError, RecursionError) as error:
        raise Refused(f"damaged ({type(error).__name__})") from error
    raise Refused("it ends in the middle")


def _finished(value: Any) -> Any:
    """The result with arrays in the place of their placeholders: flat values, or a dict of them."""
    checked: set[int] = set()  # one list may stand under many keys: looked at once, or a small file costs hours
    if isinstance(value, dict):
        return {key: _flat(item, checked) for key, item in value.items()}
    return _flat(value, checked)


def _flat(value: Any, checked: set[int]) -> Any:
    if isinstance(value, _Pending):
        if value.array is None:
            raise Refused("an array without content")
        return value.array
    items = value if isinstance(value, list | tuple) else (value,)
    if id(value) not in checked and not all(item is None or isinstance(item, _PLAIN) for item in items):
        raise Refused("it holds more than arrays, strings and lists of them")
    checked.add(id(value))
    return value


class _Machine:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def pop(self) -> Any:
        value = self.stack.pop()
        if value is _MARK:
            raise Refused("damaged (mark)")
        return value

    def pop_mark(self) -> list[Any]:
        """Everything above the last mark."""
        for at in range(len(self.stack) - 1, -1, -1):
            if self.stack[at] is _MARK:
                items = self.stack[at + 1 :]
                del self.stack[at:]
                return items
        raise Refused("damaged (no mark)")

    def step(self, name: str, argument: Any) -> None:
        if name in _LITERALS:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name]())
        elif name in ("PROTO", "FRAME"):
            pass
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            self.memo[argument] = self.stack[-1]
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = self.stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            self.stack.append(self.memo[argument])
        elif name in _ACTIONS:
            _ACTIONS[name](self, argument)
        else:
            raise Refused(f"the opcode {name} is not data")

    def append(self, _: Any) -> None:
        value = self.pop()
        _a(list, self.stack[-1]).append(value)

    def appends(self, _: Any) -> None:
        items = self.pop_mark()
        _a(list, self.stack[-1]).extend(items)

    def set_item(self, _: Any) -> None:
        value, key = self.pop(), self.pop()
        _a(dict, self.stack[-1])[_key(key)] = value

    def set_items(self, _: Any) -> None:
        items = self.pop_mark()
        target = _a(dict, self.stack[-1])
        for key, value in zip(items[::2], items[1::2], strict=True):
            target[_key(key)] = value

    def make_dict(self, _: Any) -> None:
        items = self.pop_mark()
        self.stack.append({_key(key): value for key, value in zip(items[::2], items[1::2], strict=True)})

    def short_tuple(self, count: int) -> None:
        items = [self.pop() for _ in range(count)]
        self.stack.append(tuple(reversed(items)))

    def stack_name(self, _: Any) -> None:
        name, module = self.pop(), self.pop()
        self.push_name(_a(str, module), _a(str, name))

    def push_name(self, module: str, name: str) -> None:
        word = _NAMES.get((module, name))
        if word is None:
            raise Refused(f"it asks for {module}.{name}"[:80])
        self.stack.append(_Name(word))

    def reduce(self, _: Any) -> None:
        arguments, callee = _a(tuple, self.pop()), _a(_Name, self.pop())
        if callee.word == "encode":
            text, encoding = arguments
            if encoding not in ("latin1", "latin-1"):
                raise Refused(f"the encoding {encoding!r}"[:80])
            self.stack.append(_a(str, text).encode("latin-1"))
        elif callee.word == "reconstruct":
            self.stack.append(_Pending("array"))
        elif callee.word == "dtype":
            self.stack.append(_Pending("dtype", _code(arguments[0])))
        elif callee.word == "frombuffer":
            content, dtype, shape, order = arguments
            pending = _Pending("array")
            pending.array = _array(content, dtype, shape, order == "F")
            self.stack.append(pending)
        else:
            raise Refused(f"a call of {callee.word}")

    def build(self, _: Any) -> None:
        state, target = _a(tuple, self.pop()), _a(_Pending, self.stack[-1])
        if target.kind == "dtype":
            target.code = ("<" if state[1] in ("|", "=") else _a(str, state[1])) + target.code.lstrip("<>|=")
            return
        if len(state) != 5:
            raise Refused("an array of an unknown version")
        _version, shape, dtype, fortran, content = state
        target.array = _array(content, dtype, shape, bool(fortran))


def _array(content: Any, dtype: Any, shape: Any, fortran: bool) -> np.ndarray:
    """An array over `content`, where its size is exactly what dtype and shape need."""
    raw = content.encode("latin-1") if isinstance(content, str) else content
    if not isinstance(raw, bytes | bytearray):
        raise Refused("an array of objects")
    kind = np.dtype(_code(_a(_Pending, dtype).code))
    sides = tuple(_a(int, side) for side in _a(tuple, shape))
    if any(side < 0 for side in sides) or math.prod(sides) * kind.itemsize != len(raw):
        raise Refused("an array that lies about its shape")
    return np.frombuffer(raw, kind).reshape(sides, order="F" if fortran else "C")


def _code(code: Any) -> str:
    if _a(str, code).lstrip("<>|=") not in _DTYPES:
        raise Refused(f"the dtype {code!r}"[:80])
    return str(code)


def _a(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise Refused(f"damaged (no {kind.__name__.strip('_')} where one must be)")
    return value


def _key(key: Any) -> Any:
    if not isinstance(key, str | bytes | int):
        raise Refused("a dict key that is no string")
    return key


_LITERALS = {
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT",
    "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
    "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8",
}  # fmt: skip
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple,
    "MARK": lambda: _MARK,
}
_ACTIONS: dict[str, Callable[[_Machine, Any], None]] = {
    "APPEND": _Machine.append,
    "APPENDS": _Machine.appends,
    "SETITEM": _Machine.set_item,
    "SETITEMS": _Machine.set_items,
    "LIST": lambda machine, _: machine.stack.append(machine.pop_mark()),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.pop_mark())),
    "DICT": _Machine.make_dict,
    "TUPLE1": lambda machine, _: machine.short_tuple(1),
    "TUPLE2": lambda machine, _: machine.short_tuple(2),
    "TUPLE3": lambda machine, _: machine.short_tuple(3),
    "GLOBAL": lambda machine, argument: machine.push_name(*argument.split(" ", 1)),
    "STACK_GLOBAL": _Machine.stack_name,
    "REDUCE": _Machine.reduce,
    "BUILD": _Machine.build,
}
