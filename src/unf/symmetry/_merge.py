"""Averages of aligned networks, and the loss on the line between two."""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from .._progress import Progress
from ..spec import SpecError, WeightSpace
from ..spec._errors import shown
from ..spec._space import Permutation
from ..spec._tree import flatten_params, format_path, returned_leaves
from ._align import align as find_alignment
from ._align import as_inputs, check_pair

_MOST_ROUNDS = 20
"""How often each network is aligned to the mean of the others."""


def merge(
    space: WeightSpace,
    networks: Sequence[PyTree],
    weights: Sequence[float] | None = None,
    align: bool = True,
    *,
    method: Literal["weights", "activations"] = "weights",
    fn: Callable[..., PyTree] | None = None,
    batches: Iterable[Any] = (),
    key: PRNGKeyArray | None = None,
    num_starts: int = 2,
    progress: bool | str | None = None,
) -> PyTree:
    """The weighted mean of several networks, after aligning their neurons.

    All are aligned to the first. With more than two, each is then aligned to the mean of the others
    until no network moves, which decreases the sum of squared distances to the mean. By activations
    they are aligned to the first only, since the activations of a mean are not the mean of the
    activations.

    The mean of batch statistics is not the statistics of the mean. If `fn(params, *batch)` returns
    new ones, as in training, they are reset by a pass over `batches` (`unf.reset_statistics`).

    >>> import jax, jax.numpy as jnp, unf
    >>> space = unf.testing.spaces.mlp(4, 16, 2)
    >>> a = jax.tree.map(lambda s: jax.random.normal(jax.random.key(0), s.shape), space.to_shapes())
    >>> b = space.permute(a, space.sample_permutation(jax.random.key(1)))
    >>> merged = unf.merge(space, [a, b])
    >>> all(bool(jnp.all(merged[path] == a[path])) for path in a)
    True

    Args:
        space: the weight space of all networks.
        networks: their weights. Arrays that are not floating-point are taken from the first.
        weights: how much each network counts; all the same by default.
        align: whether to align them; otherwise they are averaged as they are.
        method: what to align by, as in `align`.
        fn: for activations or batch statistics, the network: `fn(params, *batch)`.
        batches: for these, tuples of inputs, or arrays. Activations are those on the first batch.
        key: draws random starts, as in `align`.
        num_starts: how many descents to run, as in `align`.
        progress: show progress on standard error, as in `align`.

    Raises:
        SpecError: if networks do not belong to the space.
    """
    networks = list(networks)
    if not networks:
        raise ValueError("networks: expected at least one, got none")
    check_pair(space, networks[0], networks[0])
    shares = _check_shares(weights, len(networks))
    batches = [as_inputs(batch) for batch in batches]
    if (fn is None) != (not batches):
        raise ValueError("fn= and batches= belong together: pass both or neither")
    for other in networks[1:]:
        check_pair(space, networks[0], other)
    if align:
        options: dict[str, Any] = {"method": method, "key": key, "progress": progress}
        options["num_starts"] = num_starts
        if method == "activations":
            options |= {"fn": fn, "inputs": batches[0] if batches else ()}
        networks = _align_all(space, networks, shares, options)
    merged = _mean(networks, shares)
    for_activations = method == "activations"
    if fn is None or (for_activations and not _find_statistics(fn, merged, batches)):
        return merged
    return reset_statistics(fn, merged, batches)


def _align_all(
    space: WeightSpace, networks: list[PyTree], shares: np.ndarray, options: dict[str, Any]
) -> list[PyTree]:
    first = networks[0]
    moved = [first]
    for other in networks[1:]:
        moved.append(space.permute(other, find_alignment(space, first, other, **options)))
    if len(networks) == 2 or options["method"] == "activations":
        return moved
    for _ in range(_MOST_ROUNDS):
        changed = False
        for i in range(len(moved)):
            others = [j for j in range(len(moved)) if j != i and shares[j] > 0]
            if not others:
                continue
            rest = _mean([moved[j] for j in others], shares[others] / shares[others].sum())
            found = find_alignment(space, rest, moved[i], **options)
            if any(np.any(np.diff(np.asarray(rows)) != 1) for rows in found.values()):
                moved[i], changed = space.permute(moved[i], found), True
        if not changed:
            break
    return moved


def _mean(networks: Sequence[PyTree], shares: np.ndarray) -> PyTree:
    """Relative to the first, so that the mean of equal networks is exact."""

    def of_leaf(first: Any, *others: Any) -> Any:
        module = np if isinstance(first, np.ndarray) else jnp
        first = module.asarray(first)
        if not jnp.issubdtype(first.dtype, jnp.floating):
            return first
        start = np.asarray(first, np.float64)
        change = sum(
            share * (np.asarray(x, np.float64) - start)
            for x, share in zip(others, shares[1:], strict=True)
        )
        return module.asarray(start + change, first.dtype)

    return jax.tree.map(of_leaf, *networks)


