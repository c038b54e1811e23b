"""Checking a weight space against the network it claims to describe."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from ._errors import SpecError, SymmetryError
from ._float64 import Widened, widen
from ._grammar import base_name
from ._group import permute_leaf
from ._signs import check_names, flip_leaf
from ._space import WeightSpace, check_is_space
from ._tree import format_path, returned_leaves

MOST_DRAWS = 8
"""How often weights are drawn until every leaf has shown its influence."""


@dataclass(frozen=True)
class SymmetryReport:
    """What `verify` found: the relative change of the outputs under each permutation.

    Attributes:
        changes: for each name, the largest relative change.
        tolerance: the largest change that counts as none.
        dead: the paths of leaves whose influence on the outputs no draw has shown, such as the
            bias of keys under a softmax.
        untested: the names that occur only in dead leaves, for which a change of zero says
            nothing.
        flips: for each name whose signs were checked, the change when some are flipped.
    """

    changes: dict[str, float]
    tolerance: float
    dead: tuple[str, ...] = ()
    untested: tuple[str, ...] = ()
    flips: dict[str, float] = field(default_factory=dict)

    @property
    def broken(self) -> tuple[str, ...]:
        """The permutations that change the network's outputs."""
        return tuple(name for name, change in self.changes.items() if change > self.tolerance)

    @property
    def broken_signs(self) -> tuple[str, ...]:
        """The names whose signs change the network's outputs."""
        return tuple(name for name, change in self.flips.items() if change > self.tolerance)

    def __str__(self) -> str:
        width = max(map(len, self.changes), default=0)
        rows = []
        for changes, broken, flipped in (
            (self.changes, self.broken, ""),
            (self.flips, self.broken_signs, ", flipped"),
        ):
            verdict = dict.fromkeys(self.untested, "untested")
            verdict |= dict.fromkeys(broken, "changes the output")
            for name, change in changes.items():
                rows.append(f"  {name:<{width}}  {change:.1e}  {verdict.get(name, 'ok')}{flipped}")
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
    signs: Sequence[str] = (),
) -> SymmetryReport:
    """Check that no permutation of `space` changes `fn(params, *inputs)`.

    Each name is permuted alone, with a cycle and with a transposition, which together
    generate all its permutations; a nested name in only some of its rows. Arithmetic is in
    float64, also where `fn` casts to a lower precision; the tolerance is the square root of the
    coarsest precision on the way, 1.5e-8 unless an operation exists in float32 only. Outputs
    that are new versions of leaves (batch statistics, gradients) must permute as these leaves
    do. A leaf is drawn anew, up to eight times, until it influences the outputs.

    Args:
        fn: a function of the parameters and inputs that returns any pytree of arrays.
        params: the parameters.
        space: the weight space to check.
        *inputs: further arguments of `fn`, which are not permuted.
        key: draws weights and rows.
        randomize: give every leaf random values first, since initial zeros and ones hide
            errors. Leaves that are nowhere negative (scales, variances) are drawn positive;
            leaves of zeros only if the outputs are not finite otherwise.
        signs: names whose neurons are to be flipped, too (`WeightSpace.flip`): nothing changes if
            their activations are odd.

    Returns:
        The report, if no permutation and no flip changes the outputs.

    Raises:
        SymmetryError: naming the permutations or flips that do, and the leaves they act on.
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
    names = check_names(signs, space.index_shapes)
    return compare(_widened(fn, params, inputs), params, space, inputs, key, randomize, names)


class Runner(Protocol):
    """A network that computes in float64, and the largest change of its outputs that is none."""

    @property
    def tolerance(self) -> float:
        """The largest change."""
        ...

    def __call__(self, params: PyTree, *inputs: Any) -> PyTree:
        """The network's outputs."""
        ...


def compare(
    run: Runner,
    params: PyTree,
    space: WeightSpace,
    inputs: tuple,
    key: PRNGKeyArray,
    randomize: bool,
    signs: Sequence[str] = (),
) -> SymmetryReport:
    """Permute each name, with further draws for those on leaves whose influence is not shown."""
    changes, flips = dict.fromkeys(space.sizes, 0.0), dict.fromkeys(signs, 0.0)
    silent = list(range(len(space.leaves)))
    for number in range(MOST_DRAWS):
        rng = np.random.default_rng([*np.asarray(jax.random.key_data(key)).ravel(), number])
        trial = _Trial(run, params, space, inputs, rng if randomize else None)
        before, silent = silent, [i for i in silent if randomize and trial.is_silent(i, rng)]
        names = _names_on(space, set(before) - set(silent)) if number else list(space.sizes)
        for name in names:
            for element in _generators(space.index_shapes[name], rng):
                changes[name] = max(changes[name], trial.change(permute_leaf, {name: element}))
            if name in flips:
                drawn = rng.choice([-1.0, 1.0], space.index_shapes[name])
                drawn.flat[0] = -1
                flips[name] = max(flips[name], trial.change(flip_leaf, {name: drawn}))
        if not silent:
            break
    tested = _names_on(space, set(range(len(space.leaves))) - set(silent))
    report = SymmetryReport(
        changes,
        run.tolerance,
        tuple(space.leaves[i].path for i in silent),
        tuple(name for name in space.sizes if name not in tested),
        flips,
    )
    if broken := report.broken or report.broken_signs:
        raise SymmetryError(_describe(space, report), axes=broken)
    return report


def _widened(fn: Callable[..., PyTree], params: PyTree, inputs: tuple) -> Widened:
    try:
        return Widened(fn, params, inputs)
    except TypeError as error:
        error.add_note(
            f"unf.verify called fn(params, *inputs) with {len(inputs)} inputs, of shapes "
            f"{[jax.tree.map(jnp.shape, x) for x in inputs]}; does the network take these?"
        )
        raise


