"""Saving and loading models.

The header of a file holds the function that made the model, its arguments and its weight spaces.
Loading checks them against the arrays, and moves the model to the caller's weight space if one is
given.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from .._persistence import FORMAT, Arrays, read_tree, write_arrays
from ..nn import TiedLinear
from ..nn._pool import GROUPS
from ..spec import SpecError, WeightSpace
from ..spec._signs import check_names
from ..spec._tree import without_roles
from ._fitted import Fitted, Loss
from ._invariant import (
    Invariant,
    InvariantDeepSet,
    InvariantTied,
    InvariantUNF,
    StatNN,
    TiedDeepSet,
    TiedStatNN,
)
from ._neurons import NeuronFeatures, NeuronUNF
from ._probe import Probe
from ._reader import Editor, editor, reader
from ._unf import UNF, Tied

_CONSTANTS = ("shift", "scale", "out_shift", "out_scale")
_MAKERS: dict[str, Callable[..., Any]] = {
    make.__name__: make
    for make in (
        UNF,
        InvariantUNF,
        InvariantDeepSet,
        StatNN,
        Tied,
        InvariantTied,
        TiedDeepSet,
        TiedStatNN,
        NeuronFeatures,
        NeuronUNF,
        Probe,
        reader,
        editor,
    )
}


def save_model(path: str | os.PathLike, model: eqx.Module) -> None:
    """Write a model to a safetensors file, atomically.

    Raises:
        ValueError: if the model, or the one inside a `Fitted`, was not made by a function of
            `unf.models`, its structure was changed afterwards (a tied model is saved before
            `on`), or its activation has no name.
    """
    inside = model.model if isinstance(model, Fitted) else model
    kind, arguments = getattr(inside, "made_by", None) or (None, ())
    config = _without_spaces(arguments)
    spaces = {name: x.to_json() for name, x in arguments if isinstance(x, WeightSpace)}
    description = {"what": "model", "format": FORMAT, "kind": kind, "config": config, **spaces}
    probe = inside if isinstance(inside, Probe) else getattr(inside, "probe", None)
    if probe is not None and probe is not inside:
        description["probe"] = _without_spaces(probe.made_by[1])
    for given in (config, description.get("probe", {})):
        if callable(activation := given.get("activation")):
            raise ValueError(
                f"cannot save the activation {activation!r}; expected a function of jax.nn, e.g. "
                "activation='relu'"
            )
    if isinstance(model, Fitted):
        standardized = [name for name in _CONSTANTS if getattr(model, name) is not None]
        model = replace(model, loss=None) if callable(model.loss) else model
        description["fitted"] = {"loss": model.loss, "constants": standardized}
        description["fitted"] |= {"signs": model.signs} if model.signs else {}
    tables = [x for x in jax.tree.leaves(model, is_leaf=_is_tied) if _is_tied(x)]
    if tables:
        description |= {"keys": tables[0].keys, "bias_keys": tables[0].bias_keys}
    given = [x for _, x in arguments if isinstance(x, WeightSpace)]
    if kind is None or jax.tree.structure(model) != jax.tree.structure(
        eqx.filter_eval_shape(lambda: _build(description, given, fn=probe and probe.fn))
    ):
        raise ValueError(
            f"cannot save this {type(inside).__name__}; expected a model as one of "
            f"{list(_MAKERS)} makes it"
        )
    write_arrays(path, model, description)


def load_model(
    path: str | os.PathLike,
    *,
    space: WeightSpace | None = None,
    fn: Callable[[PyTree, Array], PyTree] | None = None,
) -> UNF | NeuronFeatures | NeuronUNF | Editor | Probe | Tied | Invariant | Fitted:
    """Read a model that `save_model` wrote.

    Args:
        path: the file.
        space: the weight space to use the model on, which may differ from its own in the sizes of
            permuted axes. It is needed, in the same sizes, if the model was made for the arrays
            of a module, whose classes a file cannot hold.
        fn: the function that runs networks, for a `Probe` or a model that has one inside.

    Raises:
        ValueError: if the file is not a model, or is damaged.
        SpecError: if the model does not fit `space`, or `fn` is missing, another network's, or
            not needed.
    """
    given = [] if space is None else [space]
    try:
        model = read_tree(
            path, "model", lambda about, arrays: _build(about, given, arrays, fn), _upgrade
        )
    except ValueError as error:
        if isinstance(error.__cause__, SpecError):  # the file is fine, what was passed is not
            raise error.__cause__ from None
        raise
    return model if space is None or space == model.space else model.on(space)


def _build(
    description: dict[str, Any],
    given: Sequence[WeightSpace],
    arrays: Arrays | None = None,
    fn: Callable[[PyTree, Array], PyTree] | None = None,
) -> Any:
    """A model as described; weight spaces that are given are not read from the description."""
    make = _MAKERS.get(str(description["kind"]))
    if make is None:
        raise ValueError(f"unknown kind of model {description['kind']!r}")
    for name in (
        "num_layers",
        "num_blocks",
        "mlp_layers",
    ):  # widths cost nothing, since only shapes are made
        layers = description["config"].get(name, 0)
        if arrays is not None and layers > len(arrays):
            raise ValueError(f"{name} is {layers}, but only {len(arrays)} arrays are stored")
    config: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in description["config"].items()
    }
    if make in (UNF, InvariantUNF):  # early versions kept all fixed axes
        config.setdefault("max_fixed", None)
    if make is reader:
        for name in ("fn", "input_shape", "num_probes", "probe_scale"):  # of early ones, unused
            config.pop(name, None)
    known = {without_roles(space.to_json()): space for space in given}
    for name in ("space", "out_space"):
        if (text := description.get(name)) is not None:
            config[name] = known.get(without_roles(text)) or WeightSpace.from_json(text)
    if "keys" in description:
        config["spaces"] = ()
    if fn is not None and make is not Probe and "probe" not in description:
        raise SpecError("the model runs no networks", got="fn=", remedy="leave out fn=")
    if "probe" in description:
        config["probe"] = _make_probe({**description["probe"], "space": config["space"]}, fn)
    key = jax.random.key(0)
    model = _make_probe(config, fn) if make is Probe else make(**config, key=key)
    if "keys" in description:
        keys = description["keys"], description["bias_keys"]
        model = jax.tree.map(
            lambda x: x.with_keys(*keys) if _is_tied(x) else x, model, is_leaf=_is_tied
        )
    return model if "fitted" not in description else _build_fitted(model, description)


def _without_spaces(arguments: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in arguments if not isinstance(value, WeightSpace)}


def _make_probe(config: dict[str, Any], fn: Callable[[PyTree, Array], PyTree] | None) -> Probe:
    if fn is None:
        raise SpecError(
            "the model runs networks, and a file cannot hold how",
            expected="the function that its probe was made with",
            got=None,
            remedy="load_model(path, fn=...)",
        )
    config = config | {"input_shape": tuple(config["input_shape"])}
    inputs = jnp.zeros((config["num_probes"], *config["input_shape"]), jnp.float32)
    start = inputs if config["start"] else None
    arguments: dict[str, Any] = config | {"start": start}
    return Probe(fn, **arguments, key=jax.random.key(0))


def _is_tied(x: Any) -> bool:
    return isinstance(x, TiedLinear)


def _build_fitted(model: Any, description: dict[str, Any]) -> Fitted:
    """A model with constants for the channels of each leaf or group and for each output."""
    loss, names = description["fitted"]["loss"], description["fitted"]["constants"]
    if loss is not None and loss not in get_args(Loss):
        raise ValueError(f"unknown loss {loss!r}")
    config = description["config"]
    channels, outputs = config.get("in_channels", 1), config.get("out_size", 1)
    shapes: dict[str, Any] = {"out_shift": jnp.zeros(outputs), "out_scale": jnp.zeros(outputs)}
    of = GROUPS if model.space is None else model.space.leaves
    leaves = tuple(jnp.zeros(channels) for _ in of)
    shapes |= {"shift": leaves, "scale": leaves}
    signs = tuple(description["fitted"].get("signs", ()))
    if model.space is not None:
        check_names(signs, model.space.index_shapes)
    constants = {name: shapes[name] for name in names}
    return Fitted(model, **constants, loss=loss, signs=signs, grouped=model.space is None)


def _upgrade(description: dict[str, Any], arrays: Arrays) -> Arrays:
    """Rename the arrays of a file of format 1."""
    names = {".scale": ".module.weight", ".shift": ".module.bias"}  # of normalizations
    if description.get("kind") == "InvariantDeepSet":
        names[".layers"] = ".backbone.layers"
    renamed = {}
    for name, array in arrays.items():
        for old, new in names.items():
            name = name if name.startswith(".head") else name.replace(old, new)
        renamed[name] = array
    return renamed
