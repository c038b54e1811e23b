"""The structural keys of terms, by which coefficients are shared between networks.

Two terms play the same part if their tensors have axes of the same roles, if the same of these
axes carry the same permutations, and if they keep and average the same ones. A *fine* key says
all of that, for instance

    in.a1 out.b2 -> in.a1 out.b3; itself

for the term of a matrix that averages its outputs: letters are permutations, numbers are groups of
the partition, and "itself" says that source and target are one tensor. A *coarse* key says only
which roles the term keeps, whether source and target are one tensor, neighbors (with a permutation
in common) or strangers, and the target's rank; the term E = X has one coarse key everywhere.
Neither knows names, sizes, depth, or the order in which axes are stored.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise, permutations, product
from string import ascii_lowercase

import numpy as np

from ..spec import WeightSpace
from ..spec._blocks import Block
from ..spec._roles import LeafRoles
from ._plan import Core, Plan, make_plan

LEVELS = ("coarse", "fine")
IDENTITY, BIAS = "keeps all; itself", "bias"
"""The coarse keys of the term E = X and of biases: the same for every network."""
Roles = tuple[str, ...]
Groups = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
"""A partition: for each group, the axes of the source and those of the target."""


@dataclass(frozen=True)
class Ties:
    """Which coefficients of a layer on one space are the same.

    Attributes:
        plan: the layer's plan.
        keys: for each level, the keys of its terms, each once.
        places: for each level and core, the key of each entry of the core's matrix per channel,
            as a position in `keys`.
        shares: for each level and core, 1 / the number of terms with this key into this tensor.
        bias_keys: for each level, the key of each leaf's bias.
    """

    plan: Plan
    keys: dict[str, tuple[str, ...]]
    places: dict[str, list[np.ndarray]]
    shares: dict[str, list[np.ndarray]]
    bias_keys: dict[str, tuple[str, ...]]

    @cached_property
    def keys_per_tensor(self) -> float:
        """The mean number of coarse keys among the terms into one tensor."""
        total = sum(share.sum() for share in self.shares["coarse"])
        return float(total) / max(1, sum(block.width for block in self.plan.out_space.blocks))

    def counts(self, level: str) -> Counter[str]:
        """The number of terms with each key."""
        found: Counter[str] = Counter()
        for place in self.places[level]:
            positions, counts = np.unique(place, return_counts=True)
            keys = [self.keys[level][i] for i in positions]
            found.update(dict(zip(keys, counts.tolist(), strict=True)))
        return found


@lru_cache(maxsize=64)
def find_ties(space: WeightSpace) -> Ties:
    """The ties of a layer on a space, every axis of which is permuted; results are cached."""
    space, roles = space.relax(), tuple(space.roles.values())
    plan = make_plan(space)
    of_blocks = [_roles_of(block, roles) for block in space.blocks]
    starts = np.cumsum([0, *[block.width for block in space.blocks]])
    positions: dict[str, dict[str, int]] = {level: {} for level in LEVELS}
    places = {level: [] for level in LEVELS}
    tensors = []
    for core in plan.cores:
        found = _core_keys(plan, core, of_blocks)
        for level, keys in zip(LEVELS, found, strict=True):
            known = positions[level]
            table = np.array([[known.setdefault(k, len(known)) for k in row] for row in keys])
            places[level].append(table)
        targets = [plan.out_stacks[target.stack] for target in core.targets]
        columns = [np.arange(starts[i], starts[i + 1]) for stack in targets for i in stack.blocks]
        tensors.append(np.concatenate(columns))
    shares = {level: _shares(places[level], tensors) for level in LEVELS}
    biases = {"coarse": [], "fine": []}
    for layout in space.layouts:
        biases["coarse"].append(BIAS)
        biases["fine"].append(" ".join(["bias ->", *sorted(_roles_of(layout.blocks[0], roles))]))
    keys = {level: tuple(positions[level]) for level in LEVELS}
    return Ties(plan, keys, places, shares, {k: tuple(x) for k, x in biases.items()})


def _roles_of(block: Block, roles: Sequence[LeafRoles]) -> Roles:
    """The roles of a block's permuted axes."""
    return tuple(roles[block.leaf][block.atoms[i].axis] for i in block.permuted)


