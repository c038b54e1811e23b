"""Checking a weight space against the network it claims to describe."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from ._errors import SpecError, SymmetryError
from ._grammar import base_name
from ._group import permute_leaf
from ._space import WeightSpace, check_is_space
from ._tree import format_path, returned_leaves


@dataclass(frozen=True)
class SymmetryReport:
    """What `verify` found: the relative change of the outputs under each permutation.

    Attributes:
        changes: for each name, the largest relative change.
        tolerance: the largest change that counts as none.
        dead: the paths of leaves that do not influence the outputs, such as the bias of keys
            under a softmax.
    """

    changes: dict[str, float]
    tolerance: float
    dead: tuple[str, ...] = ()

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
        if self.dead:
            rows.append(f"no influence on the outputs: {', '.join(self.dead)}")
        return "\n".join(["relative change of the outputs under each permutation:", *rows])


def verify(
    fn: Callable[..., PyTree],
    params: PyTree,
    space: WeightSpace,
    *inputs: Any,
    key: PRNGKeyArray,
    randomize: bool = True,
) -> SymmetryReport:
    """Check that no permutation of `space` changes `fn(params, *inputs)`.

    Each name is permuted alone, with a cycle and with a transposition, which together
    generate all its permutations; a nested name in only some of its rows. Arithmetic is in
    float64 where `fn` allows it, and the tolerance is the square root of the outputs'
    precision. Outputs that are new versions of leaves (batch statistics, gradients) must
    permute as these leaves do.

    Args:
        fn: a function of the parameters and inputs that returns any pytree of arrays.
        params: the parameters.
        space: the weight space to check.
        *inputs: further arguments of `fn`, which are not permuted.
        key: draws weights and rows.
        randomize: give every leaf random values first, since initial zeros and ones hide
            errors. Leaves that are positive throughout (scales, variances) stay positive.

    Returns:
        The report, if no permutation changes the outputs.

    Raises:
        SymmetryError: naming the permutations that do, and the leaves they act on.
        SpecError: if the parameters are not arrays of this space.
    """
    check_is_space(space)
    for leaf, array in zip(space.leaves, space.flatten(params, channels=False), strict=True):
        if isinstance(array, jax.ShapeDtypeStruct):
            raise SpecError(
                "a shape without values, which cannot be permuted",
                path=leaf.path,
                remedy="pass arrays; zeros are enough, since verify draws random values",
            )
    with jax.enable_x64(True):
        params, inputs = _widen_if_possible(fn, params, inputs)
        return compare(jax.jit(fn), params, space, inputs, key, randomize)


def compare(
    run: Callable[..., PyTree],
    params: PyTree,
    space: WeightSpace,
    inputs: tuple,
    key: PRNGKeyArray,
    randomize: bool,
) -> SymmetryReport:
    """Run a network with NumPy arrays as weights, permuted and not; see `verify`."""
    weights_key, rows_key = jax.random.split(key)
    if randomize:
        params = _randomize(params, weights_key)
    reference, returned = _reference(run, params, space, inputs)
    changes = {}
    for name in space.sizes:
        changes[name] = 0.0
        for element in _generators(space.index_shapes[name], rows_key):
            moved = {name: element}
            found = jax.tree.leaves(run(space.permute(params, moved), *inputs))
            expected = [
                y if leaf is None else permute_leaf(space.layouts[leaf], y, moved)
                for y, leaf in zip(reference, returned, strict=True)
            ]
            changes[name] = max(changes[name], _relative_change(found, expected))
    kinds = [y.dtype for y in reference if np.issubdtype(y.dtype, np.inexact)]
    tolerance = max((float(np.sqrt(jnp.finfo(kind).eps)) for kind in kinds), default=0.0)
    dead = []
    leaves = jax.tree.leaves(params)
    others = jax.tree.leaves(_randomize(params, rows_key)) if randomize else []
    for i, new in enumerate(others):
        if jnp.issubdtype(new.dtype, jnp.floating):
            changed = space.unflatten([*leaves[:i], new, *leaves[i + 1 :]])
            if _relative_change(jax.tree.leaves(run(changed, *inputs)), reference) <= tolerance:
                dead.append(space.leaves[i].path)
    report = SymmetryReport(changes, tolerance, tuple(dead))
    if report.broken:
        raise SymmetryError(_describe(space, report), axes=report.broken)
    return report


def _reference(
    run: Callable[..., PyTree], params: PyTree, space: WeightSpace, inputs: tuple
) -> tuple[list[np.ndarray], list[int | None]]:
    """The outputs before any permutation, and for each the leaf that it is a new version of."""
    try:
        outputs, _ = jax.tree_util.tree_flatten_with_path(run(params, *inputs))
    except TypeError as error:
        error.add_note(
            f"unf.verify called fn(params, *inputs) with {len(inputs)} inputs, of shapes "
            f"{[jax.tree.map(jnp.shape, x) for x in inputs]}; does the network take these?"
        )
        raise
    reference = [np.asarray(y) for _, y in outputs]
    if not all(np.all(np.isfinite(y)) for y in reference):
        raise ValueError(
            "the outputs are not finite, so they cannot be compared. Pass weights with which the "
            "network works, and randomize=False."
        )
    shapes = [(leaf.path, leaf.shape) for leaf in space.leaves]
    return reference, returned_leaves([(format_path(p), y.shape) for p, y in outputs], shapes)


def _widen_if_possible(fn: Callable[..., PyTree], params: PyTree, inputs: tuple) -> tuple:
    """Parameters and inputs in float64, or unchanged if the function insists on its types.

    They become NumPy arrays, so that drawing and permuting them compiles nothing.
    """
    wide = jax.tree.map(_widen, (params, inputs))
    try:
        jax.eval_shape(fn, wide[0], *wide[1])
    except TypeError:
        return jax.tree.map(_as_numpy, (params, inputs))
    return wide


def _widen(x: Any) -> Any:
    x = _as_numpy(x)
    return x.astype(np.float64) if jnp.issubdtype(x.dtype, jnp.floating) else x


def _as_numpy(x: Any) -> Any:
    """The array in NumPy, unless NumPy does not know its type, such as a random key's."""
    extended = jnp.issubdtype(getattr(x, "dtype", np.int64), jax.dtypes.extended)
    return x if extended else np.asarray(x)


