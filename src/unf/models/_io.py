"""Saving and loading models: one safetensors file with a JSON description in its header.

Nothing that is loaded can run code. The description holds the kind of model, the arguments it
was made with and its weight spaces; loading checks it against the arrays, and against the
caller's own weight space if one is given.
"""

import json
import os
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from safetensors import SafetensorError, safe_open
from safetensors.flax import save

from .._files import write_whole
from ..spec import SpecError, WeightSpace
from ._deepset import InvariantDeepSet
from ._statnn import StatNN
from ._unf import UNF, InvariantUNF

FORMAT = 1
_KINDS = {kind.__name__: kind for kind in (UNF, InvariantUNF, InvariantDeepSet, StatNN)}


def save_model(path: str | os.PathLike, model: Any) -> None:
    """Write a model of this package to a safetensors file, whole or not at all.

    Raises:
        ValueError: if the model is of another kind, or has an activation without a name.
    """
    kind = type(model).__name__
    if _KINDS.get(kind) is not type(model):
        raise ValueError(f"cannot save a {kind}; expected one of {list(_KINDS)}")
    config = model.config()
    if not isinstance(config["activation"], str):
        raise ValueError(
            f"cannot save the activation {config['activation']!r}: it is a function. "
            "Pass its name in jax.nn, e.g. activation='relu'."
        )
    description = {"format": FORMAT, "kind": kind, "config": config, "space": model.space.to_json()}
    if isinstance(model, UNF) and model.out_space != model.space:
        description["out_space"] = model.out_space.to_json()
    data = save(_named_arrays(model), metadata={"unf": json.dumps(description)})
    write_whole(path, data)


def load_model(
    path: str | os.PathLike, *, space: WeightSpace | None = None
) -> UNF | InvariantUNF | InvariantDeepSet | StatNN:
    """Read a model that `save_model` wrote.

    Args:
        path: the file.
        space: the weight space the model shall work on, checked against the file's.

    Raises:
        ValueError: if the file is not such a model, or damaged.
        SpecError: if `space` is not the one the model was made for.
    """
    try:
        with safe_open(path, framework="flax") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}
    except SafetensorError as error:
        raise ValueError(f"{path}: not a whole safetensors file ({error})") from error
    if "unf" not in metadata:
        raise ValueError(f"{path}: a safetensors file, but not a model saved by unf")
    skeleton = _skeleton(json.loads(metadata["unf"]), path)
    if space is not None:
        _check_space(space, skeleton.space)
    return _fill(skeleton, arrays, path)


def _skeleton(description: Any, path: Any) -> Any:
    """The model's structure, with shapes in place of arrays."""
    if not isinstance(description, dict):
        raise ValueError(f"{path}: the description is not a JSON object")
    if description.get("format") != FORMAT:
        raise ValueError(
            f"{path}: format {description.get('format')}; this version of unf reads {FORMAT}"
        )
    kind = _KINDS.get(description.get("kind", ""))
    if kind is None:
        raise ValueError(f"{path}: unknown kind of model {description.get('kind')!r}")
    spaces = {
        name: WeightSpace.from_json(description.get(name, ""))
        for name in ("space", "out_space")
        if name == "space" or name in description
    }
    try:
        config = {**description["config"], **spaces}
        config |= {name: tuple(x) for name, x in config.items() if isinstance(x, list)}
        return eqx.filter_eval_shape(kind, **config, key=jax.random.key(0))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: a {kind.__name__} cannot be made from this: {error}") from error


def _named_arrays(model: Any) -> dict[str, Any]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(eqx.filter(model, _is_arraylike))
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def _is_arraylike(x: Any) -> bool:
    return eqx.is_array(x) or isinstance(x, jax.ShapeDtypeStruct)


def _fill(skeleton: Any, arrays: dict[str, Any], path: Any) -> Any:
    expected = _named_arrays(skeleton)
    missing, extra = (
        sorted(expected.keys() - arrays.keys()),
        sorted(arrays.keys() - expected.keys()),
    )
    if missing or extra:
        raise ValueError(
            f"{path}: the arrays do not fit the description: missing {missing}, unexpected {extra}"
        )
    for name, want in expected.items():
        if arrays[name].shape != want.shape:
            raise ValueError(
                f"{path}: {name} has shape {arrays[name].shape}, expected {want.shape}"
            )

    def take(key_path: Any, leaf: Any) -> Any:
        if not _is_arraylike(leaf):
            return leaf
        return jnp.asarray(arrays[jax.tree_util.keystr(key_path)])

    return jax.tree_util.tree_map_with_path(take, skeleton)


def _check_space(given: WeightSpace, stored: WeightSpace) -> None:
    ours = {leaf.path: (str(leaf), leaf.shape) for leaf in given.leaves}
    theirs = {leaf.path: (str(leaf), leaf.shape) for leaf in stored.leaves}
    for path in dict.fromkeys([*theirs, *ours]):
        if ours.get(path) != theirs.get(path):
            raise SpecError(
                "the model was made for another weight space",
                path=path,
                expected="no such leaf"
                if path not in theirs
                else '"{}", shape {}'.format(*theirs[path]),
                got="no such leaf" if path not in ours else '"{}", shape {}'.format(*ours[path]),
            )
    if given != stored:
        raise SpecError("the model was made for another weight space: the containers differ")
