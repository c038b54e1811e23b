"""Models with the constants of their training data, and reading many networks at once."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod, sqrt
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._devices import in_threads
from ..nn._pool import groups_of
from ..spec import SpecError, WeightSpace
from ._scores import accuracy, kendall_tau, r_squared

Loss = Literal["mse", "bce", "cross-entropy"]
LossFunction = Callable[[PyTree, Any], Array]
"""What one network's output costs, given its target."""
Where = tuple[WeightSpace | None, Any]
"""A weight space and its roles, which no comparison of spaces includes."""


class Networks(NamedTuple):
    """Features of many networks of one weight space; None stands for the model's own."""

    features: PyTree
    space: WeightSpace | None

    @property
    def num_networks(self) -> int:
        """How many networks there are."""
        return len(jax.tree.leaves(self.features)[0])

    @property
    def where(self) -> Where:
        """The space as an argument of compiled functions."""
        return self.space, self.space and tuple(self.space.roles.items())


class Fitted(eqx.Module):
    """A model with the constants that its weights and targets were standardized with.

    `fit` returns it, `save_model` writes it. It is called like the model inside, on one network's
    features, and returns predictions in the units of the targets, or logits if it was fitted with
    a cross-entropy. `predict` and `score` take many networks. If the model returns weights, as an
    `editor` does, in the same tree, they are in the units of the weights, and have their signs.

    A model for any network that was fitted on several weight spaces has no space of its own.
    `on` gives it one, and `predict` and `score` take several. Its constants belong to the groups
    of leaves that `unf.nn.RolePool` tells apart, and to weights times √fan-in.

    Constants are no parameters: their gradients are zero.

    Attributes:
        model: the model inside.
        shift: what is subtracted from the channels of each leaf or group, or None.
        scale: what the channels of each leaf or group are divided by, or None.
        out_shift: the mean of the targets, or None.
        out_scale: their standard deviation, or None.
        loss: what the model was fitted with; None if that was a function, and the model was loaded
            from a file.
        signs: names whose neurons are oriented before weights are standardized.
        grouped: whether `shift` and `scale` belong to groups of leaves.
    """

    model: Any
    shift: tuple[Array, ...] | None = None
    scale: tuple[Array, ...] | None = None
    out_shift: Array | None = None
    out_scale: Array | None = None
    loss: Loss | LossFunction | None = eqx.field(static=True, default="mse")
    signs: tuple[str, ...] = eqx.field(static=True, default=())
    grouped: bool = eqx.field(static=True, default=False)

    @property
    def space(self) -> WeightSpace | None:
        """The weight space of the input; None for a model that fits any, before `on`."""
        return getattr(self.model, "space", None)

    def __call__(self, x: PyTree, space: WeightSpace | None = None, **options: Any) -> Any:
        """Apply to one network's features, with the model's own options.

        A model that fits any network needs their weight space, unless `on` has given it one.
        """
        if space is not None:
            return self.on(space)(x, **options)
        y = self.standardized(x, **options)
        if _has_entries_of(y, x):
            if self.shift is not None:
                leaves, treedef = jax.tree.flatten(y)
                constants = list(zip(leaves, *self._constants(), strict=True))
                if any(len(m) not in (1, leaf.shape[-1]) for leaf, m, _ in constants):
                    raise ValueError(
                        f"the model maps {len(constants[0][1])} channels of weights to "
                        f"{leaves[0].shape[-1]}, so the units of its output are unknown; fit it "
                        "with standardize=False"
                    )
                y = treedef.unflatten([_affine(leaf, m, s) for leaf, m, s in constants])
            return self._flipped(y, x)
        if self.out_scale is None or self.out_shift is None:
            return y
        return y * jax.lax.stop_gradient(self.out_scale) + jax.lax.stop_gradient(self.out_shift)

    def standardized(self, x: PyTree, **options: Any) -> Any:
        """The output before it gets the units of the targets or weights."""
        if self.space is None and hasattr(self.model, "on"):
            raise _without_space("call model(x, space), or use model.on(space)")
        if getattr(self.model, "probe", None) is not None:
            options["raw"] = x
        if self.space is not None:
            self.space.flatten(x, channels=True)  # names the first leaf that does not fit
        x = self._flipped(x, x)
        if self.shift is not None:
            leaves, treedef = jax.tree.flatten(x)
            constants = zip(leaves, *self._constants(), strict=True)
            x = treedef.unflatten([_affine(leaf, -m / s, 1 / s) for leaf, m, s in constants])
        return self.model(x, **options)

    def _constants(self) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """What is subtracted from the channels of each leaf, and what they are divided by."""
        assert self.shift is not None and self.scale is not None
        shift, scale = jax.lax.stop_gradient((self.shift, self.scale))
        if not self.grouped:
            return shift, scale
        assert self.space is not None
        by_leaf = list(zip(groups_of(self.space), fan_in_roots(self.space), strict=True))
        return tuple(shift[g] / r for g, r in by_leaf), tuple(scale[g] / r for g, r in by_leaf)

    def _flipped(self, y: PyTree, x: PyTree) -> PyTree:
        """Features with the signs of neurons with which `x` is read."""
        if not self.signs:
            return y
        assert self.space is not None
        return self.space.flip(y, self.space.orientation(x, self.signs))

    def on(self, space: WeightSpace) -> "Fitted":
        """The model with the same parameters and constants on another weight space."""
        return replace(self, model=self.model.on(space))

    def predict(
        self,
        weights: PyTree,
        *,
        spaces: Sequence[WeightSpace] | None = None,
        batch_size: int = 32,
    ) -> Any:
        """Predictions for many networks: values, probabilities of classes, or weights.

        Args:
            weights: weights or features, with leaves stacked along a leading axis; with `spaces`,
                a list of them.
            spaces: the weight space of each entry of `weights`, for a model that fits any.
            batch_size: how many networks are read at once.

        Returns:
            An array with an entry or a row for each network, or a pytree of features with such
            leaves; with `spaces`, a list of them.
        """
        groups = check_networks(self.model, weights, spaces)
        if callable(self.loss) or self.loss is None:
            found = [_outputs_in_units(self, each, batch_size) for each in groups]
        else:
            found = [each[0] for each in predict_together([self], groups, batch_size)]
        return found[0] if spaces is None else found

    def score(
        self,
        weights: PyTree,
        targets: Any,
        *,
        spaces: Sequence[WeightSpace] | None = None,
        batch_size: int = 32,
    ) -> dict[str, float]:
        """How well many networks' targets are predicted; with `spaces`, those of all together.

        Returns:
            Kendall's τ as "tau" and R² as "r2", for vectors the mean over their entries; the
            "accuracy" if the targets are classes, or 0 and 1 with the loss "bce"; the mean "loss"
            if that is a function.

        Raises:
            ValueError: if targets do not fit, or the loss was a function that is not known.
        """
        groups = check_networks(self.model, weights, spaces)
        if self.loss is None:
            raise ValueError(
                "the model was fitted with a loss that its file cannot hold; compute it from "
                "predict(weights)"
            )
        if callable(self.loss):
            given = [targets] if spaces is None else list(targets)
            losses = [
                losses_of(*split_models([self.model], self), group, y, batch_size)[0]
                for group, y in zip(groups, given, strict=True)
            ]
            return {"loss": float(np.concatenate(losses).mean())}
        outputs = [each[0] for each in _read([self], groups, batch_size)]
        given = [targets] if spaces is None else list(targets)
        true = [
            check_targets(each, self.loss, group.num_networks, outputs[0].shape[-1])
            for each, group in zip(given, groups, strict=True)
        ]
        return scores_of(np.concatenate(outputs), np.concatenate(true), self.loss)


