"""Signs of neurons: a symmetry of networks with odd activations that no permutation expresses.

If an activation is odd, σ(−x) = −σ(x), as sin and tanh are, a neuron with all its weights negated
computes the negative of what it did, and the weights that read it undo this. Signs act on weights
like permutations: entry (i, j) of axes `h` and `k` is multiplied by the signs of i and j.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ._blocks import Block, Layout, array_module
from ._errors import SpecError, shown
from ._grammar import base_name, fixed_indices, parse_name
from ._group import Shapes, align_axes, lineage_axes

_Signs = Mapping[str, Any]


def check_names(names: Any, shapes: Shapes) -> list[str]:
    """Normalized names of permutations."""
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise SpecError(
            "the names of permutations are a sequence",
            expected=f"some of {list(shapes)}, e.g. {tuple(shapes)[:1]}",
            got=shown(names),
        )
    found = [parse_name(name) for name in names]
    for name in found:
        if name not in shapes:
            raise SpecError(
                f"{name!r} is not a permutation of this space, so its neurons have no signs",
                expected=f"some of {list(shapes)}",
            )
    return list(dict.fromkeys(found))


def check_signs(signs: Any, shapes: Shapes) -> dict[str, Any]:
    """Signs by normalized name, in the shape of a permutation's indices."""
    if not isinstance(signs, Mapping):
        raise SpecError("signs belong to names", expected="a mapping", got=shown(signs))
    checked = dict(zip(check_names(list(signs), shapes), signs.values(), strict=True))
    for name, values in checked.items():
        if tuple(np.shape(values)) != shapes[name]:
            raise SpecError(
                f"the signs of {name!r} have the wrong shape",
                expected=f"shape {shapes[name]}",
                got=f"shape {np.shape(values)}",
            )
    return checked


def flip_leaf(layout: Layout, array: Any, signs: _Signs) -> Any:
    """Act on one leaf; trailing axes beyond the specification are channels."""
    names = {base_name(label.name) for block in layout.blocks for label in block.labels}
    if not names & signs.keys():
        return array
    parts = layout.split(array if isinstance(array, np.ndarray) else jnp.asarray(array))
    pairs = zip(layout.blocks, parts, strict=True)
    return layout.join([flip_block(block, part, signs) for block, part in pairs])


def flip_block(block: Block, array: Any, signs: _Signs) -> Any:
    """Multiply a block, with or without channels, by signs: once for each axis that has some."""
    for position, label in enumerate(block.labels):
        if base_name(label.name) in signs:
            xp = array_module(array)
            of_axis = xp.asarray(signs[base_name(label.name)])[fixed_indices(label.name)]
            of_axis = align_axes(of_axis, lineage_axes(block, position), array.ndim)
            array = array * xp.broadcast_to(of_axis, array.shape).astype(array.dtype)
    return array


def orientation(
    blocks: Sequence[Block], arrays: Sequence[Any], names: Sequence[str], shapes: Shapes
) -> dict[str, Any]:
    """The signs for which weights are mostly positive, see `WeightSpace.orient`."""
    signs: dict[str, Any] = {}
    remaining, oriented = list(names), list(arrays)
    while remaining:
        places = {name: _places(blocks, name, remaining) for name in remaining}
        ready = [name for name in remaining if places[name]]
        if not ready:
            raise SpecError(
                f"no array tells which sign neurons of {remaining[0]!r} have",
                expected="one with this axis once, and no other that has yet to be oriented",
                remedy=f"leave {remaining[0]!r} out",
            )
        found = {name: _signs(blocks, oriented, places[name], shapes[name]) for name in ready}
        pairs = zip(blocks, oriented, strict=True)
        oriented = [flip_block(block, array, found) for block, array in pairs]
        signs |= found
        remaining = [name for name in remaining if name not in found]
    return signs


def _places(blocks: Sequence[Block], name: str, remaining: Sequence[str]) -> list[tuple[int, int]]:
    """Where an axis occurs whose neurons' sign is that of their weights: blocks and positions.

    Those are the blocks in which nothing else has an unknown sign. Matrices come before vectors,
    since the sign of a small bias says little, and then those with the fewest permuted axes.
    """
    found: dict[tuple[bool, int], list[tuple[int, int]]] = {}
    for number, block in enumerate(blocks):
        bases = [base_name(label.name) for label in block.labels]
        if [base for base in bases if base in remaining] == [name]:
            rank = len(block.atoms) == 1, len(block.labels)
            found.setdefault(rank, []).append((number, bases.index(name)))
    return found[min(found)] if found else []


def _signs(
    blocks: Sequence[Block],
    arrays: Sequence[Any],
    places: Sequence[tuple[int, int]],
    shape: tuple[int, ...],
) -> Any:
    """1 for neurons whose weights have a sum that is not negative, else −1."""
    xp = array_module(arrays[places[0][0]])
    sums = xp.zeros(shape)
    for number, position in places:
        block, array = blocks[number], arrays[number]
        own = lineage_axes(block, position)
        others = tuple(axis for axis in range(array.ndim) if axis not in own)
        order = sorted(range(len(own)), key=lambda i: own[i])
        found = xp.transpose(xp.sum(array, axis=others), np.argsort(order))
        at = fixed_indices(block.labels[position].name)
        if xp is np:
            sums[at] += found
        else:
            sums = jnp.asarray(sums).at[at].add(found.astype(sums.dtype))
    return xp.where(sums < 0, -1.0, 1.0)
