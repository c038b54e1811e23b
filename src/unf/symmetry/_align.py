"""Alignment of two networks' neurons, and the distance between networks modulo symmetry."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import jax
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from .._progress import Progress
from ..spec import SpecError, WeightSpace
from ..spec._errors import shown
from ..spec._group import permute_block
from ..spec._space import Permutation
from ._assignment import assign
from ._canonical import SearchError, canonical_element
from ._correlations import correlations
from ._descent import Descent
from ._elements import Element, compose, identity, inverse, make_trees, to_permutation
from ._parts import make_parts

_Parts = Sequence[np.ndarray]


def align(
    space: WeightSpace,
    a: PyTree,
    b: PyTree,
    *,
    method: Literal["weights", "activations"] = "weights",
    fn: Callable[..., PyTree] | None = None,
    inputs: Any = (),
    key: PRNGKeyArray | None = None,
    num_starts: int = 2,
    progress: bool | str | None = None,
) -> Permutation:
    """The group element that moves the neurons of `b` onto those of `a` that are most similar.

    By weights, it minimizes ‖a − g·b‖ over the group by coordinate descent: one permutation after
    another, with what is nested in it, is replaced by the best one given all others, until none
    improves (weight matching in Ainsworth et al., "Git Re-Basin", 2023). Each step is an exact
    linear assignment; a pair of attention heads is as similar as their best inner matching. Where a
    permutation occurs twice in one array, as in recurrent weights, steps follow the linear part of
    the objective, and those that do not decrease the distance are undone.

    The result is the optimum if the space has one permutation, with what is nested in it, that
    occurs once in each array; and if `b` is a permuted copy of `a`, in which case the copy is
    undone exactly, up to the bound on the search in `unf.canonicalize`. Otherwise the problem is
    NP-hard, and the result is a local optimum: never farther than `b` itself.

    By activations, it maximizes the sum of correlations between what matched neurons compute on
    some inputs, over all values that carry a permutation and that a matrix product or a convolution
    reads. Each permutation, with what is nested in it, is one exact assignment. What no value
    carries outside of loops, such as the body of a scan, is matched by weights afterwards. The
    distance can increase.

    >>> import jax, jax.numpy as jnp, unf
    >>> space = unf.testing.spaces.mlp(4, 16, 16, 2)
    >>> keys = jax.random.split(jax.random.key(0))
    >>> shapes = space.to_shapes()
    >>> a = jax.tree.map(lambda s: jax.random.normal(keys[0], s.shape), shapes)
    >>> b = space.permute(a, space.sample_permutation(keys[1]))
    >>> aligned = space.permute(b, unf.align(space, a, b))
    >>> all(bool(jnp.all(aligned[path] == a[path])) for path in a)
    True

    Args:
        space: the weight space of both networks.
        a: the weights that stay, or features with one trailing channel axis.
        b: the weights to move, with the same structure and shapes.
        method: what makes neurons similar, their "weights" or their "activations".
        fn: for activations, the network, called as `fn(params, *inputs)`.
        inputs: for activations, a tuple of inputs, or a single one, such as an array. All values
            that are compared are held in memory, so pass a batch as in training.
        key: draws the third and further starts; by default always the same ones.
        num_starts: how many descents to run; the best is returned. The first starts from `b` as it
            is, the second from a matching of the neurons' sorted weights, others at random.
        progress: show progress on standard error, by default on a terminal; a string is its label.

    Returns:
        Indices for each name, in the form of `space.sample_permutation`; apply them with
        `space.permute(b, ...)`.

    Raises:
        SpecError: if the trees do not belong to the space, or hold values that are not finite; or
            if `space` is not what `infer` finds for `fn`, up to names and fixed axes.
    """
    by_activations = _check_method(method, fn, inputs)
    parts = check_pair(space, a, b)
    if by_activations:
        assert fn is not None
        element = _undo_permutation(space, *parts)
        if element is None:
            similarities = correlations(space, fn, a, b, as_inputs(inputs))
            element = _align_by(space, parts[0], parts[1], similarities)
        return to_permutation(element)
    element, _ = _align(space, parts[0], parts[1], key, num_starts, progress)
    return to_permutation(element)


def distance(
    space: WeightSpace,
    a: PyTree,
    b: PyTree,
    *,
    key: PRNGKeyArray | None = None,
    num_starts: int = 2,
    progress: bool | str | None = None,
) -> float:
    """The Euclidean distance of two networks modulo symmetry, as near as `align` brings them.

    min_g ‖a − g·b‖ is a metric on orbits. Finding the minimum is NP-hard in general, so this is an
    upper bound: it is exact where `align` is, and at most the distance without alignment. It is
    zero if and only if one network is a permuted copy of the other, up to the bound on the search
    in `unf.canonicalize`, and does not depend on the order of `a` and `b`.

    >>> import jax.numpy as jnp, unf
    >>> space = unf.WeightSpace.from_spec({"w": "[x] n"}, {"w": jnp.zeros((1, 3))})
    >>> a, b = {"w": jnp.array([[1.0, 2.0, 3.0]])}, {"w": jnp.array([[7.0, 2.0, 1.0]])}
    >>> unf.distance(space, a, b)
    4.0

    Args:
        space: the weight space of both networks.
        a: the weights of one network, or features with one trailing channel axis.
        b: those of the other.
        key: draws the random starts, as in `align`.
        num_starts: how many descents to run, as in `align`.
        progress: show progress on standard error, as in `align`.

    Raises:
        SpecError: if the trees do not belong to the space, or hold values that are not finite.
    """
    parts = check_pair(space, a, b)
    if _comes_later(parts[0], parts[1]):
        parts.reverse()
    _, squared = _align(space, parts[0], parts[1], key, num_starts, progress)
    return float(np.sqrt(squared))


def _align(
    space: WeightSpace,
    a: _Parts,
    b: _Parts,
    key: PRNGKeyArray | None,
    num_starts: int,
    progress: bool | str | None,
) -> tuple[Element, float]:
    """The best element of several descents, and the squared distance that it leaves."""
    if not isinstance(num_starts, int | np.integer) or num_starts < 1:
        raise ValueError(f"num_starts: expected a positive integer, got {shown(num_starts)}")
    element = _undo_permutation(space, a, b)
    if element is not None:
        return element, 0.0
    descent = Descent(space, a, b)
    label = progress if isinstance(progress, str) else "align"
    show = sys.stderr.isatty() if progress is None else bool(progress)
    best, least = identity(space), descent.squared_distance(identity(space))
    steps = num_starts * len(descent.trees)
    with Progress(label, total=steps, unit="names", show=show) as bar:
        for number, start in enumerate(_starts(descent, key, num_starts)):
            note = f"start {number + 1} of {num_starts}, distance {np.sqrt(least):.4g}"
            found = descent.run(start, lambda new, note=note: bar.advance(int(new), note))
            squared = descent.squared_distance(found)
            if squared < least:
                best, least = found, squared
    return best, least


def _align_by(
    space: WeightSpace, a: _Parts, b: _Parts, similarities: Mapping[str, np.ndarray]
) -> Element:
    """Match by given similarities, and by weights what they say nothing about."""
    element, matched = identity(space), set[str]()
    for root in make_trees(space):
        innermost = [node.name for node in root.walk() if not node.children]
        if all(name in similarities for name in innermost):
            assign(root, similarities, element)
            matched.add(root.name)
    return Descent(space, a, b).run(element, held=matched)


def _check_method(method: str, fn: Any, inputs: Any) -> bool:
    """Whether to match by activations."""
    given = type(inputs) not in (tuple, list) or bool(inputs)
    if method not in ("weights", "activations"):
        raise ValueError(f'method: expected "weights" or "activations", got {shown(method)}')
    if method == "activations" and not (callable(fn) and given):
        raise ValueError(
            'method="activations" runs the networks: pass fn=, which is called as '
            "fn(params, *inputs), and inputs=, a tuple of its further arguments"
        )
    if method == "weights" and (fn is not None or given):
        raise ValueError('fn= and inputs= belong to method="activations"')
    return method == "activations"


def as_inputs(given: Any) -> tuple:
    """The arguments of a network after its parameters: those of a list or plain tuple, or one."""
    return tuple(given) if type(given) in (tuple, list) else (given,)


def check_pair(space: WeightSpace, a: PyTree, b: PyTree) -> list[_Parts]:
    """The blocks of both networks, checked."""
    pair: list[_Parts] = [make_parts(space, tree, finite=True) for tree in (a, b)]
    for block, x, y in zip(space.blocks, *pair, strict=True):
        if x.shape != y.shape:
            raise SpecError(
                "the networks have different numbers of channels",
                path=space.leaves[block.leaf].path,
                expected=f"{x.shape[-1]} as in the first",
                got=f"{y.shape[-1]}",
            )
    return pair


def _starts(descent: Descent, key: PRNGKeyArray | None, number: int) -> Iterator[Element]:
    yield identity(descent.space)
    if number > 1:
        yield descent.from_sorted_weights()
    seed = [0] if key is None else np.asarray(jax.random.key_data(key)).ravel()
    for start in range(2, number):
        rng = np.random.default_rng([*seed, start])
        indices = identity(descent.space).items()
        yield {name: rng.permuted(rows, axis=-1) for name, rows in indices}


def _undo_permutation(space: WeightSpace, a: _Parts, b: _Parts) -> Element | None:
    """The element that moves `b` onto `a` exactly, if their canonical forms are equal."""
    if all(map(np.array_equal, a, b)):
        return identity(space)
    for x, y in sorted(zip(a, b, strict=True), key=lambda pair: pair[0].size):
        # Networks that are no copies differ here already, mostly in the smallest block.
        if not np.array_equal(np.sort(x, axis=None), np.sort(y, axis=None)):
            return None
    if any(x.dtype != y.dtype for x, y in zip(a, b, strict=True)):
        a, b = ([x.astype(np.float64) for x in parts] for parts in (a, b))
    try:
        elements = [canonical_element(space, parts) for parts in (a, b)]
    except SearchError:
        return None
    element = compose(make_trees(space), inverse(elements[0]), elements[1])
    moved = map(permute_block, space.blocks, b, [element] * len(b))
    return element if all(map(np.array_equal, a, moved)) else None


def _comes_later(a: _Parts, b: _Parts) -> bool:
    """Whether `a` sorts after `b`, by their first entries that differ."""
    for x, y in zip(a, b, strict=True):
        different = x != y
        if np.any(different):
            place = np.unravel_index(np.argmax(different), different.shape)
            return bool(x[place] > y[place])
    return False
