"""The paper's layer taken literally, to test against and to measure against.

Every term is built at the size of the output, one after another, and multiplied by its
channel matrix there (eq. 15 and 17). Partitions are enumerated independently of `unf.basis`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ..basis import Plan, Term, core_terms
from ..basis._terms import Partition
from ..spec import Block


def set_partitions(items: list) -> Iterator[list[list]]:
    """All partitions of a list into non-empty subsets."""
    if not items:
        yield []
        return
    first, *rest = items
    for smaller in set_partitions(rest):
        yield [[first], *smaller]
        for i, subset in enumerate(smaller):
            yield [*smaller[:i], [first, *subset], *smaller[i + 1 :]]


def valid_partitions(source: Block, target: Block) -> Iterator[Partition]:
    """Definition 1, and for nested axes: together only if what they are nested in is."""
    labels = {("o", i): label for i, label in enumerate(target.labels)}
    labels |= {("i", i): label for i, label in enumerate(source.labels)}
    for subsets in set_partitions(sorted(labels)):
        place = {index: number for number, subset in enumerate(subsets) for index in subset}

        def permute_together(a, b, place=place) -> bool:
            x, y = labels[a], labels[b]
            if x.name != y.name or (x.parent is None) != (y.parent is None):
                return False
            return x.parent is None or place[a[0], x.parent] == place[b[0], y.parent]

        if all(permute_together(subset[0], other) for subset in subsets for other in subset[1:]):
            yield tuple(sorted(tuple(sorted(subset)) for subset in subsets))


def literal_term(term: Term, source: Block, target: Block, x: Array) -> Array:
    """E(X) of eq. 15 at the size of the output, with means for sums; channels last."""
    place = {index: number for number, group in enumerate(term.partition) for index in group}
    inputs = [place["i", i] for i in range(len(source.labels))]
    outputs = [place["o", i] for i in range(len(target.labels))]
    kept = [number for number in dict.fromkeys(outputs) if number in inputs]
    channel = len(term.partition)
    averaged = {n: source.labels[inputs.index(n)].size for n in inputs if n not in outputs}
    reduced = jnp.einsum(x, [*inputs, channel], [*kept, channel])
    reduced = reduced / np.prod(list(averaged.values()), initial=1.0).astype(reduced.dtype)
    # Axes of the output: the first index of each group carries it, further ones a diagonal.
    first = [outputs.index(number) for number in kept]
    shape = [1] * len(outputs) + [x.shape[-1]]
    for position, number in zip(first, kept, strict=True):
        shape[position] = reduced.shape[kept.index(number)]
    order = sorted(range(len(kept)), key=lambda i: first[i])
    placed = jnp.transpose(reduced, (*order, len(kept))).reshape(shape)
    sizes = [label.size for label in target.labels]
    placed = jnp.broadcast_to(placed, (*sizes, x.shape[-1]))
    for i, number in enumerate(outputs):
        if (j := outputs.index(number)) < i:
            shape = [sizes[a] if a in (i, j) else 1 for a in range(len(sizes))] + [1]
            mask = jnp.eye(sizes[i], dtype=x.dtype).reshape(shape)
            placed = placed * jnp.broadcast_to(mask, placed.shape)
    return placed


def literal_layer(plan: Plan, coefficients: Mapping[str, Array], x: PyTree, bias: Any = None):
    """The layer of `unf.nn.apply`, term by term at full size."""
    leaves = plan.in_space.flatten(x, channels=True)
    channels = leaves[0].shape[-1]
    parts = [
        block.fold(part)
        for layout, leaf in zip(plan.in_space.layouts, leaves, strict=True)
        for block, part in zip(layout.blocks, layout.split(leaf), strict=True)
    ]
    by_pair: dict[tuple[int, int], dict[Partition, Term]] = {}
    for core in plan.cores:
        for term in core_terms(plan, core):
            pair = by_pair.setdefault((term.target_block, term.source_block), {})
            pair[term.partition] = term
    columns = sum(
        plan.out_stacks[target.stack].width for target in plan.cores[0].targets
    )
    out_channels = coefficients[plan.cores[0].name].shape[1] // columns
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
                    total = total + literal_term(term, source, target, parts[s]) @ matrix
            blocks.append(target.unfold(total))
        start += len(blocks)
        leaf = layout.join(blocks)
        if bias is not None:
            leaf = leaf + jnp.broadcast_to(bias[number], leaf.shape)
        out.append(leaf)
    return plan.out_space.unflatten(out)
