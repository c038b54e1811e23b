"""Models with the constants of their training data, and reading many networks at once."""

from dataclasses import replace
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..spec import SpecError, WeightSpace
from ._scores import accuracy, kendall_tau, r_squared

Loss = Literal["mse", "bce", "cross-entropy"]


class Fitted(eqx.Module):
    """A model with the constants that its weights and targets were standardized with.

    `fit` returns it, `save_model` writes it. It is called like the model inside, on one network's
    features, and returns predictions in the units of the targets, or logits if it was fitted with
    a cross-entropy. `predict` and `score` take many networks.

    Attributes:
        model: the model inside.
        shift: what is subtracted from each leaf's channels, or None.
        scale: what each leaf's channels are divided by, or None.
        out_shift: the mean of the targets, or None.
        out_scale: their standard deviation, or None.
        loss: what the model was fitted with.
    """

    model: Any
    shift: tuple[Array, ...] | None = None
    scale: tuple[Array, ...] | None = None
    out_shift: Array | None = None
    out_scale: Array | None = None
    loss: Loss = eqx.field(static=True, default="mse")

    @property
    def space(self) -> Any:
        """The weight space of the input."""
        return self.model.space

    def __call__(self, x: PyTree, **options: Any) -> Float[Array, " out_size"]:
        """Apply to one network's features, with the model's own options."""
        y = self.standardized(x, **options)
        if self.out_scale is None or self.out_shift is None:
            return y
        return y * self.out_scale + self.out_shift

    def standardized(self, x: PyTree, **options: Any) -> Float[Array, " out_size"]:
        """The output before it gets the units of the targets."""
        if self.shift is not None and self.scale is not None:
            leaves, treedef = jax.tree.flatten(x)
            constants = zip(leaves, self.shift, self.scale, strict=True)
            x = treedef.unflatten([_affine(leaf, -m / s, 1 / s) for leaf, m, s in constants])
        return self.model(x, **options)

    def on(self, space: WeightSpace) -> "Fitted":
        """The model with the same parameters and constants on a weight space of other sizes."""
        return replace(self, model=self.model.on(space))

    def predict(self, weights: PyTree, *, batch_size: int = 32) -> Float[np.ndarray, "n *out_size"]:
        """Predictions for many networks: values, probabilities, or a row of them for each class.

        Args:
            weights: weights or features, with leaves stacked along a leading axis.
            batch_size: how many networks are read at once.
        """
        return _link(self._read(check_features(self, weights)[0], batch_size), self.loss)

    def score(self, weights: PyTree, targets: Any, *, batch_size: int = 32) -> dict[str, float]:
        """How well many networks' targets are predicted.

        Returns:
            Kendall's τ as "tau" and R² as "r2", for vectors the mean over their entries; the
            "accuracy" if the targets are classes, or 0 and 1 with the loss "bce".
        """
        features, count = check_features(self, weights)
        outputs = self._read(features, batch_size)
        true = check_targets(targets, self.loss, count, outputs.shape[-1])
        return scores_of(outputs, true, self.loss)

    def _read(self, features: PyTree, batch_size: int) -> Float[np.ndarray, "n out_size"]:
        """The outputs for many networks."""
        outputs = outputs_of(*split_models([self.model], self), features, batch_size)[0]
        if self.out_scale is None or self.out_shift is None:
            return outputs
        return outputs * np.asarray(self.out_scale) + np.asarray(self.out_shift)


def check_features(model: Any, weights: PyTree) -> tuple[PyTree, int]:
    """Features with a leading axis of networks, and how many there are."""
    leaves = jax.tree.leaves(weights)
    if not leaves or min(np.ndim(leaf) for leaf in leaves) == 0:
        raise SpecError(
            "weights are a pytree of arrays with a leading axis of networks",
            got="no leaves" if not leaves else "a leaf without axes",
            remedy="stack them, e.g. jax.tree.map(lambda *leaves: jnp.stack(leaves), *networks)",
        )
    count = len(leaves[0])
    space = getattr(model, "space", None)
    if space is None:
        return weights, count
    channels = np.ndim(leaves[0]) == len(space.leaves[0].shape) + 2
    one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x)[1:], "float32"), weights)
    space.flatten(one, channels=channels)  # names the first leaf that does not fit
    for spec, leaf in zip(space.leaves, leaves, strict=True):
        if len(leaf) != count:
            message = "leaves have different numbers of networks"
            raise SpecError(message, path=spec.path, expected=count, got=len(leaf))
        finite = np.isfinite(np.asarray(leaf, np.float32).reshape(count, -1)).all(axis=1)
        if not finite.all():
            raise SpecError(
                f"weights that are not finite, in {np.sum(~finite)} networks",
                path=spec.path,
                got=f"network {np.argmin(finite)}",
                remedy="leave these networks out",
            )
    return (weights if channels else jax.tree.map(lambda x: x[..., None], weights)), count


def check_targets(targets: Any, loss: Loss, count: int, out_size: int) -> np.ndarray:
    """Targets as the loss needs them: [networks, out_size], or [networks] classes."""
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
    models: Any, static: Fitted, features: PyTree, batch_size: int
) -> Float[np.ndarray, "models n out_size"]:
    """Standardized outputs of each of several models, in this process alone."""
    size = len(jax.tree.leaves(features)[0])
    parts = []
    for first in range(0, size, batch_size):
        rows = np.minimum(np.arange(first, first + batch_size), size - 1)  # one size, one program
        parts.append(_call(models, static, jax.tree.map(lambda x, i=rows: x[i], features)))
    return np.concatenate([np.asarray(part, np.float64) for part in parts], axis=1)[:, :size]


@eqx.filter_jit
def _call(models: Any, static: Fitted, features: PyTree) -> Array:
    def apply(model: Any) -> Array:
        return jax.vmap(join_model(model, static).standardized)(features)

    return jax.vmap(apply)(models)


def _link(outputs: np.ndarray, loss: Loss) -> np.ndarray:
    """Predictions from outputs."""
    with np.errstate(invalid="ignore"):  # NaN, if a model has diverged
        if loss == "cross-entropy":
            return np.exp(outputs - np.logaddexp.reduce(outputs, axis=1, keepdims=True))
        values = np.exp(-np.logaddexp(0, -outputs)) if loss == "bce" else outputs
    return values[:, 0] if values.shape[1] == 1 else values


def scores_of(outputs: np.ndarray, true: np.ndarray, loss: Loss) -> dict[str, float]:
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


def join_model(params: Any, static: Fitted) -> Fitted:
    """One model again."""
    return replace(static, model=eqx.combine(params, static.model))


def _affine(x: Array, shift: Array, scale: Array) -> Array:
    """Multiply and shift, with a value for each channel."""
    return x * jnp.broadcast_to(scale, x.shape) + jnp.broadcast_to(shift, x.shape)