def _names_on(space: WeightSpace, leaves: set[int]) -> list[str]:
    """The names that occur in some leaves, in the order of the space."""
    blocks = [block for block in space.blocks if block.leaf in leaves]
    found = {base_name(label.name) for block in blocks for label in block.labels}
    return [name for name in space.sizes if name in found]


class _Trial:
    """The network with one draw of its weights, or with the weights given if `rng` is None.

    A leaf that is zero throughout may be a weight or a variance, so it is drawn with both
    signs, and as a positive leaf if that gives no finite outputs.
    """

    def __init__(
        self,
        run: Runner,
        params: PyTree,
        space: WeightSpace,
        inputs: tuple,
        rng: np.random.Generator | None,
    ):
        self.run, self.space, self.inputs = run, space, inputs
        given = [widen(x) for x in jax.tree.leaves(params)]
        for zero_scale in (None, 1.0):
            self.scales = [_positive_scale(x, zero_scale) for x in given]
            self.leaves = given if rng is None else self._draw(given, rng)
            outputs, _ = jax.tree_util.tree_flatten_with_path(self._outputs(self.leaves))
            self.reference = [np.asarray(y) for _, y in outputs]
            if all(np.all(np.isfinite(y)) for y in self.reference):
                break
        else:
            raise ValueError(
                "the outputs are not finite, so they cannot be compared. Pass weights with which "
                "the network works, and randomize=False."
            )
        shapes = [(leaf.path, leaf.shape) for leaf in space.leaves]
        named = [(format_path(path), np.shape(y)) for path, y in outputs]
        self.returned = returned_leaves(named, shapes)

    def change(self, act: Callable[..., Any], element: dict[str, np.ndarray]) -> float:
        """How much a permutation or flip changes the outputs; it moves new versions of leaves."""
        moved = [
            act(layout, x, element)
            for layout, x in zip(self.space.layouts, self.leaves, strict=True)
        ]
        expected = [
            y if leaf is None else act(self.space.layouts[leaf], y, element)
            for y, leaf in zip(self.reference, self.returned, strict=True)
        ]
        return _relative_change(jax.tree.leaves(self._outputs(moved)), expected)

    def is_silent(self, i: int, rng: np.random.Generator) -> bool:
        """Whether the outputs stay the same with another draw of one leaf."""
        if not jnp.issubdtype(self.leaves[i].dtype, jnp.floating):
            return False
        other = _draw(self.leaves[i], self.scales[i], rng)
        outputs = self._outputs([*self.leaves[:i], other, *self.leaves[i + 1 :]])
        return _relative_change(jax.tree.leaves(outputs), self.reference) <= self.run.tolerance

    def _draw(self, given: list[Any], rng: np.random.Generator) -> list[Any]:
        return [_draw(x, scale, rng) for x, scale in zip(given, self.scales, strict=True)]

    def _outputs(self, leaves: list[Any]) -> PyTree:
        return self.run(self.space.unflatten(leaves), *self.inputs)


def _positive_scale(x: Any, of_zeros: float | None) -> Any:
    """The typical size of each entry of a leaf that is nowhere negative, else None."""
    if not jnp.issubdtype(x.dtype, jnp.floating) or not x.size or np.any(x < 0):
        return None
    if not np.any(x):
        return of_zeros
    return np.where(x > 0, x, np.mean(x))


def _draw(x: Any, positive_scale: Any, rng: np.random.Generator) -> Any:
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return x
    if positive_scale is not None:
        return positive_scale * rng.uniform(0.5, 1.5, x.shape)
    # Weak weights make weak evidence: at least the usual initial scale.
    scale = max(float(np.std(x)), max(x.shape[:-1], default=1) ** -0.5)
    return scale * rng.normal(size=x.shape)


def _generators(shape: tuple[int, ...], rng: np.random.Generator) -> Iterator[np.ndarray]:
    """A cycle and a transposition; of a nested name, in some rows but not all."""
    if shape[-1] == 1:
        return
    identity = np.broadcast_to(np.arange(shape[-1]), shape)
    cycle, transposition = np.roll(identity, 1, axis=-1), identity.copy()
    transposition[..., :2] = [1, 0]
    rows = rng.random((*shape[:-1], 1)) < 0.5
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
        y = np.asarray(y, dtype=np.float64)
        if not np.all(np.isfinite(y)):
            return float("inf")
        difference = np.max(np.abs(y - expected))
        scale = np.max(np.abs(expected.astype(np.float64)))
        worst = max(worst, float(difference / scale) if scale else float(difference))
    return worst


def _describe(space: WeightSpace, report: SymmetryReport) -> str:
    lines = ["not symmetries of this network:"]
    flipped = {} if report.broken else report.flips
    for name in report.broken or report.broken_signs:
        where = dict.fromkeys(
            space.leaves[block.leaf].path
            for block in space.blocks
            if name in (base_name(label.name) for label in block.labels)
        )
        paths = ", ".join(list(where)[:4]) + (", ..." if len(where) > 4 else "")
        change = flipped.get(name, report.changes[name])
        lines.append(
            f"  {name!r}{', flipped,' if flipped else ''} changes the outputs by {change:.1e} "
            f"relative, in {paths}"
        )
    lines.append(
        "  remedy: leave these names out of signs=: their activations are not odd, or another "
        "array with this axis (a scale, a variance, a mask) must keep its sign"
        if flipped
        else "  remedy: fix() these axes, or give axes that do not permute together different names"
    )
    return "\n".join(lines)
