"""The best matching of nested neurons, given how similar every pair is.

For one permutation this is the linear assignment problem: the indices p that maximize
Σ_i S[i, p[i]]. With `h.k` nested in `h`, the similarity of two heads is that of their best inner
matching, Σ_i (S_h[i, p[i]] + max_q Σ_s S_k[i, p[i], s, q[s]]), so inner problems are solved for
all pairs of heads first, and the problem of heads afterwards. The result is the exact maximum.
"""

from collections.abc import Mapping

import numpy as np
from scipy.optimize import linear_sum_assignment

from ._elements import Element, Node, rows

Similarities = Mapping[str, np.ndarray]
"""For a node's name, similarities of its neurons in one network to those in another.

They form a matrix with a row for each neuron of the node, in row-major order of its shape, whatever
they come from. A node without an entry has zeros.
"""


def assign(root: Node, similarities: Similarities, element: Element) -> float:
    """Write the best matching of a tree into the rows of `element`.

    Returns:
        By how much its total similarity exceeds that of the identity.
    """
    chosen: dict[str, np.ndarray] = {}
    best = float(_solve(root, similarities, chosen))
    for node in root.walk():
        # The matching of this node within the pairs of parents that were matched.
        own = np.indices(node.shape[:-1])
        pairs = []
        for depth, name in enumerate(node.lineage[:-1]):
            pairs += [own[depth], rows(element, name)[tuple(own[: depth + 1])]]
        rows(element, node.name)[...] = chosen[node.name][tuple(pairs)]
    names = [node.name for node in root.walk() if node.name in similarities]
    return best - float(sum(np.trace(similarities[name]) for name in names))


def assign_alone(node: Node, similarity: np.ndarray, element: Element) -> float:
    """Write the best matching of one node, whose parents stay in place, into `element`.

    Returns:
        By how much its total similarity exceeds that of the identity.
    """
    size = node.shape[-1]
    gain, found = 0.0, rows(element, node.name).reshape(-1, size)
    for i in range(len(found)):
        own = similarity[i * size : (i + 1) * size, i * size : (i + 1) * size]
        found[i] = _match(own)
        gain += float(own[np.arange(size), found[i]].sum() - np.trace(own))
    rows(element, node.name)[...] = found.reshape(node.shape)
    return gain


def _solve(node: Node, similarities: Similarities, chosen: dict[str, np.ndarray]) -> np.ndarray:
    """The value of the best matching of a node for every pair of each of its ancestors.

    `chosen` gets the matchings. Axes of both come in pairs: i of one network, j of the other.
    """
    pairs = tuple(size for size in node.shape for _ in range(2))
    total = np.zeros(pairs)
    if node.name in similarities:
        count = len(node.shape)
        order = [axis for i in range(count) for axis in (i, count + i)]
        total += similarities[node.name].reshape(*node.shape, *node.shape).transpose(order)
    for child in node.children:
        total += _solve(child, similarities, chosen)
    problems = total.reshape(-1, *pairs[-2:])
    matched = [_match(problem) for problem in problems]
    chosen[node.name] = np.reshape(matched, pairs[:-1])
    values = np.take_along_axis(problems, np.asarray(matched)[..., None], axis=-1)
    return values.sum(axis=(1, 2)).reshape(pairs[:-2])


def _match(similarity: np.ndarray) -> np.ndarray:
    """The indices p that maximize Σ_i S[i, p[i]]."""
    # Centering changes no comparison of matchings, and makes large problems several times faster.
    centered = similarity - similarity.mean(axis=0)
    centered -= centered.mean(axis=1, keepdims=True)
    return linear_sum_assignment(centered, maximize=True)[1]
