"""The paper's layer, implemented literally, to test and measure against.

For every pair of leaves, the layer computes one term after another: it places the term's entries
in the output's axes, multiplies them by the term's channel matrix and adds them to the output
(eq. 25 and 30). Axes along which a term is constant keep size one until the addition, as in the
authors' code. Partitions are enumerated independently of `unf.basis`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ..basis import Plan, Term, terms
from ..basis._terms import Partition
from ..spec._blocks import Block


def _set_partitions(items: list, color: Mapping) -> Iterator[list[list]]:
    """All partitions of a list into non-empty subsets, each of one color."""
    if not items:
        yield []
        return
    first, *rest = items
    for smaller in _set_partitions(rest, color):
        yield [[first], *smaller]
        for i, subset in enumerate(smaller):
            if color[first] == color[subset[0]]:
                yield [*smaller[:i], [first, *subset], *smaller[i + 1 :]]


def valid_partitions(source: Block, target: Block) -> Iterator[Partition]:
    """The valid partitions of definition 1; nested axes share a group only if their parents do."""
    labels = {("o", i): label for i, label in enumerate(target.labels)}
    labels |= {("i", i): label for i, label in enumerate(source.labels)}
    names = {index: label.name for index, label in labels.items()}
    for subsets in _set_partitions(sorted(labels), names):
        place = {index: number for number, subset in enumerate(subsets) for index in subset}

        def permute_together(a, b, place=place) -> bool:
            x, y = labels[a], labels[b]
            if x.parent is None or y.parent is None:
                return x.parent == y.parent
            return place[a[0], x.parent] == place[b[0], y.parent]

        if all(permute_together(subset[0], other) for subset in subsets for other in subset[1:]):
            yield tuple(sorted(tuple(sorted(subset)) for subset in subsets))


def _literal_term(partition: Partition, source: Block, target: Block, x: Array) -> Array:
    """E(X) of eq. 25 with means for sums: the output's axes, of size one where it is constant."""
    place = {index: number for number, group in enumerate(partition) for index in group}
    inputs = [place["i", i] for i in range(len(source.labels))]
    outputs = [place["o", i] for i in range(len(target.labels))]
    # Diagonals of the input: X[a, a, c] -> X[a, c].
    while (twice := next((n for n in inputs if inputs.count(n) > 1), None)) is not None:
        first = inputs.index(twice)
        second = inputs.index(twice, first + 1)
        x = jnp.moveaxis(jnp.diagonal(x, axis1=first, axis2=second), -1, first)
        del inputs[second]
    x = jnp.mean(x, axis=[i for i, n in enumerate(inputs) if n not in outputs])
    kept = [number for number in inputs if number in outputs]
    # The first index of a group of outputs carries it; further ones make a diagonal.
    first = [outputs.index(number) for number in kept]
    order = sorted(range(len(kept)), key=first.__getitem__)
    sizes = [label.size for label in target.labels]
    shape = [size if i in first else 1 for i, size in enumerate(sizes)]
    x = jnp.transpose(x, (*order, len(kept))).reshape(*shape, x.shape[-1])
    for i, number in enumerate(outputs):
        if (j := outputs.index(number)) < i:
            shape = [size if a in (i, j) else x.shape[a] for a, size in enumerate(sizes)]
            x = jnp.broadcast_to(x, (*shape, x.shape[-1]))
            axes = [jax.lax.broadcasted_iota(jnp.int32, x.shape, axis) for axis in (i, j)]
            x = jnp.where(axes[0] == axes[1], x, jnp.zeros((), x.dtype))
    return x


def literal_layer(plan: Plan, coefficients: Mapping[str, Array], x: PyTree, bias: Any = None):
    """Compute what `unf.nn.apply` computes, term by term at full size.

    Args:
        plan: from `unf.basis.make_plan`.
        coefficients: the matrix of each core.
        x: features in the plan's input space.
        bias: for each output leaf, what is added to its channels.
    """
    leaves = plan.in_space.flatten(x, channels=True)
    channels = leaves[0].shape[-1]
    parts = plan.in_space.fold(leaves)
    by_pair: dict[tuple[int, int], dict[Partition, Term]] = {}
    for term in terms(plan):
        by_pair.setdefault((term.target_block, term.source_block), {})[term.partition] = term
    first = plan.cores[0]
    out_channels = coefficients[first.name].shape[1] // plan.matrix_shape(first, 1, 1)[1]
    out, start = [], 0
    for number, layout in enumerate(plan.out_space.layouts):
        blocks = []
        for position, target in enumerate(layout.blocks, start=start):
            sizes = [label.size for label in target.labels]
            total = jnp.zeros((*sizes, target.width * out_channels), leaves[0].dtype)
            for s, source in enumerate(plan.in_space.blocks):
                known = by_pair.get((position, s), {})
                for partition in valid_partitions(source, target):
                    if plan.minimal and partition not in known:
                        continue
                    term = known[partition]
                    matrix = coefficients[term.core][term.slices(channels, out_channels)]
                    entries = _literal_term(partition, source, target, parts[s]) @ matrix
                    total = total + jnp.broadcast_to(entries, total.shape)
            blocks.append(target.unfold(total))
        start += len(blocks)
        leaf = layout.join(blocks)
        if bias is not None:
            leaf = leaf + jnp.broadcast_to(bias[number], leaf.shape)
        out.append(leaf)
    return plan.out_space.unflatten(out)