def predict_together(
    models: Sequence[Fitted], groups: Sequence[Networks], batch_size: int = 32
) -> list[np.ndarray]:
    """What each of several models that were fitted together predicts for networks of each space."""
    loss: Any = models[0].loss
    return [
        np.stack([_link(outputs, loss) for outputs in each])
        for each in _read(models, groups, batch_size)
    ]


def _read(
    models: Sequence[Fitted], groups: Sequence[Networks], batch_size: int
) -> list[Float[np.ndarray, "models n out_size"]]:
    """The outputs of models with the same constants for the networks of each space."""
    first = models[0]
    found = outputs_of(*split_models([each.model for each in models], first), groups, batch_size)
    if first.out_scale is None or first.out_shift is None:
        return found
    scale, shift = np.asarray(first.out_scale), np.asarray(first.out_shift)
    return [outputs * scale + shift for outputs in found]


def fan_in_roots(space: WeightSpace) -> list[float]:
    """√fan-in of each leaf: the root of how many activations an entry of the output sums."""
    sizes = [
        [n for n, role in zip(leaf.shape, space.roles[leaf.path], strict=True) if role in _SUMMED]
        for leaf in space.leaves
    ]
    return [sqrt(prod(each)) for each in sizes]


_SUMMED = ("in", "window")


