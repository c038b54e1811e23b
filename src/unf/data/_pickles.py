"""Pickles of plain data and arrays of bytes, and of nothing else.

Pickles can name any function to call, and NumPy trusts the state that a pickle gives its arrays.
Here a pickle can reach neither: arrays are read into `PickledArray`, which only keeps its state.
"""

import codecs
import io
import math
import pickle
import pickletools
from typing import Any

import numpy as np

from ._types import DataError


def read_pickle(content: bytes, name: str) -> Any:
    """What a pickle holds: strings of Python 2 are bytes, arrays are `PickledArray`.

    Args:
        content: the pickle.
        name: what to call it in messages.

    Raises:
        DataError: if it names anything but arrays and bytes, or is damaged; nothing is run.
    """
    try:
        for operation, argument, _ in pickletools.genops(content):
            # The table of what was seen would get as many places.
            if operation.name in ("PUT", "LONG_BINPUT") and (argument or 0) > len(content):
                raise DataError(f"{name}: not a whole pickle (it counts more parts than bytes)")
        return _Unpickler(io.BytesIO(content), name).load()
    except DataError:
        raise
    except Exception as error:  # damaged pickles raise almost anything
        raise DataError(
            f"{name}: not a whole pickle ({error!r}); copy the official file again"
        ) from error


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
                if not all(type(size) is int and size >= 0 for size in shape):
                    raise DataError(f"{name}: an array has the shape {shape}")
                if len(values) != math.prod(shape):
                    raise DataError(f"{name}: {len(values)} values in an array {list(shape)}")
                flat = np.frombuffer(values, np.uint8)
                return flat.reshape(shape, order="F" if order else "C")
            case (_, _, _PickledType(code=code), _, _):
                raise DataError(f"{name}: an array has values of type {code!r}, expected 'u1'")
        raise DataError(f"{name}: an array without values")


class _PickledType:
    code: Any = None

    def __init__(self, code: Any = None, *flags: Any):
        self.code = code

    def __setstate__(self, state: Any) -> None:
        pass  # the order of bytes, and what only types of several fields have


_NAMES = {
    ("_codecs", "encode"): codecs.encode,
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
