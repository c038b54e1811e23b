"""One representative of each orbit: neurons in an order that depends on no order."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
from jaxtyping import PyTree

from ..spec import SpecError, WeightSpace
from ..spec._grammar import base_name
from ..spec._group import permute_block
from ._elements import Element, Node, compose, identity, inverse, make_trees, move, rows
from ._parts import make_parts
from ._refinement import Coloring, Refinement, bits, has_ties

_MOST_STEPS = 4096
"""How many colorings a search refines before it gives up."""
_MOST_CHOICES = 256
"""How many neurons a search tells apart one after another."""


_Neurons = Sequence[tuple[int, ...]]
"""Places in the shape of one node."""


class SearchError(SpecError):
    """Weights so symmetric that the search for their canonical form takes too long."""


def canonicalize(space: WeightSpace, params: PyTree) -> PyTree:
    """The representative of a network's orbit, the same for all permuted copies, bit for bit.

    Weights can thus be compared, hashed, and deduplicated modulo symmetry. Neurons are sorted by
    their largest absolute weight, in descending order. Ties are broken by colors: those of the
    Weisfeiler–Leman refinement, which tells neurons apart by the multisets of their weights and of
    their neighbors' colors, in the order of a fixed hash. Heads are sorted like neurons, by what
    is in them, and then what is in each head.

    Neurons with equal colors are mostly interchangeable, such as copies of one neuron, and their
    order changes nothing. Otherwise each of them is tried as the first, and of all results the one
    with the smallest hash (BLAKE2b) is returned; symmetries that are found on the way shorten the
    search.

    Refinement takes a few passes over the weights, about as long as sorting them. The order is
    exact, not continuous: a small change of the weights can change the order of neurons, so
    compare networks that are not copies with `unf.distance`. Equal means identical bits: 0.0 and
    -0.0 are different weights, and so are equal numbers of different dtypes.

    >>> import jax, jax.numpy as jnp, unf
    >>> space = unf.WeightSpace.from_spec({"w": "[x] n"}, {"w": jnp.zeros((2, 3))})
    >>> params = {"w": jnp.array([[1.0, -3.0, 2.0], [0.0, 1.0, 0.0]])}
    >>> unf.canonicalize(space, params)["w"].tolist()
    [[-3.0, 2.0, 1.0], [1.0, 0.0, 0.0]]

    Args:
        space: the weight space.
        params: the weights, or features with one trailing channel axis.

    Returns:
        The weights as `space.permute` moves them.

    Raises:
        SpecError: if the weights do not belong to the space or have NaN; or if the search would
            refine more than 4,096 colorings or choose more than 256 neurons in a row, as for an
            identity matrix between layers of a hundred neurons that nothing else tells apart.
    """
    element = canonical_element(space, make_parts(space, params, finite=False))
    return space.permute(params, element)


def canonical_element(space: WeightSpace, parts: Sequence[np.ndarray]) -> Element:
    """The group element that moves blocks to their canonical form."""
    search = _Search(space, parts)
    return search.run(search.refinement.first_coloring(), 0).best.element


@dataclass(frozen=True)
class _Form:
    """The weights in the order of a coloring that tells all neurons apart."""

    element: Element
    digest: bytes


@dataclass
class _Subtree:
    """What was found below a coloring.

    Attributes:
        best: the form with the smallest digest.
        forms: all forms that were made, by digest.
        automorphisms: elements that change neither the weights nor the coloring.
    """

    best: _Form
    forms: dict[bytes, _Form]
    automorphisms: list[Element] = field(default_factory=list)


class _Search:
    """Individualization and refinement (McKay and Piperno, "Practical graph isomorphism, II")."""

    def __init__(self, space: WeightSpace, parts: Sequence[np.ndarray]):
        self.space, self.parts = space, [bits(part) for part in parts]
        self.refinement = Refinement(space, parts)
        self.trees = make_trees(space)
        self.nodes = [node for root in self.trees for node in root.walk()]
        self.steps = 0

    def run(self, colors: Coloring, depth: int) -> _Subtree:
        """Search the forms below a coloring, one for each class of equivalent choices."""
        colors = self._settle(colors, depth)
        tie = self._first_tie(colors)
        if tie is None:
            form = self._form(colors)
            return _Subtree(form, {form.digest: form})
        node, members = tie
        result = self.run(_individualize(colors, node, members[0]), depth + 1)
        tried = [members[0]]
        for member in members[1:]:
            if member in _orbit(tried, node, result.automorphisms):
                continue
            tried.append(member)
            chosen = _individualize(colors, node, member)
            form = self._any_form(chosen, depth + 1)
            if form.digest in result.forms:
                same = result.forms[form.digest]
                automorphism = compose(self.trees, inverse(same.element), form.element)
                result.automorphisms.append(automorphism)
                continue
            below = self.run(chosen, depth + 1)
            result.best = min(result.best, below.best, key=lambda form: form.digest)
            result.forms |= below.forms
            result.automorphisms += below.automorphisms
        return result

    def _any_form(self, colors: Coloring, depth: int) -> _Form:
        """The form that the first choices lead to."""
        while True:
            colors = self._settle(colors, depth)
            tie = self._first_tie(colors)
            if tie is None:
                return self._form(colors)
            colors = _individualize(colors, tie[0], tie[1][0])
            depth += 1

    def _settle(self, colors: Coloring, depth: int) -> Coloring:
        """Refine, and number interchangeable neurons, until neither changes anything."""
        while True:
            self.steps += 1
            if self.steps > _MOST_STEPS or depth > _MOST_CHOICES:
                self._fail(colors)
            colors = self.refinement.refine(colors)
            numbered = self._number_interchangeable(colors)
            if numbered is None:
                return colors
            colors = numbered

    def _first_tie(self, colors: Coloring) -> tuple[Node, list[tuple[int, ...]]] | None:
        """The first node with neurons that are not told apart, and those of the first color."""
        for node in self.nodes:
            groups = _ties(colors[node.name])
            if groups:
                return node, min(groups, key=lambda group: colors[node.name][group[0]])
        return None

    def _number_interchangeable(self, colors: Coloring) -> Coloring | None:
        """Tell neurons apart whose order changes nothing; None if there are none."""
        for node in reversed(self.nodes):
            numbers = np.zeros(node.shape, np.int64)
            if any(has_ties(colors[inner.name]) for inner in node.walk() if inner is not node):
                continue
            for group in _ties(colors[node.name]):
                # A transposition and a cycle generate all permutations of the group.
                swap = [group[1], group[0], *group[2:]]
                if all(
                    self._may_exchange(node, group, images, colors)
                    for images in (swap, [*group[1:], group[0]])
                ):
                    for number, member in enumerate(group):
                        numbers[member] = number
            if numbers.any():
                size = node.shape[-1]
                return {**colors, node.name: colors[node.name] * size + numbers}
        return None

    def _may_exchange(
        self, node: Node, members: _Neurons, images: _Neurons, colors: Coloring
    ) -> bool:
        """Whether the weights stay the same with some neurons in the places of others."""
        names = {base_name(inner.name) for inner in node.walk()}
        exchanged = _exchange(self.space, node, members, images, colors)
        element = {name: exchanged[name] for name in names}
        return all(
            np.array_equal(permute_block(block, part, element), part)
            for block, part in zip(self.space.blocks, self.parts, strict=True)
            if any(label.name == node.name for label in block.labels)
        )

    def _form(self, colors: Coloring) -> _Form:
        element = identity(self.space)
        for node in self.nodes:
            moved = move(colors[node.name], node.lineage[:-1], element)
            rows(element, node.name)[...] = np.argsort(moved, axis=-1)
        digest = blake2b()
        for block, part in zip(self.space.blocks, self.parts, strict=True):
            digest.update(np.ascontiguousarray(permute_block(block, part, element)).data)
        return _Form(element, digest.digest())

    def _fail(self, colors: Coloring) -> None:
        tie = self._first_tie(colors)
        got = f"{len(tie[1])} neurons of {tie[0].name!r} that are not told apart" if tie else None
        raise SearchError(
            "the weights are so symmetric that their canonical form was not found",
            expected=f"at most {_MOST_STEPS} refinements and {_MOST_CHOICES} choices in a row",
            got=got,
            remedy="fix() this axis, or compare networks with unf.distance",
        )


def _ties(colors: np.ndarray) -> list[list[tuple[int, ...]]]:
    """Groups of at least two neurons in the same parent with the same color."""
    if not has_ties(colors):
        return []
    groups: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for place in np.ndindex(colors.shape):
        groups.setdefault((*place[:-1], int(colors[place])), []).append(place)
    return [group for group in groups.values() if len(group) > 1]


def _individualize(colors: Coloring, node: Node, member: tuple[int, ...]) -> Coloring:
    """Give one neuron a color of its own, before those it was not told apart from."""
    changed = 2 * colors[node.name] + 1
    changed[member] -= 1
    return {**colors, node.name: changed}


def _exchange(
    space: WeightSpace,
    node: Node,
    members: _Neurons,
    images: _Neurons,
    colors: Coloring,
) -> Element:
    """Put neurons in the places of others, with what is nested in them matched by color."""
    element = identity(space)
    for member, image in zip(members, images, strict=True):
        rows(element, node.name)[member] = image[-1]
    for inner in node.walk():
        if inner is not node:
            order = np.argsort(colors[inner.name], axis=-1)
            moved = move(order, inner.lineage[:-1], element)
            places = np.argsort(order, axis=-1)
            rows(element, inner.name)[...] = np.take_along_axis(moved, places, axis=-1)
    return element


def _orbit(members: _Neurons, node: Node, automorphisms: Sequence[Element]) -> set[tuple[int, ...]]:
    """The neurons that automorphisms move to some of `members`, which have the same parent."""
    reached, new = set(members), list(members)
    while new:
        member = new.pop()
        for element in automorphisms:
            image = (*member[:-1], int(rows(element, node.name)[member]))
            if image not in reached:
                reached.add(image)
                new.append(image)
    return reached