def _rng(key: PRNGKeyArray) -> np.random.Generator:
    """NumPy's generator: a network has too many shapes to compile a draw for each."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())


def _randomize(params: PyTree, key: PRNGKeyArray) -> PyTree:
    rng = _rng(key)
    return jax.tree.map(lambda leaf: _draw(leaf, rng), params)


def _draw(leaf: Any, rng: np.random.Generator) -> Any:
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        return leaf
    if leaf.size and bool(np.all(leaf > 0)):
        return (leaf * rng.uniform(0.5, 1.5, leaf.shape)).astype(leaf.dtype)
    # Weak weights make weak evidence: at least the usual initial scale.
    scale = max(float(np.std(leaf)), max(leaf.shape[:-1], default=1) ** -0.5)
    return (scale * rng.normal(size=leaf.shape)).astype(leaf.dtype)


def _generators(shape: tuple[int, ...], key: PRNGKeyArray) -> Iterator[np.ndarray]:
    """A cycle and a transposition; of a nested name, in some rows but not all."""
    if shape[-1] == 1:
        return
    identity = np.broadcast_to(np.arange(shape[-1]), shape)
    cycle, transposition = np.roll(identity, 1, axis=-1), identity.copy()
    transposition[..., :2] = [1, 0]
    rows = _rng(key).random((*shape[:-1], 1)) < 0.5
    if rows.size > 1:
        rows.flat[:2] = [True, False]
    else:
        rows[...] = True
    yield np.where(rows, cycle, identity)
    yield np.where(rows, transposition, identity)


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