def reset_statistics(fn: Callable[..., PyTree], params: PyTree, batches: Iterable[Any]) -> PyTree:
    """The weights with batch statistics that are their means over some batches.

    `fn(params, *batch)` returns new versions of some entries of `params`, as `infer` recognizes
    them: `(loss, {"batch_stats": ...})`. Running means r ← m r + (1 − m) s of the statistics s of a
    batch are solved for s, so the result depends neither on m nor on the statistics so far.
    Entries that do not change in this way, such as counters, are kept.

    Args:
        fn: the network as in training.
        params: all its parameters, with the statistics.
        batches: tuples of inputs, or arrays.

    Raises:
        ValueError: if `fn` returns no new versions of entries, or only entries that it does not
            change, as in evaluation.
    """
    batches = [as_inputs(batch) for batch in batches]
    if not batches:
        raise ValueError("batches: expected at least one, got none")
    where = _find_statistics(fn, params, batches)
    if not where:
        raise ValueError(
            "fn returns no new statistics: expected new versions of some entries of params, e.g. "
            '(outputs, {"batch_stats": ...}), as a network in training mode returns them'
        )
    leaves, treedef = jax.tree.flatten(params)
    places = tuple(where.items())
    old = [jnp.asarray(leaves[i]) for _, i in places]

    def update(scales: Sequence[float], batch: tuple) -> list[np.ndarray]:
        """The new statistics if the old ones were constant."""
        given = [jnp.full_like(x, scale) for x, scale in zip(old, scales, strict=True)]
        found = _updated(_Same(fn), treedef, places, leaves, given, batch)
        return [np.asarray(x, np.float64) for x in found]

    sums = [np.zeros(x.shape) for x in old]
    running = [jnp.issubdtype(x.dtype, jnp.floating) for x in old]
    for batch in batches:
        zeros = update([0.0] * len(old), batch)
        # As large as the statistics, so that rounding hides neither.
        scales = [float(max(1, np.max(np.abs(x), initial=0))) for x in zeros]
        ones = update(scales, batch)
        twos = update([2 * scale for scale in scales], batch)
        for i, (zero, one, two) in enumerate(zip(zeros, ones, twos, strict=True)):
            decay, again = (one - zero) / scales[i], (two - one) / scales[i]
            rounding = 30 * float(jnp.finfo(old[i].dtype).eps) if running[i] else 0
            affine = np.allclose(decay, again, rtol=0, atol=rounding)
            if not affine or not np.all(np.isfinite(zero) & (decay < 1 - rounding)):
                running[i] = False
            if running[i]:
                sums[i] += zero / (1 - decay) / len(batches)
    if not any(running):
        raise ValueError(
            "fn does not change the statistics that it returns: run the network in training mode"
        )
    for number, ((_, i), x) in enumerate(zip(places, old, strict=True)):
        if running[number]:
            leaves[i] = jnp.asarray(sums[number], x.dtype)
    return treedef.unflatten(leaves)


@dataclass(frozen=True, eq=False)
class _Same:
    """A function that equals itself alone, since modules with arrays cannot be hashed."""

    fn: Callable[..., PyTree]

    def __hash__(self) -> int:
        return id(self.fn)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.fn is self.fn


@partial(jax.jit, static_argnums=(0, 1, 2))
def _updated(
    network: _Same,
    treedef: Any,
    places: tuple[tuple[int, int], ...],
    leaves: list[Any],
    given: list[Any],
    batch: tuple,
) -> list[Any]:
    """The outputs at some places, with the leaves that they are new versions of replaced."""
    changed = list(leaves)
    for (_, i), x in zip(places, given, strict=True):
        changed[i] = x
    found = jax.tree.leaves(network.fn(treedef.unflatten(changed), *batch))
    return [found[output] for output, _ in places]


def _find_statistics(
    fn: Callable[..., PyTree], params: PyTree, batches: Sequence[tuple]
) -> dict[int, int]:
    """For each output that is a new version of a leaf, the leaf; empty for gradients of all."""
    shapes = jax.eval_shape(fn, params, *batches[0])
    flat, _ = jax.tree_util.tree_flatten_with_path(shapes)
    outputs = [(format_path(path), x.shape) for path, x in flat]
    leaves, _ = flatten_params(params)
    found = {i: leaf for i, leaf in enumerate(returned_leaves(outputs, leaves)) if leaf is not None}
    return found if len(set(found.values())) < len(leaves) else {}


@dataclass(frozen=True, eq=False)
class Barrier:
    """The loss on the line from one network to another.

    Attributes:
        positions: where it was measured, 0 at the first network and 1 at the second.
        before: the losses with the second network as it is.
        after: the losses with the second network aligned to the first.
        permutation: the group element that aligns it.
    """

    positions: np.ndarray
    before: np.ndarray
    after: np.ndarray
    permutation: Permutation

    @property
    def height_before(self) -> float:
        """How far the loss rises above the line between the losses at both ends."""
        return float(height(self.positions, self.before))

    @property
    def height_after(self) -> float:
        """The same after alignment."""
        return float(height(self.positions, self.after))

    def __repr__(self) -> str:
        return (
            f"Barrier({self.height_before:.4g} before alignment, {self.height_after:.4g} after; "
            f"losses at the ends {self.before[0]:.4g} and {self.before[-1]:.4g})"
        )