def check_networks(
    model: Any, weights: Any, spaces: Sequence[WeightSpace] | None
) -> list[Networks]:
    """Features by weight space: the model's own, or one of `spaces` for each entry of `weights`."""
    space = getattr(model, "space", None)
    if spaces is None:
        if space is None and hasattr(model, "on"):
            raise _without_space("pass spaces=[space] and [weights]")
        return [Networks(check_features(space, weights)[0], None)]
    if space is not None:
        raise SpecError(
            "a model with a weight space of its own, and spaces=",
            expected="a model that fits any network, such as unf.models.InvariantTied",
            remedy="leave out spaces=",
        )
    if isinstance(weights, dict) or len(weights) != len(spaces) or not len(spaces):
        raise SpecError(
            "weights do not belong to spaces",
            expected=f"a list with a pytree for each of {len(spaces)} weight spaces",
            got=f"a {type(weights).__name__} of {len(weights)}",
        )
    pairs = zip(weights, spaces, strict=True)
    return [Networks(check_features(each, tree)[0], each) for tree, each in pairs]


def _without_space(remedy: str) -> SpecError:
    return SpecError("a model that fits any network needs the weight space", remedy=remedy)


def check_features(space: WeightSpace | None, weights: PyTree) -> tuple[PyTree, int]:
    """Features with a leading axis of networks, and how many there are."""
    leaves, treedef = jax.tree.flatten(weights)
    one_each = isinstance(weights, list) and space is not None and treedef != space.treedef
    if one_each or not leaves or min(np.ndim(leaf) for leaf in leaves) == 0:
        found = "a leaf without axes" if leaves else "no leaves"
        raise SpecError(
            "weights are a pytree of arrays with a leading axis of networks",
            got=f"a list of {len(weights)} trees" if one_each else found,
            remedy="stack them, e.g. jax.tree.map(lambda *leaves: jnp.stack(leaves), *networks)",
        )
    count = len(leaves[0])
    if space is None:
        return weights, count
    channels = np.ndim(leaves[0]) == len(space.leaves[0].shape) + 2
    one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x)[1:], "float32"), weights)
    space.flatten(one, channels=channels)  # names the first leaf that does not fit
    for spec, leaf in zip(space.leaves, leaves, strict=True):
        if len(leaf) != count:
            message = "leaves have different numbers of networks"
            raise SpecError(message, path=spec.path, expected=count, got=len(leaf))
        finite = np.isfinite(np.asarray(leaf, np.float32)).all(axis=tuple(range(1, leaf.ndim)))
        if not finite.all():
            raise SpecError(
                f"weights that are not finite, in {np.sum(~finite)} networks",
                path=spec.path,
                got=f"network {np.argmin(finite)}",
                remedy="leave these networks out",
            )
    return (weights if channels else jax.tree.map(lambda x: x[..., None], weights)), count


def check_targets(targets: Any, loss: Any, count: int, out_size: int) -> Any:
    """Targets as the loss needs them: [networks, out_size], or [networks] classes.

    A loss that is a function takes any arrays with a leading axis of networks.
    """
    if callable(loss):
        given = jax.tree.map(np.asarray, targets)
        if wrong := [x.shape for x in jax.tree.leaves(given) if x.shape[:1] != (count,)]:
            raise ValueError(
                f"targets have shape {wrong[0]}; expected a leading axis of {count} networks"
            )
        return given
    given = np.asarray(targets)
    if loss == "cross-entropy":
        if given.shape != (count,) or not np.issubdtype(given.dtype, np.integer):
            raise ValueError(
                f"targets are {given.dtype}{list(given.shape)}; cross-entropy expects the number "
                f"of a class for each of {count} networks"
            )
        if given.min() < 0 or given.max() >= out_size:
            raise ValueError(
                f"targets are from {given.min()} to {given.max()}, but the model has "
                f"out_size={out_size}; number the classes from 0"
            )
        return given.astype(np.int32)
    if given.shape not in ((count, out_size), (count,) if out_size == 1 else None):
        raise ValueError(
            f"targets have shape {given.shape}; expected ({count}, {out_size}), as there are "
            f"{count} networks and the model has out_size={out_size}"
        )
    given = given.reshape(count, out_size).astype(np.float32)
    wrong = ~np.isfinite(given)
    if loss == "bce":
        wrong |= (given < 0) | (given > 1)
    if wrong.any():
        row = int(np.argmax(wrong.any(axis=1)))
        raise ValueError(
            f"the target of network {row} is {given[row].tolist()}; expected "
            f"{'numbers from 0 to 1, or another loss=' if loss == 'bce' else 'finite numbers'}"
        )
    return given


def outputs_of(
    models: Any, static: Fitted, groups: Sequence[Networks], batch_size: int
) -> list[Float[np.ndarray, "models n out_size"]]:
    """Standardized outputs of several models for the networks of each space, in this process."""
    if len(groups) == 1:
        return [_outputs(models, static, groups[0], batch_size)]
    return in_threads(lambda group: _outputs(models, static, group, batch_size), groups)


def _outputs(
    models: Any, static: Fitted, networks: Networks, batch_size: int
) -> Float[np.ndarray, "models n out_size"]:
    parts = [
        _call(models, static, some, networks.where)
        for some in _batches(networks.features, networks.num_networks, batch_size)
    ]
    found = np.concatenate([np.asarray(part, np.float64) for part in parts], axis=1)
    return found[:, : networks.num_networks]


