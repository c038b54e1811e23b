"""Signs of neurons: a symmetry of networks with odd activations that no permutation expresses.

If an activation is odd, σ(−x) = −σ(x), as sin and tanh are, a neuron with all its weights negated
computes the negative of what it did, and the weights that read it undo this. Signs act on weights
like permutations: entry (i, j) of axes `h` and `k` is multiplied by the signs of i and j. Booleans
and unsigned integers, such as masks, have no signs and stay as they are.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ._blocks import Block, Layout, array_module
from ._errors import SpecError, shown
from ._grammar import base_name, fixed_indices, parse_name
from ._group import Shapes, align_axes, lineage_axes

Signs = Mapping[str, Any]
"""For some names, 1 or −1 for each neuron, in the shape of their indices."""


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
    """Signs by normalized name; values are checked unless they are traced."""
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
        if not isinstance(values, Tracer) and not np.all(np.isin(np.asarray(values), (-1, 1))):
            raise SpecError(
                f"the signs of {name!r} are not signs", expected="1 or -1 each", got=shown(values)
            )
        checked[name] = values if isinstance(values, np.ndarray) else jnp.asarray(values)
    return checked


def flip_leaf(layout: Layout, array: Any, signs: Signs) -> Any:
    """Act on one leaf; trailing axes beyond the specification are channels."""
    names = {base_name(label.name) for block in layout.blocks for label in block.labels}
    if not names & signs.keys():
        return array
    in_numpy = all(isinstance(x, np.ndarray) for x in (array, *signs.values()))
    parts = layout.split(array if in_numpy else jnp.asarray(array))
    pairs = zip(layout.blocks, parts, strict=True)
    return layout.join([_flip_block(block, part, signs) for block, part in pairs])


def orientation(
    blocks: Sequence[Block], arrays: Sequence[Any], names: Sequence[str], shapes: Shapes
) -> dict[str, Any]:
    """The signs for which weights are mostly positive, see `WeightSpace.orientation`."""
    in_numpy = all(isinstance(array, np.ndarray) for array in arrays)
    xp = np if in_numpy else jnp
    parts = [array if in_numpy else jnp.asarray(array) for array in arrays]
    signs: dict[str, Any] = {name: xp.ones(shapes[name]) for name in names}
    # A name nested in a fixed axis has a label for each index, `layer[0].m`, with signs of its own.
    labels = [label.name for block in blocks for label in block.labels]
    remaining = [label for label in dict.fromkeys(labels) if base_name(label) in signs]
    while remaining:
        places = {label: _places(blocks, parts, label, remaining) for label in remaining}
        ready = [label for label in remaining if places[label]]
        if not ready:
            name = base_name(remaining[0])
            raise SpecError(
                f"no array tells which sign neurons of {name!r} have",
                expected="one with this axis once, and no other that has yet to be oriented",
                remedy=f"leave {name!r} out",
            )
        found = {name: xp.ones(shapes[name]) for name in {base_name(label) for label in ready}}
        for label in ready:
            of_label = _signs_of_sums(blocks, parts, places[label])
            name, at = base_name(label), fixed_indices(label)
            if in_numpy:
                found[name][at] = of_label
            else:
                found[name] = jnp.asarray(found[name]).at[at].set(of_label)
        pairs = zip(blocks, parts, strict=True)
        parts = [_flip_block(block, part, found) for block, part in pairs]
        signs |= {name: signs[name] * values for name, values in found.items()}
        remaining = [label for label in remaining if label not in ready]
    return signs


def _flip_block(block: Block, array: Any, signs: Signs) -> Any:
    """Multiply a block, with or without channels, by signs: once for each axis that has some."""
    if not _has_sign(array):
        return array
    xp = array_module(array)
    for position, label in enumerate(block.labels):
        if base_name(label.name) in signs:
            of_axis = xp.asarray(signs[base_name(label.name)])[fixed_indices(label.name)]
            of_axis = align_axes(of_axis, lineage_axes(block, position), array.ndim)
            array = array * xp.broadcast_to(of_axis, array.shape).astype(array.dtype)
    return array


def _has_sign(array: Any) -> bool:
    return not (array.dtype == bool or jnp.issubdtype(array.dtype, jnp.unsignedinteger))


def _places(
    blocks: Sequence[Block], arrays: Sequence[Any], label: str, remaining: Sequence[str]
) -> list[tuple[int, int]]:
    """Where an axis occurs whose neurons' sign is that of their weights: blocks and positions.

    Those are the blocks in which nothing else has an unknown sign. Matrices come before vectors,
    since the sign of a small bias says little, and then those with the fewest permuted axes.
    """
    found: dict[tuple[bool, int], list[tuple[int, int]]] = {}
    for number, (block, array) in enumerate(zip(blocks, arrays, strict=True)):
        names = [each.name for each in block.labels]
        if _has_sign(array) and [name for name in names if name in remaining] == [label]:
            rank = len(block.atoms) == 1, len(block.labels)
            found.setdefault(rank, []).append((number, names.index(label)))
    return found[min(found)] if found else []


def _signs_of_sums(
    blocks: Sequence[Block], arrays: Sequence[Any], places: Sequence[tuple[int, int]]
) -> Any:
    """−1 for neurons whose weights have a negative sum of w|w|, else 1.

    Sums of w are often zero, as in networks with standardized weights, and then rounding, which
    depends on the order of neurons, would decide.
    """
    total: Any = 0.0
    for number, position in places:
        block, array = blocks[number], arrays[number]
        xp, own = array_module(array), lineage_axes(block, position)
        others = tuple(axis for axis in range(array.ndim) if axis not in own)
        order = sorted(range(len(own)), key=lambda i: own[i])
        wide = array.astype(xp.promote_types(array.dtype, np.float32))
        total = total + xp.transpose(xp.sum(wide * xp.abs(wide), axis=others), np.argsort(order))
    return array_module(total).where(total < 0, -1.0, 1.0)
