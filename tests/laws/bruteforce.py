"""Equivariant linear maps found without the theory: by orbits, and by explicit matrices."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from unf import WeightSpace
from unf.basis import Plan, Term, terms
from unf.nn import apply
from unf.testing import valid_partitions


def generators(space: WeightSpace):
    """Transpositions of neighbours, each alone: they generate the whole group."""
    for name, size in space.sizes.items():
        parents = [".".join(name.split(".")[:i]) for i in range(1, name.count(".") + 1)]
        rows = tuple(space.axis_sizes[parent] for parent in parents)
        identity = np.broadcast_to(np.arange(size), (*rows, size))
        for row in np.ndindex(*rows):
            for i, j in pairwise(range(size)):
                element = identity.copy()
                element[(*row, i)], element[(*row, j)] = j, i
                yield {name: element}


def entry_permutations(space: WeightSpace, group=None) -> list[np.ndarray]:
    """How group elements move the entries of all leaves, numbered in one sequence."""
    shapes = [leaf.shape for leaf in space.leaves]
    bounds = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)])
    numbers = [
        np.arange(start, stop).reshape(shape)
        for (start, stop), shape in zip(pairwise(bounds), shapes, strict=True)
    ]
    tree = space.unflatten(numbers)
    moved = []
    for element in generators(space) if group is None else group:
        leaves = jax.tree.leaves(space.permute(tree, element))
        moved.append(np.concatenate([np.asarray(leaf).reshape(-1) for leaf in leaves]))
    return moved


def count_orbits(space: WeightSpace, out_space: WeightSpace) -> int:
    """The dimension of all equivariant linear maps: orbits of pairs of output and input entries.

    Both spaces need the same permutations.
    """
    group = list(generators(space))
    inputs, outputs = entry_permutations(space, group), entry_permutations(out_space, group)
    pairs = np.arange(space.num_weights * out_space.num_weights)
    rows, columns = np.divmod(pairs, space.num_weights)
    edges = [o[rows] * space.num_weights + i[columns] for i, o in zip(inputs, outputs, strict=True)]
    ends = np.concatenate([pairs, *edges])
    starts = np.tile(pairs, len(edges) + 1)
    graph = coo_matrix((np.ones(len(ends)), (starts, ends)), shape=(len(pairs), len(pairs)))
    return int(connected_components(graph, directed=False)[0])


def layer_matrix(plan: Plan, coefficients: dict) -> np.ndarray:
    """The layer with one channel as a matrix from all input to all output entries."""
    space = plan.in_space
    identity = jnp.eye(space.num_weights)
    shapes = [leaf.shape for leaf in space.leaves]
    bounds = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)])
    leaves = [
        identity[:, start:stop].reshape(-1, *shape, 1)
        for (start, stop), shape in zip(pairwise(bounds), shapes, strict=True)
    ]
    outputs = jax.vmap(lambda x: apply(plan, coefficients, x))(space.unflatten(leaves))
    flat = [leaf.reshape(space.num_weights, -1) for leaf in jax.tree.leaves(outputs)]
    return jnp.concatenate(flat, axis=1).T


def explicit_terms(plan: Plan) -> dict[tuple[int, int], tuple[list[Term], np.ndarray]]:
    """For each pair of blocks, its terms and their tensors from definition 1 and eq. 15.

    A tensor has the permuted axes of the output's block and then of the input's; means for sums.
    """
    known: dict[tuple[int, int], dict] = {}
    for term in terms(plan):
        known.setdefault((term.target_block, term.source_block), {})[term.partition] = term
    found = {}
    for t, target in enumerate(plan.out_space.blocks):
        for s, source in enumerate(plan.in_space.blocks):
            of_pair, tensors = known.get((t, s), {}), []
            valid = list(valid_partitions(source, target))
            partitions = [p for p in valid if p in of_pair]
            assert plan.minimal or partitions == valid
            sizes = [label.size for label in (*target.labels, *source.labels)]
            index = np.indices(sizes)
            for partition in partitions:
                tensor = np.ones(sizes)
                for group in partition:
                    axes = [p if side == "o" else len(target.labels) + p for side, p in group]
                    for a, b in pairwise(axes):
                        tensor *= index[a] == index[b]
                    if all(side == "i" for side, _ in group):
                        tensor /= sizes[axes[0]]
                tensors.append(tensor)
            found[t, s] = ([of_pair[p] for p in partitions], np.array(tensors))
    return found


def explicit_matrix(plan: Plan, coefficients: dict) -> np.ndarray:
    """The layer's matrix, entry by entry from its definition."""
    out_numbers, in_numbers = _block_entries(plan.out_space), _block_entries(plan.in_space)
    matrix = np.zeros((plan.out_space.num_weights, plan.in_space.num_weights))
    for (t, s), (found, tensors) in explicit_terms(plan).items():
        if found:
            values = [np.asarray(coefficients[term.core])[term.slices(1, 1)].T for term in found]
            rank = out_numbers[t].ndim - 1
            rows = np.expand_dims(out_numbers[t], (*range(rank, tensors.ndim - 1), -1))
            columns = np.expand_dims(in_numbers[s], (*range(rank), -2))
            matrix[rows, columns] += np.tensordot(tensors, np.array(values), (0, 0))
    return matrix


def _block_entries(space: WeightSpace) -> list[np.ndarray]:
    """The numbers of each block's entries, permuted axes first, fixed ones flattened."""
    found, start = [], 0
    for layout, leaf in zip(space.layouts, space.leaves, strict=True):
        size = int(np.prod(leaf.shape))
        numbers = np.arange(start, start + size).reshape(*leaf.shape, 1)
        for block, part in zip(layout.blocks, layout.split(numbers), strict=True):
            order = (*block.permuted, *block.fixed, part.ndim - 1)
            sizes = [block.atoms[i].size for i in block.permuted]
            found.append(part.transpose(order).reshape(*sizes, -1))
        start += size
    return found
