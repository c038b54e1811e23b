"""How similar the neurons of two networks are by what they compute: correlations over inputs.

Two neurons are compared on each value that a matrix product reads, over all examples and positions.
Unlike weights, these do not depend on the order of any other neurons, so one assignment for each
permutation suffices.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from jaxtyping import PyTree

from ..graph._activations import Activation, Activations
from ..spec import SpecError, WeightSpace
from ..spec._blocks import Block, Layout
from ..spec._grammar import AxisSpec, Name, Number, children, format_axes, map_atoms
from ._similarity import neurons


def correlations(
    space: WeightSpace, fn: Callable[..., PyTree], a: PyTree, b: PyTree, inputs: tuple
) -> dict[str, np.ndarray]:
    """For each node, the correlations of its neurons in `a` with those in `b`, summed over values.

    A node that no product reads is judged by the last value that carries it; one that no value
    outside of loops carries has no entry.
    """
    activations = Activations(fn, a, *inputs)
    atoms = _find_atoms(activations.space, space)
    layouts = {
        number: Layout(0, _rename(activation.axes, atoms), space.axis_sizes)
        for number, activation in enumerate(activations.found)
    }
    carried = {number: set(_carried(layout.blocks)) for number, layout in layouts.items()}
    wanted = {i for i in carried if activations.found[i].is_read}
    for name in set().union(*carried.values()):
        if not any(name in carried[i] for i in wanted):
            wanted.add(max(i for i in carried if name in carried[i]))
    chosen = sorted(i for i in wanted if carried[i])
    found: dict[str, np.ndarray] = {}
    computed = activations.compute([activations.found[i] for i in chosen], (a, b), *inputs)
    for i, x, y in zip(chosen, *computed, strict=True):
        _check_finite(activations.found[i], x, y)
        pairs = [layouts[i].split(z[..., None]) for z in (x, y)]
        for block, left, right in zip(layouts[i].blocks, *pairs, strict=True):
            for position in _positions(block):
                name = block.labels[position].name
                added = _correlation(block, position, left, right)
                found[name] = found[name] + added if name in found else added
    return found


def _correlation(block: Block, position: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Of all neurons of a label, over everything else; those that are constant have zero."""
    rows = [neurons(block, position, x).astype(np.float64) for x in (a, b)]
    for x in rows:
        x -= x.mean(axis=1, keepdims=True)
        norms = np.linalg.norm(x, axis=1, keepdims=True)
        np.divide(x, norms, out=x, where=norms > 0)
    return rows[0] @ rows[1].T


def _carried(blocks: Sequence[Block]) -> Iterator[str]:
    for block in blocks:
        yield from (block.labels[position].name for position in _positions(block))


def _positions(block: Block) -> list[int]:
    """The labels that can be compared: the innermost of each tree that occurs once."""
    labels = block.labels

    def root(position: int) -> str:
        parent = labels[position].parent
        return labels[position].name if parent is None else root(parent)

    innermost = [i for i in range(len(labels)) if all(label.parent != i for label in labels)]
    roots = [root(i) for i in innermost]
    return [i for i, name in zip(innermost, roots, strict=True) if roots.count(name) == 1]


def _find_atoms(found: WeightSpace, given: WeightSpace) -> dict[str, Name | Number]:
    """For each name that `infer` finds, what the given space has in its place."""
    atoms: dict[str, Name | Number] = {}

    def compare(theirs: AxisSpec, ours: AxisSpec) -> bool:
        if isinstance(theirs, Number) and isinstance(ours, Name | Number):
            return True
        if isinstance(theirs, Name) and isinstance(ours, Name | Number):
            return atoms.setdefault(theirs.path, ours) == ours
        below = children(theirs), children(ours)
        if type(theirs) is not type(ours) or len(below[0]) != len(below[1]):
            return False
        return all(map(compare, *below))

    expected = {leaf.path: leaf for leaf in found.leaves}
    for leaf in given.leaves:
        theirs = expected.get(leaf.path)
        if theirs is None or not all(map(compare, theirs.axes, leaf.axes)):
            raise SpecError(
                "the space is not that of the network",
                path=leaf.path,
                expected="no such leaf" if theirs is None else repr(format_axes(theirs.axes)),
                got=repr(format_axes(leaf.axes)),
                remedy="take the space from unf.infer(fn, params, *inputs), or use "
                'method="weights"; names may differ, and axes may be fixed',
            )
    return atoms


def _rename(axes: tuple[AxisSpec, ...], atoms: dict[str, Name | Number]) -> tuple[AxisSpec, ...]:
    def change(atom: Name | Number) -> AxisSpec:
        return atoms.get(atom.path, atom) if isinstance(atom, Name) else atom

    return tuple(map_atoms(axis, change) for axis in axes)


def _check_finite(activation: Activation, *values: np.ndarray) -> None:
    for network, x in zip(("first", "second"), values, strict=True):
        if not np.isfinite(x).all():
            raise SpecError(
                f"a value within the {network} network is not finite",
                path=format_axes(activation.axes),
                remedy="check its weights and the inputs",
            )