def _shares(places: Sequence[np.ndarray], tensors: Sequence[np.ndarray]) -> list[np.ndarray]:
    """One over the number of terms with the same key into the same tensor, entry by entry."""
    size = 1 + max((int(place.max(initial=0)) for place in places), default=0)
    pairs = [place + size * columns for place, columns in zip(places, tensors, strict=True)]
    if not pairs:
        return []
    flat, cuts = np.concatenate([x.ravel() for x in pairs]), np.cumsum([x.size for x in pairs])
    _, inverse, counts = np.unique(flat, return_inverse=True, return_counts=True)
    shares = np.split(1 / counts[inverse], cuts[:-1])
    return [share.reshape(x.shape) for share, x in zip(shares, pairs, strict=True)]


def _core_keys(
    plan: Plan, core: Core, of_blocks: Sequence[Roles]
) -> tuple[list[list[str]], list[list[str]]]:
    """The coarse and the fine key of each entry of a core's matrix, per channel."""
    coarse, fine = [], []
    for matching in core.matchings:
        for feature in core.features:
            source = plan.in_stacks[feature.stack]
            rows: list[tuple[list[str], list[str]]] = [([], []) for _ in range(source.width)]
            for target in core.targets:
                sink = plan.out_stacks[target.stack]
                kept = [(feature.view.kept[j], target.view.kept[i]) for i, j in enumerate(matching)]
                groups = (
                    *kept,
                    *((group, ()) for group in feature.view.summed),
                    *((((), group)) for group in target.view.summed),
                )
                names = [label.name for label in (*source.labels, *sink.labels)]
                pattern = tuple(names.index(name) for name in names)
                row = 0
                for i, in_order, height in source.members:
                    in_roles = tuple(of_blocks[i][axis] for axis in in_order)
                    for part in range(height):
                        for j, out_order, width in sink.members:
                            out_roles = tuple(of_blocks[j][axis] for axis in out_order)
                            for other in range(width):
                                itself = i == j and part == other
                                keys = _keys(in_roles, out_roles, pattern, groups, itself)
                                rows[row][0].append(keys[0])
                                rows[row][1].append(keys[1])
                        row += 1
            coarse += [row[0] for row in rows]
            fine += [row[1] for row in rows]
    return coarse, fine


@lru_cache(maxsize=2**16)
def _keys(
    source: Roles, target: Roles, pattern: tuple[int, ...], groups: Groups, itself: bool
) -> tuple[str, str]:
    """The coarse and the fine key of a term.

    Args:
        source: the roles of the source's axes.
        target: the roles of the target's axes.
        pattern: for each axis, source first, the first axis that carries the same permutation.
        groups: the partition.
        itself: whether source and target are one tensor.
    """
    names = pattern[: len(source)], pattern[len(source) :]
    relation = "itself" if itself else "neighbor" if set(names[0]) & set(names[1]) else "stranger"
    kept = [
        f"{'+'.join(sorted(source[i] for i in a))}>{'+'.join(sorted(target[i] for i in b))}"
        for a, b in groups
        if a and b
    ]
    coarse = f"keeps {' '.join(sorted(kept)) or 'nothing'}; {relation}; rank {len(target)}"
    if itself and all(a == b and len(a) == 1 for a, b in groups):
        coarse = IDENTITY
    orders = [_orders(source), _orders(target)]
    pairs = [(x, x) for x in orders[0]] if itself else list(product(*orders))
    return coarse, min(_written(source, target, names, groups, pair) for pair in pairs) + (
        "; itself" if itself else ""
    )


def _orders(roles: Roles) -> list[tuple[int, ...]]:
    """Every order of a tensor's axes in which their roles are sorted."""
    return [
        order
        for order in permutations(range(len(roles)))
        if all(roles[a] <= roles[b] for a, b in pairwise(order))
    ]


def _written(source: Roles, target: Roles, names: tuple, groups: Groups, orders: tuple) -> str:
    """A fine key, with axes in the given orders: a role, a letter, and a number for each axis."""
    letters: dict[int, str] = {}
    numbers: dict[int, int] = {}
    sides = []
    for side, (roles, of_side, order) in enumerate(
        zip((source, target), names, orders, strict=True)
    ):
        axes = []
        for axis in order:
            letter = letters.setdefault(of_side[axis], ascii_lowercase[len(letters) % 26])
            group = next(i for i, group in enumerate(groups) if axis in group[side])
            axes.append(f"{roles[axis]}.{letter}{numbers.setdefault(group, 1 + len(numbers))}")
        sides.append(" ".join(axes))
    return f"{sides[0]} -> {sides[1]}"
