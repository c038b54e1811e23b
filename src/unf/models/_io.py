"""Saving and loading models: one safetensors file with a JSON description in its header.

Nothing that is loaded can run code. The description holds the kind of model, the arguments it
was made with and its weight spaces; loading checks it against the arrays, and against the
caller's own weight space if one is given.
"""

import os
from collections.abc import Mapping
from math import prod
from typing import Any

import equinox as eqx
import jax

from .._arrays import fill, read_arrays, write_arrays
from ..basis import Plan, make_plan
from ..nn import coefficient_shapes
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
    write_arrays(path, model, description)


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
    description, arrays = read_arrays(path)
    skeleton = _skeleton(description, arrays, path)
    if space is not None:
        check_space(space, skeleton.space)
    return fill(skeleton, arrays, path)


def _skeleton(description: dict[str, Any], arrays: Mapping[str, Any], path: Any) -> Any:
    """The model's structure, with shapes in place of arrays."""
    if description.get("format") != FORMAT:
        raise ValueError(
            f"{path}: format {description.get('format')}; this version of unf reads {FORMAT}"
        )
    kind = _KINDS.get(str(description.get("kind")))
    if kind is None:
        raise ValueError(f"{path}: unknown kind of model {description.get('kind')!r}")
    try:
        spaces = {
            name: WeightSpace.from_json(description.get(name, ""))
            for name in ("space", "out_space")
            if name == "space" or name in description
        }
        config = {**description["config"], **spaces}
        config |= {name: tuple(x) for name, x in config.items() if isinstance(x, list)}
        _check_depth(config, arrays)
        if kind in (UNF, InvariantUNF):
            _check_layers(config, arrays)
        return eqx.filter_eval_shape(kind, **config, key=jax.random.key(0))
    except Exception as error:  # what a description has wrong in it can fail in any way
        raise ValueError(f"{path}: a {kind.__name__} cannot be made from this: {error}") from error


def _check_depth(config: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    for name in ("num_layers", "mlp_layers"):
        if config.get(name, 1) > len(arrays):
            raise ValueError(f"{name} is {config[name]}, but the file has {len(arrays)} arrays")


def _check_layers(config: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    space, out_space = config["space"], config.get("out_space", config["space"])
    minimal, between = config["minimal"], config["hidden_channels"]
    out_channels = config.get("out_channels", between)
    if config["num_layers"] == 1:
        channels = config["in_channels"], out_channels
    else:
        channels = between, out_channels
        plan = make_plan(space, minimal=minimal)
        check_layer(plan, config["in_channels"], between, arrays)
    check_layer(make_plan(space, out_space, minimal=minimal), *channels, arrays)


def check_layer(plan: Plan, in_channels: int, out_channels: int, arrays: Mapping[str, Any]) -> None:
    """Compare a layer's size with the arrays of its file, before anything is made of that size.

    Raises:
        ValueError: if the file has fewer arrays or numbers than the layer, or it has no channels.
    """
    if min(in_channels, out_channels) < 1:
        raise ValueError(f"a layer from {in_channels} to {out_channels} channels")
    shapes = coefficient_shapes(plan, in_channels, out_channels).values()
    needed, held = sum(map(prod, shapes)), sum(x.size for x in arrays.values())
    if needed > held or len(shapes) > len(arrays):
        raise ValueError(
            f"a layer has {needed} coefficients in {len(shapes)} arrays, but the file {held} "
            f"numbers in {len(arrays)}"
        )


def check_space(given: WeightSpace, stored: WeightSpace) -> None:
    """Compare the weight space something was made for with another.

    Raises:
        SpecError: naming the first leaf that differs.
    """
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
                remedy="use it on weights of the network it was made for, or make one for these",
            )
    if given != stored:
        raise SpecError("the model was made for another weight space: the containers differ")
