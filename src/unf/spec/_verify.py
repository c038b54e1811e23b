"""Checking a weight space against the network it claims to describe."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from ._blocks import base_name
from ._errors import SymmetryError
from ._group import indices_shape
from ._space import WeightSpace


@dataclass(frozen=True)
class SymmetryReport:
    """What `verify` found: the relative change of the outputs under each permutation."""

    changes: dict[str, float]
    tolerance: float

    @property
    def broken(self) -> tuple[str, ...]:
        """The permutations that change the network's outputs."""
        return tuple(name for name, change in self.changes.items() if change > self.tolerance)

    def __str__(self) -> str:
        width = max(map(len, self.changes), default=0)
        rows = [
            f"  {name:<{width}}  {change:.1e}  {'changes the output' if bad else 'ok'}"
            for name, change in self.changes.items()
            for bad in [name in self.broken]
        ]
        return "\n".join(["relative change of the outputs under each permutation:", *rows])


def verify(
    fn: Callable[..., PyTree],
    params: PyTree,
    space: WeightSpace,
    *inputs: Any,
    key: PRNGKeyArray,
    randomize: bool = True,
) -> SymmetryReport:
    """Check that every permutation of `space` leaves `fn(params, *inputs)` as it is.

    Each name is permuted alone, with a cycle and with a transposition, which together
    generate all its permutations; a nested name in some of its rows only. Arithmetic is in
    float64 where `fn` allows it, and the tolerance is the root of the outputs' precision.

    Args:
        fn: a function of the parameters and inputs; it may return any pytree of arrays.
        params: the parameters.
        space: the weight space to check.
        *inputs: further arguments of `fn`, not permuted.
        key: draws weights and rows.
        randomize: give every leaf random values first, since initial zeros and ones hide
            errors. Leaves that are positive throughout (scales, variances) stay positive.

    Returns:
        The report, if no permutation changes the outputs.

    Raises:
        SymmetryError: naming the permutations that do, and where they act.
    """
    space.flatten(params, channels=False)
    weights_key, rows_key = jax.random.split(key)
    with jax.enable_x64(True):
        inputs = tuple(jax.tree.map(_widen, x) for x in inputs)
        params = jax.tree.map(_widen, params)
        if randomize:
            params = _randomize(params, weights_key)
        run = jax.jit(lambda weights: fn(weights, *inputs))
        reference = [np.asarray(y) for y in jax.tree.leaves(run(params))]
        _check_finite(reference)
        changes = {}
        for name in space.sizes:
            changes[name] = 0.0
            for element in _generators(space, name, rows_key):
                outputs = jax.tree.leaves(run(space.permute(params, {name: element})))
                changes[name] = max(changes[name], _relative_change(outputs, reference))
    kinds = [y.dtype for y in reference if np.issubdtype(y.dtype, np.inexact)]
    tolerance = max((float(np.sqrt(jnp.finfo(kind).eps)) for kind in kinds), default=0.0)
    report = SymmetryReport(changes, tolerance)
    if report.broken:
        raise SymmetryError(_describe(space, report), axes=report.broken)
    return report


def _widen(x: Any) -> Array:
    x = jnp.asarray(x)
    return x.astype(jnp.float64) if jnp.issubdtype(x.dtype, jnp.floating) else x


def _randomize(params: PyTree, key: PRNGKeyArray) -> PyTree:
    leaves, treedef = jax.tree.flatten(params)
    drawn = []
    for leaf, subkey in zip(leaves, jax.random.split(key, len(leaves)), strict=True):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            drawn.append(leaf)
        elif leaf.size and bool(jnp.all(leaf > 0)):
            drawn.append(leaf * jax.random.uniform(subkey, leaf.shape, leaf.dtype, 0.5, 1.5))
        else:
            # Weak weights make weak evidence: at least the usual initial scale.
            scale = jnp.maximum(jnp.std(leaf), max(leaf.shape[:-1], default=1) ** -0.5)
            drawn.append(scale * jax.random.normal(subkey, leaf.shape, leaf.dtype))
    return treedef.unflatten(drawn)


def _generators(space: WeightSpace, name: str, key: PRNGKeyArray) -> Iterator[np.ndarray]:
    shape = indices_shape(space, name)
    identity = np.broadcast_to(np.arange(shape[-1]), shape)
    if shape[-1] == 1:
        return
    cycle, transposition = np.roll(identity, 1, axis=-1), identity.copy()
    transposition[..., :2] = [1, 0]
    rows = np.array(jax.random.bernoulli(key, 0.5, (*shape[:-1], 1)))
    if rows.size > 1:  # some rows, not all and not none
        rows.flat[:2] = [True, False]
    else:
        rows[...] = True
    yield np.where(rows, cycle, identity)
    yield np.where(rows, transposition, identity)


def _check_finite(outputs: list[np.ndarray]) -> None:
    if not all(np.all(np.isfinite(y)) for y in outputs):
        raise ValueError(
            "the outputs are not finite, so nothing can be compared. Pass weights with which the "
            "network works and randomize=False."
        )


def _relative_change(outputs: list[Any], reference: list[np.ndarray]) -> float:
    worst = 0.0
    for y, expected in zip(outputs, reference, strict=True):
        if not expected.size:
            continue
        difference = np.max(np.abs(np.asarray(y, dtype=np.float64) - expected))
        scale = np.max(np.abs(expected.astype(np.float64)))
        worst = max(worst, float(difference / scale) if scale else float(difference))
    return worst


def _describe(space: WeightSpace, report: SymmetryReport) -> str:
    lines = ["not symmetries of this network:"]
    for name in report.broken:
        where = dict.fromkeys(
            space.leaves[block.leaf].path
            for block in space.blocks
            if name in (base_name(label.name) for label in block.labels)
        )
        paths = ", ".join(list(where)[:4]) + (", ..." if len(where) > 4 else "")
        lines.append(
            f"  {name!r} changes the outputs by {report.changes[name]:.1e} relative, in {paths}"
        )
    lines.append(
        "  remedy: fix() these axes, or give axes that do not permute together different names"
    )
    return "\n".join(lines)