def _batches(tree: PyTree, size: int, batch_size: int) -> Iterator[PyTree]:
    """Rows of all leaves; the last batch repeats one, so that all have one size and program."""
    for first in range(0, size, batch_size):
        rows = np.minimum(np.arange(first, first + batch_size), size - 1)
        yield jax.tree.map(lambda x, i=rows: x[i], tree)


def losses_of(
    models: Any, static: Fitted, networks: Networks, targets: PyTree, batch_size: int
) -> Float[np.ndarray, "models n"]:
    """What the outputs of several models cost, by a loss that is a function."""
    size = networks.num_networks
    pair = networks.features, check_targets(targets, static.loss, size, 0)
    parts = [
        _costs(models, static, some, wanted, networks.where)
        for some, wanted in _batches(pair, size, batch_size)
    ]
    return np.concatenate([np.asarray(part, np.float64) for part in parts], axis=1)[:, :size]


@eqx.filter_jit
def _costs(models: Any, static: Fitted, features: PyTree, targets: Any, where: Where) -> Array:
    def apply(model: Any) -> Array:
        joined, cost = join_model(model, static, where[0]), static.loss
        assert callable(cost)
        return jax.vmap(lambda x, y: cost(joined(x), y))(features, targets)

    return jax.vmap(apply)(models)


def _outputs_in_units(fitted: Fitted, networks: Networks, batch_size: int) -> PyTree:
    """One model's outputs for many networks, whatever they are."""
    size = networks.num_networks
    parts = [
        jax.tree.map(np.asarray, _call_one(fitted, some, networks.where))
        for some in _batches(networks.features, size, batch_size)
    ]
    return jax.tree.map(lambda *x: np.concatenate(x)[:size], *parts)


@eqx.filter_jit
def _call_one(fitted: Fitted, features: PyTree, where: Where) -> PyTree:
    return jax.vmap(fitted if where[0] is None else fitted.on(where[0]))(features)


@eqx.filter_jit
def _call(models: Any, static: Fitted, features: PyTree, where: Where) -> Array:
    def apply(model: Any) -> Array:
        return jax.vmap(join_model(model, static, where[0]).standardized)(features)

    return jax.vmap(apply)(models)


def _link(outputs: np.ndarray, loss: Any) -> np.ndarray:
    """Predictions from outputs."""
    with np.errstate(invalid="ignore"):  # NaN, if a model has diverged
        if loss == "cross-entropy":
            return np.exp(outputs - np.logaddexp.reduce(outputs, axis=1, keepdims=True))
        values = np.exp(-np.logaddexp(0, -outputs)) if loss == "bce" else outputs
    return values[:, 0] if values.shape[1] == 1 else values


def scores_of(outputs: np.ndarray, true: np.ndarray, loss: Any) -> dict[str, float]:
    """The scores of some networks' outputs, as `Fitted.score` names them."""
    if loss == "cross-entropy":
        return {"accuracy": accuracy(outputs, true)}
    predicted = _link(outputs, loss).reshape(true.shape)
    columns = list(zip(predicted.T, np.asarray(true, float).T, strict=True))
    scores = {
        "tau": float(np.mean([kendall_tau(*pair) for pair in columns])),
        "r2": float(np.mean([r_squared(*pair) for pair in columns])),
    }
    if loss == "bce" and np.isin(true, (0, 1)).all():
        scores["accuracy"] = float(np.mean((predicted > 0.5) == true))
    return scores


def split_models(models: list[Any], fitted: Fitted) -> tuple[Any, Fitted]:
    """The parameters of several models, stacked, and what they share."""
    parts = [eqx.partition(each, eqx.is_inexact_array) for each in models]
    params = jax.tree.map(lambda *x: jnp.stack(x), *(part[0] for part in parts))
    return params, replace(fitted, model=parts[0][1])


def join_model(params: Any, static: Fitted, space: WeightSpace | None = None) -> Fitted:
    """One model again, on a weight space if there is one."""
    joined = replace(static, model=eqx.combine(params, static.model))
    return joined if space is None else joined.on(space)


def _has_entries_of(y: PyTree, x: PyTree) -> bool:
    """Whether features have the same leaves as others, but for the number of channels."""
    shapes = [[jnp.shape(leaf)[:-1] for leaf in jax.tree.leaves(tree)] for tree in (x, y)]
    return jax.tree.structure(y) == jax.tree.structure(x) and shapes[0] == shapes[1]


def _affine(x: Array, shift: Array, scale: Array) -> Array:
    """Multiply and shift, with a value for each channel."""
    return x * jnp.broadcast_to(scale, x.shape) + jnp.broadcast_to(shift, x.shape)
