"""From networks, scores and settings in memory to the arrays of a zoo."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._persistence import digest
from ..spec import SpecError, WeightSpace
from ..spec._space import Leaf, check_is_space
from ..spec._tree import fail_structure
from ._store import Status, ZooError

FORMAT = 2
_CHUNK = 256
_LONGEST_NAME = 100
Arrays = dict[str, np.ndarray]


def array_name(path: str) -> str:
    """The name of the array with a leaf's weights."""
    return f"weights.{path.replace('/', '.')}"


def is_name(name: Any) -> bool:
    """Whether a score or a setting may be called this; it becomes part of a folder's name."""
    fits = isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME and name.isprintable()
    return fits and not set(name) & {"/", "\\"}


def gather(
    weights: PyTree | Iterable[PyTree],
    scores: Any,
    space: WeightSpace,
    settings: Mapping[str, Any] | None,
) -> tuple[Arrays, dict[str, Any]]:
    """The arrays and the attributes of a zoo; see `Zoo.from_arrays`."""
    check_is_space(space)
    columns = _scores(scores if isinstance(scores, Mapping) else {"score": scores})
    models = len(next(iter(columns.values())))
    coded, categories = _settings(settings or {}, models)
    _check_names(columns, coded)
    arrays = _weights(weights, space, models)
    finite = np.ones(models, bool)
    for array in arrays.values():
        finite &= np.isfinite(array).reshape(models, -1).all(axis=1)
    arrays |= {f"scores.{name}": column for name, column in columns.items()}
    arrays |= {f"settings.{name}": column for name, column in coded.items()}
    arrays["status"] = np.where(finite, Status.TRAINED, Status.DIVERGED).astype(np.uint8)
    return arrays, {
        "format": FORMAT,
        "models": models,
        "chunk": min(models, _CHUNK),
        "scores": {name: column.shape[1] for name, column in columns.items()},
        "settings": categories,
        "digest": digest(arrays),
    }


def storable(space: WeightSpace) -> WeightSpace:
    """The space, or one over a dict from paths to leaves if no file can describe its containers."""
    try:
        return WeightSpace.from_json(space.to_json())
    except SpecError:
        leaves = tuple(sorted(space.leaves, key=lambda leaf: leaf.path))
        roles = tuple(space.roles[leaf.path] for leaf in leaves)
        treedef = jax.tree.structure({leaf.path: 0 for leaf in leaves})
        return WeightSpace.from_leaves(treedef, leaves, space.axis_sizes, roles=roles)


def _scores(scores: Mapping[str, Any]) -> Arrays:
    """Scores as arrays of shape [models, repeats]."""
    if not scores:
        raise ZooError("no scores; pass an array with one for each network, or a dict of such")
    columns: Arrays = {}
    for name, values in scores.items():
        try:
            column = np.asarray(values, np.float64)
        except (TypeError, ValueError) as error:
            raise ZooError(f"score {name!r} does not hold numbers ({error})") from error
        column = column[:, None] if column.ndim == 1 else column
        if column.ndim != 2 or not column.size:
            raise ZooError(
                f"score {name!r} has shape {np.shape(values)}; expected [models] or "
                "[models, repeats]"
            )
        columns[name] = column
    first, models = next((name, len(column)) for name, column in columns.items())
    for name, column in columns.items():
        if len(column) != models:
            raise ZooError(f"score {name!r} is of {len(column)} models, {first!r} of {models}")
        if len(bad := np.flatnonzero(~np.isfinite(column).all(axis=1))):
            raise ZooError(
                f"score {name!r} of model {bad[0]} is {column[bad[0]].tolist()} ({len(bad)} such "
                "models); leave these models out, or give them a finite score"
            )
    return columns