def height(positions: np.ndarray, losses: np.ndarray) -> np.ndarray:
    """How far losses, [..., positions], rise above the line between their ends."""
    ends = (1 - positions) * losses[..., :1] + positions * losses[..., -1:]
    return np.max(losses - ends, axis=-1)


def barrier(
    fn: Callable[..., Any],
    space: WeightSpace,
    a: PyTree,
    b: PyTree,
    data: Iterable[Any],
    *,
    num_points: int = 11,
    method: Literal["weights", "activations"] = "weights",
    permutation: Permutation | None = None,
    statistics: Callable[[PyTree], PyTree] | None = None,
    key: PRNGKeyArray | None = None,
    num_starts: int = 2,
    progress: bool | str | None = None,
) -> Barrier:
    """The loss along the line from `a` to `b`, before and after aligning `b`.

    The barrier is max_t L((1 − t) a + t b) − ((1 − t) L(a) + t L(b)): zero if the networks are
    linearly connected.

    >>> import jax, jax.numpy as jnp, unf
    >>> def loss(params, x, y):
    ...     return jnp.mean((jnp.tanh(x @ params["w"]) @ params["v"] - y) ** 2)
    >>> keys = jax.random.split(jax.random.key(0), 3)
    >>> a = {"w": jax.random.normal(keys[0], (3, 8)), "v": jax.random.normal(keys[1], (8, 1))}
    >>> x = jax.random.normal(keys[2], (20, 3))
    >>> batch = (x, jnp.tanh(x @ a["w"]) @ a["v"])
    >>> space = unf.infer(loss, a, *batch)
    >>> b = space.permute(a, {"hidden": jnp.arange(8)[::-1]})
    >>> found = unf.barrier(loss, space, a, b, [batch])
    >>> found.height_before > 1, found.height_after < 1e-6
    (True, True)

    Args:
        fn: the loss of a batch, `fn(params, *batch)`.
        space: the weight space of both networks.
        a: the weights of one network.
        b: those of the other.
        data: batches, as tuples of inputs or arrays; the mean of their losses is taken.
        num_points: how many points of the line, with both ends.
        method: what to align by, as in `align`; activations are those on the first batch.
        permutation: a group element to use instead of aligning.
        statistics: applied to the weights at every point before the loss is measured, such as
            `lambda params: unf.reset_statistics(network, params, batches)`.
        key: draws random starts, as in `align`.
        num_starts: how many descents to run, as in `align`.
        progress: show progress on standard error, by default on a terminal.
    """
    batches = [as_inputs(batch) for batch in data]
    if not batches:
        raise ValueError("data: expected at least one batch, got none")
    if not isinstance(num_points, int | np.integer) or num_points < 3:
        raise ValueError(f"num_points: expected at least 3, got {shown(num_points)}")
    check_pair(space, a, b)
    _check_loss(fn, a, batches[0])
    if permutation is None:
        options: dict[str, Any] = (
            {"fn": fn, "inputs": batches[0]} if method == "activations" else {}
        )
        permutation = find_alignment(
            space, a, b, method=method, key=key, num_starts=num_starts, progress=progress, **options
        )
    positions = np.linspace(0, 1, num_points)
    evaluate = jax.jit(lambda *args: fn(*args))  # modules with arrays cannot be hashed
    lines = []
    show = sys.stderr.isatty() if progress is None else bool(progress)
    with Progress("losses", total=2 * num_points, unit="points", show=show) as bar:
        for end in (b, space.permute(b, permutation)):
            losses = []
            for t in positions:
                params = _mean([a, end], np.array([1 - t, t]))
                params = params if statistics is None else statistics(params)
                losses.append(np.mean([float(evaluate(params, *batch)) for batch in batches]))
                bar.advance(1)
            lines.append(np.array(losses))
    before, after = lines
    return Barrier(positions, before, after, permutation)


def _check_loss(fn: Callable[..., Any], params: PyTree, batch: tuple) -> None:
    found = jax.eval_shape(fn, params, *batch)
    if getattr(found, "shape", None) != ():
        raise SpecError(
            "the loss of a batch is not a number",
            expected="fn(params, *batch), a scalar",
            got=f"shapes {jax.tree.map(lambda x: x.shape, found)}",
            remedy="take its mean, or return the loss alone",
        )


def _check_shares(weights: Sequence[float] | None, count: int) -> np.ndarray:
    shares = np.ones(count) if weights is None else np.asarray(weights, np.float64)
    valid = shares.shape == (count,) and np.all(np.isfinite(shares) & (shares >= 0))
    if not valid or not shares.sum() > 0:
        raise ValueError(
            f"weights: expected {count} numbers, none negative and one positive, got "
            f"{shown(weights)}"
        )
    return shares / shares.sum()
