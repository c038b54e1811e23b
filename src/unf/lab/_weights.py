"""The weights of a network in a file: safetensors, npz, or a PyTorch state dict."""

import importlib
import io
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree
from safetensors.numpy import save as save_safetensors

from .._persistence import parse_safetensors, write_whole
from ..spec import WeightSpace
from ..zoo import ZooError

Arrays = Mapping[str, np.ndarray]


class Misfit(ValueError):
    """A file that cannot be used: why."""


@dataclass(frozen=True)
class Fit:
    """Arranges the arrays of a file as a space's tree."""

    space: WeightSpace
    others_allowed: bool

    def tree(self, arrays: Mapping[str, np.ndarray | Array]) -> PyTree:
        """The tree; raises Misfit if arrays are missing, have another shape, or are unknown."""
        by_name = {_plain(name): array for name, array in arrays.items()}
        left_out = self.space.notes.left_out if self.space.notes else ()
        known = {_plain(name) for name in (*left_out, *(leaf.path for leaf in self.space.leaves))}
        wrong = []
        for leaf in self.space.leaves:
            array = by_name.get(_plain(leaf.path))
            if array is None:
                wrong.append(f"no array {leaf.path!r}")
            elif array.shape != leaf.shape:
                wrong.append(f"{leaf.path!r} has shape {array.shape}, expected {leaf.shape}")
            elif not jnp.issubdtype(array.dtype, jnp.floating):
                wrong.append(f"{leaf.path!r} is {array.dtype}, expected floating-point numbers")
        for name, array in by_name.items():
            if name not in known and not self.others_allowed:
                if jnp.issubdtype(array.dtype, jnp.floating):
                    wrong.append(f"an array {name!r} that the network does not have")
        if wrong:
            more = f", and {len(wrong) - 3} more" if len(wrong) > 3 else ""
            raise Misfit("; ".join(wrong[:3]) + more)
        return self.space.unflatten([by_name[_plain(leaf.path)] for leaf in self.space.leaves])


def _plain(name: str) -> str:
    return name.replace("/", ".")


def _read_safetensors(file: Path) -> Arrays:
    try:
        return parse_safetensors(file.read_bytes(), file)[1]
    except (OSError, ValueError) as error:
        raise Misfit(str(error).removeprefix(f"{file}: ")) from error


def _read_npz(file: Path) -> Arrays:
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as content:
            return {name: content[name] for name in content.files}
    except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise Misfit(f"not a complete npz file of arrays ({error})") from error


def _torch(file: Path | str, doing: str) -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise ZooError(
            f"{file}: {doing} it needs PyTorch; "
            "run: pip install 'universal-neural-functionals[torch]'"
        ) from error


def _read_torch(file: Path) -> Arrays:
    torch = _torch(file, "reading")
    try:
        state = torch.load(file, weights_only=True, map_location="cpu")
    except Exception as error:  # a damaged file, or a pickle of code, can fail in any way
        reason = str(error).strip().partition("\n")[0]
        raise Misfit(f"PyTorch cannot load it with weights_only=True ({reason})") from error
    if not isinstance(state, Mapping):
        raise Misfit(f"holds a {type(state).__name__}; save module.state_dict()")
    return dict(_tensors(state, torch.Tensor))


def _tensors(state: Mapping, kind: type) -> Iterator[tuple[str, np.ndarray]]:
    """The tensors of a state dict by name; those of dicts inside after the dict's name."""
    for name, entry in state.items():
        if isinstance(entry, Mapping):
            yield from ((f"{name}/{inner}", x) for inner, x in _tensors(entry, kind))
        elif isinstance(entry, kind):
            tensor: Any = entry.detach()
            yield str(name), (tensor.float() if tensor.is_floating_point() else tensor).numpy()


def read_file(file: Path) -> Arrays:
    """The arrays of a file by name.

    Raises:
        ZooError: if it cannot be read.
    """
    try:
        if file.suffix not in READERS:
            raise Misfit(f"expected a name that ends in one of {', '.join(READERS)}")
        return READERS[file.suffix](file)
    except Misfit as error:
        raise ZooError(f"{file}: {error}") from error


READERS: dict[str, Callable[[Path], Arrays]] = {
    ".safetensors": _read_safetensors,
    ".npz": _read_npz,
    ".pt": _read_torch,
    ".pth": _read_torch,
}
"""Readers of files by suffix."""


def read_network(file: Path, space: WeightSpace) -> PyTree:
    """The weights in a file as a space's tree; other arrays in it are ignored.

    Raises:
        ZooError: if it cannot be read, or arrays are missing or have another shape.
    """
    try:
        return Fit(space, others_allowed=True).tree(read_file(file))
    except Misfit as error:
        raise ZooError(f"{file}: {error}") from error


def check_writable(file: Path) -> None:
    """Refuse a file that `write_network` could not write.

    Raises:
        ZooError: if its suffix is unknown, or PyTorch is missing.
    """
    if file.suffix not in _WRITERS:
        raise ZooError(f"{file}: expected a name that ends in one of {', '.join(_WRITERS)}")
    if _WRITERS[file.suffix] is _to_torch:
        _torch(file, "writing")


def write_network(file: Path, params: PyTree, space: WeightSpace, like: Path) -> None:
    """Write weights to a file, with the names and the other arrays of another file.

    Further names of a tensor in a PyTorch file, as of tied weights, get the same weights. Dtypes
    are those that `read_file` finds, so that floating-point numbers of PyTorch files are float32.

    Raises:
        ZooError: if the file cannot be written.
    """
    check_writable(file)
    arrays = dict(read_file(like))
    names = {_plain(name): name for name in arrays}
    left_out = {_plain(name) for name in (space.notes.left_out if space.notes else ())}
    others = {names[plain] for plain in left_out & names.keys()}
    for leaf, array in zip(space.leaves, space.flatten(params, channels=False), strict=True):
        old = arrays[names[_plain(leaf.path)]]
        same = [
            name
            for name in others
            if arrays[name].dtype == old.dtype and np.array_equal(arrays[name], old)
        ]
        for name in (names[_plain(leaf.path)], *same):
            arrays[name] = np.asarray(array, old.dtype, order="C")
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, _WRITERS[file.suffix](arrays))


def _to_npz(arrays: Arrays) -> bytes:
    if any(array.dtype.kind == "V" or array.dtype == jnp.bfloat16 for array in arrays.values()):
        raise ZooError("npz files cannot hold bfloat16; write a safetensors file")
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)
    return stream.getvalue()


def _to_torch(arrays: Arrays) -> bytes:
    torch, stream = _torch("a PyTorch file", "writing"), io.BytesIO()

    def tensor(array: np.ndarray) -> Any:
        if array.dtype == jnp.bfloat16:
            return torch.from_numpy(array.astype(np.float32)).to(torch.bfloat16)
        return torch.from_numpy(array)

    torch.save({name: tensor(array) for name, array in arrays.items()}, stream)
    return stream.getvalue()


_WRITERS: dict[str, Callable[[Arrays], bytes]] = {
    ".safetensors": lambda arrays: save_safetensors(dict(arrays)),
    ".npz": _to_npz,
    ".pt": _to_torch,
    ".pth": _to_torch,
}
"""Writers of files by suffix."""
