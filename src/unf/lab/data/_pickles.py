"""Pickles of plain data and arrays of bytes, and of nothing else.

Pickles can name any function to call, and NumPy trusts the state that a pickle gives its arrays.
Here a pickle can reach neither: arrays are read into `PickledArray`, which only keeps its state.
"""

import io
import math
import pickle
import pickletools
from typing import Any

import numpy as np

from ._types import DataError

_MOST_OPERATIONS = 10**6
_MOST_TUPLES = 1000
"""Far more than there are in official files; as keys, tuples in tuples overflow Python's stack."""
_MOST_NUMBER = 2**63
_MOST_AXES = 4


def read_pickle(content: bytes, name: str) -> Any:
    """What a pickle holds: strings of Python 2 are bytes, arrays are `PickledArray`.

    Args:
        content: the pickle.
        name: what to call it in messages.

    Raises:
        DataError: if it names anything but arrays and bytes, or is damaged; nothing is run.
    """
    try:
        _check_operations(content, name)
        return _Unpickler(io.BytesIO(content), name).load()
    except DataError:
        raise
    except Exception as error:  # damaged pickles raise almost anything
        raise DataError(
            f"{name}: not a whole pickle ({error!r}); copy the official file again"
        ) from error


def _check_operations(content: bytes, name: str) -> None:
    """Refuse what takes memory or time out of proportion; nothing is made yet."""
    operations = tuples = 0
    for operation, argument, _ in pickletools.genops(content):
        operations += 1
        tuples += "TUPLE" in operation.name or operation.name == "FROZENSET"
        # The table of what was seen would get as many places.
        if operation.name in ("PUT", "LONG_BINPUT") and (argument or 0) > len(content):
            raise DataError(f"{name}: not a whole pickle (it counts more parts than bytes)")
        long = isinstance(argument, int) and abs(argument) >= _MOST_NUMBER
        if operations > _MOST_OPERATIONS or tuples > _MOST_TUPLES or long:
            raise DataError(
                f"{name}: a pickle of more, or longer, parts than official files have; "
                "copy the official file again"
            )


class PickledArray:
    """An array as a pickle describes it."""

    _state: Any = None

    def __init__(self, *arguments: Any):
        pass

    def __setstate__(self, state: Any) -> None:
        self._state = state

    def as_bytes(self, name: str) -> np.ndarray:
        """The array, if its values are bytes.

        Raises:
            DataError: if they are not, or there are too many or too few of them.
        """
        match self._state:
            case (_, tuple(shape), _PickledType(code="u1" | b"u1"), order, bytes(values)):
                whole = all(type(size) is int and size >= 0 for size in shape)
                if not whole or len(shape) > _MOST_AXES:
                    raise DataError(f"{name}: an array has the shape of no images")
                if len(values) != math.prod(shape):
                    raise DataError(f"{name}: {len(values)} values in an array {list(shape)}")
                flat = np.frombuffer(values, np.uint8)
                return flat.reshape(shape, order="F" if order else "C")
            case (_, _, _PickledType(code=str(code) | bytes(code)), _, _):
                raise DataError(f"{name}: an array has values of type {code!r}, expected 'u1'")
        raise DataError(f"{name}: an array without values")


class _PickledType:
    code: Any = None

    def __init__(self, code: Any = None, *flags: Any):
        self.code = code

    def __setstate__(self, state: Any) -> None:
        pass  # the order of bytes, and what only types of several fields have


class _Latin1(bytes):
    """Bytes as old pickles have them: `encode("…", "latin1")`, and in no other encoding."""

    def __new__(cls, text: str, encoding: str) -> "_Latin1":
        if encoding != "latin1":
            raise ValueError("text in another encoding than latin1")
        return super().__new__(cls, text.encode("latin1"))

    def __setstate__(self, state: Any) -> None:
        pass  # so that no pickle can set anything here


_NAMES = {
    ("_codecs", "encode"): _Latin1,
    ("numpy", "dtype"): _PickledType,
    ("numpy", "ndarray"): PickledArray,
    ("numpy.core.multiarray", "_reconstruct"): PickledArray,
    ("numpy._core.multiarray", "_reconstruct"): PickledArray,
}
"""All that a pickle may name, and what it gets."""


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, name: str):
        super().__init__(file, encoding="bytes")
        self._name = name

    def find_class(self, module: str, name: str, /) -> Any:
        if (module, name) not in _NAMES:
            raise DataError(
                f"{self._name}: the pickle names {module}.{name}, expected only arrays and bytes; "
                "it was not run, and is not an official file"
            )
        return _NAMES[module, name]