def _settings(
    settings: Mapping[str, Any], models: int
) -> tuple[Arrays, dict[str, list[str] | None]]:
    """Settings as numbers, and the words that the numbers of some of them stand for."""
    columns: Arrays = {}
    categories: dict[str, list[str] | None] = {}
    for name, values in settings.items():
        column = np.asarray(values)
        if column.dtype == object and all(isinstance(x, str) for x in column.flat):
            column = column.astype(str)
        if column.shape != (models,) or column.dtype.kind not in "biufU":
            raise ZooError(
                f"setting {name!r} is {column.dtype}{list(column.shape)}; expected numbers or "
                f"strings, one for each of {models} models"
            )
        if column.dtype.kind == "U":
            words, column = np.unique(column, return_inverse=True)
            categories[name] = words.tolist()
        else:
            categories[name] = None
            if len(bad := np.flatnonzero(np.isinf(column))):
                raise ZooError(
                    f"setting {name!r} of model {bad[0]} is infinite; use NaN if it is unknown"
                )
        columns[name] = column.astype(np.float64)
    return columns, categories


def _check_names(scores: Arrays, settings: Arrays) -> None:
    for name in [*scores, *settings]:
        if not is_name(name):
            raise ZooError(
                f"a score or setting is called {name!r}; expected a name of 1 to {_LONGEST_NAME} "
                "printable characters without slashes"
            )
    for name in scores:
        if name in settings:
            raise ZooError(f"{name!r} is both a score and a setting; rename one of them")
        if name.removesuffix("_again") in scores.keys() - {name}:
            raise ZooError(
                f"a second measurement cannot be a score of its own, {name!r}; stack the two into "
                f"one array {name.removesuffix('_again')!r} of shape [models, 2]"
            )


def _weights(weights: Any, space: WeightSpace, models: int) -> Arrays:
    """The weights as float32, stacked along a leading axis of models."""
    names = [array_name(leaf.path) for leaf in space.leaves]
    for leaf, name in zip(space.leaves, names, strict=True):
        if names.count(name) > 1:
            raise SpecError("another leaf has the same path but for dots", path=leaf.path)
    if not isinstance(weights, Iterator) and jax.tree.structure(weights) == space.treedef:
        leaves = _stacked(jax.tree.leaves(weights), space, models)
    elif isinstance(weights, Iterable) and not isinstance(weights, Mapping | str):
        leaves = _one_by_one(weights, space, models)
    else:
        fail_structure([leaf.path for leaf in space.leaves], weights)
    return dict(zip(names, leaves, strict=True))


def _stacked(leaves: list[Any], space: WeightSpace, models: int) -> list[np.ndarray]:
    for leaf, array in zip(space.leaves, leaves, strict=True):
        if (found := tuple(np.shape(array))) != (expected := (models, *leaf.shape)):
            raise SpecError(
                "the stacked weights have the wrong shape",
                path=leaf.path,
                expected=f"shape {expected}: {models} models, as there are scores, first",
                got=f"shape {found}",
            )
    return [_as_float32(array, leaf) for leaf, array in zip(space.leaves, leaves, strict=True)]


def _one_by_one(networks: Iterable[PyTree], space: WeightSpace, models: int) -> list[np.ndarray]:
    """Copies each network into arrays for all, so that an iterator's are in memory only once."""
    stacked = [np.empty((models, *leaf.shape), np.float32) for leaf in space.leaves]
    count = 0
    for count, tree in enumerate(networks, 1):
        if count > models:
            raise ZooError(f"there are more networks than scores, of which there are {models}")
        try:
            arrays = space.flatten(tree, channels=False)
            for target, leaf, array in zip(stacked, space.leaves, arrays, strict=True):
                target[count - 1] = _as_float32(array, leaf)
        except SpecError as error:
            raise SpecError(
                f"model {count - 1}: {error.problem}",
                path=error.path,
                expected=error.expected,
                got=error.got,
                remedy=error.remedy,
            ) from error
    if count < models:
        raise ZooError(f"there are {count} networks and {models} scores; expected as many")
    return stacked


def _as_float32(array: Any, leaf: Leaf) -> np.ndarray:
    array = np.asarray(array)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise SpecError(
            "the array does not hold real numbers",
            path=leaf.path,
            expected="floating-point weights",
            got=str(array.dtype),
            remedy=f"leave it out of the space with space.drop({leaf.path!r}), and of the weights",
        )
    with np.errstate(over="ignore"):  # what is too large for float32 has diverged
        return array.astype(np.float32, copy=False)
