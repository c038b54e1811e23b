"""Trees of arrays in safetensors files, with a JSON description in the header; no pickle.

Nothing that is read can run code. Arrays are named by their paths in the tree. A checksum tells
files that were altered.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, deserialize
from safetensors.flax import save

from ._files import write_whole

_TYPES = {
    **{"BOOL": np.bool_, "BF16": jnp.bfloat16, "F16": np.float16, "F32": np.float32},
    **{"F64": np.float64, "U8": np.uint8, "U16": np.uint16, "U32": np.uint32, "U64": np.uint64},
    **{"I8": np.int8, "I16": np.int16, "I32": np.int32, "I64": np.int64},
}
"""Of numbers, by their names in files."""
_KINDS = (jnp.floating, jnp.signedinteger, jnp.unsignedinteger, jnp.bool_)


def write_arrays(path: str | os.PathLike, tree: Any, description: Any) -> None:
    """Write a tree's arrays and a description, whole or not at all, with a checksum."""
    arrays, metadata = _named(tree), {"unf": json.dumps(description)}
    metadata["sum"] = _checksum(save(arrays, metadata))
    write_whole(path, save(arrays, metadata))


def read_arrays(path: str | os.PathLike) -> tuple[dict[str, Any], dict[str, Any]]:
    """The description, and the arrays by name, none larger than the file.

    Raises:
        ValueError: if the file is damaged, or not one that `write_arrays` wrote.
    """
    data = Path(path).read_bytes()
    try:
        arrays = {name: _array(**entry) for name, entry in deserialize(data)}
        metadata = _header(data).get("__metadata__") or {}
    except (SafetensorError, ValueError, RecursionError, TypeError) as error:
        raise ValueError(f"{path}: not a whole safetensors file ({error})") from error
    if "unf" not in metadata:
        raise ValueError(f"{path}: a safetensors file, but not one saved by unf")
    if metadata.get("sum") != _checksum(data):
        raise ValueError(f"{path}: altered since it was written (another checksum)")
    try:
        description = json.loads(metadata["unf"])
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: the description is not JSON ({error})") from error
    if not isinstance(description, dict):
        raise ValueError(f"{path}: the description is not a JSON object")
    return description, arrays


def fill(skeleton: Any, arrays: dict[str, Any], path: Any) -> Any:
    """A tree like `skeleton`, whose leaves are arrays or shapes, with the arrays of a file.

    Raises:
        ValueError: if the names, shapes or kinds of numbers are others.
    """
    expected = _named(skeleton)
    missing = sorted(expected.keys() - arrays.keys())
    extra = sorted(arrays.keys() - expected.keys())
    if missing or extra:
        raise ValueError(
            f"{path}: the arrays do not fit the description: missing {missing}, unexpected {extra}"
        )
    for name, want in expected.items():
        if arrays[name].shape != want.shape:
            raise ValueError(
                f"{path}: {name} has shape {arrays[name].shape}, expected {want.shape}"
            )
        if not _same_kind(arrays[name].dtype, want.dtype):
            raise ValueError(
                f"{path}: {name} has numbers of type {arrays[name].dtype}, expected {want.dtype}"
            )

    def take(key_path: Any, leaf: Any) -> Any:
        if not _is_arraylike(leaf):
            return leaf
        return jnp.asarray(arrays[jax.tree_util.keystr(key_path)])

    return jax.tree_util.tree_map_with_path(take, skeleton)


def _array(dtype: str, shape: list[int], data: bytearray) -> np.ndarray:
    if dtype not in _TYPES:
        raise ValueError(f"numbers of type {dtype}, expected one of {list(_TYPES)}")
    return np.ndarray(shape, _TYPES[dtype], data)


def _same_kind(found: Any, wanted: Any) -> bool:
    """Whether a type of numbers serves for another: those of another length do."""
    return any(jnp.issubdtype(found, k) and jnp.issubdtype(wanted, k) for k in _KINDS)


def _header(data: bytes) -> dict[str, Any]:
    """Names, types, shapes and places of arrays, and the metadata."""
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + size])


def _checksum(data: bytes) -> str:
    """Of everything in a file but the checksum."""
    header = _header(data)
    header["__metadata__"].pop("sum", None)
    digest = hashlib.blake2b(json.dumps(header, sort_keys=True).encode(), digest_size=16)
    digest.update(memoryview(data)[8 + int.from_bytes(data[:8], "little") :])
    return digest.hexdigest()


def _named(tree: Any) -> dict[str, Any]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(eqx.filter(tree, _is_arraylike))
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def _is_arraylike(x: Any) -> bool:
    return eqx.is_array(x) or isinstance(x, jax.ShapeDtypeStruct)
