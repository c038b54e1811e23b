"""Equivariant linear maps found without the theory: by orbits, and by explicit matrices."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from unf import WeightSpace
from unf.basis import Plan, terms
from unf.nn import apply, coefficient_shapes
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


def term_matrices(plan: Plan) -> np.ndarray:
    """The matrix of every single coefficient, one channel in and out: [coefficients, out, in].

    Found by linearity; coefficients that are no terms give zero and are left out.
    """
    shapes = coefficient_shapes(plan, 1, 1)
    zero = {name: jnp.zeros(shape) for name, shape in shapes.items()}
    jacobian = jax.jit(jax.jacfwd(lambda c: layer_matrix(plan, c)))(zero)
    columns = [np.moveaxis(np.asarray(j), (2, 3), (0, 1)) for j in jacobian.values()]
    found = np.concatenate([j.reshape(-1, *j.shape[2:]) for j in columns])
    return found[np.any(found != 0, axis=(1, 2))]


def explicit_matrix(plan: Plan, coefficients: dict) -> np.ndarray:
    """The layer's matrix entry by entry from definition 1 and eq. 15, means for sums."""
    out_numbers, in_numbers = _block_entries(plan.out_space), _block_entries(plan.in_space)
    matrix = np.zeros((plan.out_space.num_weights, plan.in_space.num_weights))
    known = {(term.target_block, term.source_block, term.partition): term for term in terms(plan)}
    for t, target in enumerate(plan.out_space.blocks):
        for s, source in enumerate(plan.in_space.blocks):
            for partition in valid_partitions(source, target):
                if (t, s, partition) not in known:
                    assert plan.minimal
                    continue
                term = known[t, s, partition]
                values = np.asarray(coefficients[term.core][term.slices(1, 1)])
                sizes = [label.size for label in (*target.labels, *source.labels)]
                averaged = 1.0
                together = np.ones(sizes, dtype=bool)
                index = np.indices(sizes)
                for group in partition:
                    axes = [p if side == "o" else len(target.labels) + p for side, p in group]
                    for a, b in pairwise(axes):
                        together &= index[a] == index[b]
                    if all(side == "i" for side, _ in group):
                        averaged *= sizes[axes[0]]
                entries = together.reshape(*together.shape, 1, 1) * values.T / averaged
                _add(matrix, entries, out_numbers[t], in_numbers[s])
    return matrix


def _block_entries(space: WeightSpace) -> list[np.ndarray]:
    """The numbers of each block's entries, permuted axes first, fixed ones flattened."""
    found, start = [], 0
    for layout, leaf in zip(space.layouts, space.leaves, strict=True):
        size = int(np.prod(leaf.shape))
        numbers = np.arange(start, start + size).reshape(*leaf.shape, 1)
        parts = layout.split(jnp.asarray(numbers))
        found += [np.asarray(b.fold(p)) for b, p in zip(layout.blocks, parts, strict=True)]
        start += size
    return found


def _add(matrix, entries, out_numbers, in_numbers) -> None:
    rank = out_numbers.ndim - 1
    for index in np.ndindex(entries.shape[:-2]):
        rows, columns = out_numbers[index[:rank]], in_numbers[index[rank:]]
        matrix[np.ix_(rows, columns)] += entries[index]
