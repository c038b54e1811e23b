"""The terms of a layer, one for each valid partition: listed, printed and located."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from string import ascii_lowercase

from .._html import repr_html
from ..spec import WeightSpace
from ._plan import Core, Plan, Port, make_plan

Index = tuple[str, int]
Partition = tuple[tuple[Index, ...], ...]


@dataclass(frozen=True, repr=False)
class Term:
    """One basis function E of eq. 25, between one block of the input and one of the output.

    Attributes:
        source: the path of the input leaf; `source_block` is its block's position in the space.
        target: the path of the output leaf; `target_block` likewise.
        partition: groups of indices; ("o", 0) is the output's first permuted axis, ("i", 0)
            the input's.
        core: the name of the core whose matrix holds the coefficients.
        row: its first row in that matrix, per channel.
        column: its first column, per channel.
        rows: the number of its rows, per channel: the size of the input's fixed axes.
        columns: the number of its columns, per channel: the size of the output's fixed axes.
    """

    source: str
    target: str
    source_block: int
    target_block: int
    partition: Partition
    core: str
    row: int
    column: int
    rows: int
    columns: int

    @cached_property
    def formula(self) -> str:
        """The term as an equation, with a letter for each group: `E[a,b] = mean_c X[a,c]`."""
        ordered = sorted(self.partition, key=lambda g: sorted(("oi".index(s), p) for s, p in g))
        letter = {index: _letter(i) for i, group in enumerate(ordered) for index in group}
        outputs = [letter[index] for index in sorted(letter) if index[0] == "o"]
        inputs = [letter[index] for index in sorted(letter) if index[0] == "i"]
        averaged = ",".join(dict.fromkeys(a for a in inputs if a not in outputs))
        left = f"E[{','.join(outputs)}]" if outputs else "E"
        right = f"X[{','.join(inputs)}]" if inputs else "X"
        return f"{left} = {f'mean_{averaged} ' if averaged else ''}{right}"

    @cached_property
    def is_identity(self) -> bool:
        """Whether every entry of the output is the input's at the same place."""
        pairs = all({side for side, _ in g} == {"o", "i"} and len(g) == 2 for g in self.partition)
        same = all(len({position for _, position in group}) == 1 for group in self.partition)
        return self.source_block == self.target_block and pairs and same

    def slices(self, in_channels: int, out_channels: int) -> tuple[slice, slice]:
        """Where the term's coefficients are in its core's matrix."""
        return (
            slice(self.row * in_channels, (self.row + self.rows) * in_channels),
            slice(self.column * out_channels, (self.column + self.columns) * out_channels),
        )

    def __repr__(self) -> str:
        return f"{self.target} <- {self.source}: {self.formula}"

    _repr_html_ = repr_html


def _letter(i: int) -> str:
    return ascii_lowercase[i % 26] + (str(i // 26) if i >= 26 else "")


def terms(
    space: WeightSpace | Plan, out_space: WeightSpace | None = None, *, minimal: bool = False
) -> Iterator[Term]:
    """All terms of a layer from `space` to `out_space` (Algorithm 1 for every pair of leaves).

    Args:
        space: the input's weight space, or a plan.
        out_space: the output's weight space, by default the input's.
        minimal: as in `make_plan`.

    >>> import jax
    >>> space = WeightSpace.from_spec("a b", jax.ShapeDtypeStruct((8, 32), "float32"))
    >>> for term in sorted(terms(space), key=str):
    ...     print(term.formula)
    E[a,b] = X[a,b]
    E[a,b] = mean_c X[a,c]
    E[a,b] = mean_c X[c,b]
    E[a,b] = mean_c,d X[c,d]
    """
    plan = space if isinstance(space, Plan) else make_plan(space, out_space, minimal=minimal)
    for core in plan.cores:
        yield from core_terms(plan, core)


def core_terms(plan: Plan, core: Core) -> Iterator[Term]:
    """The terms of one core."""
    row = 0
    for m, matching in enumerate(core.matchings):
        for f, feature in enumerate(core.features):
            column = 0
            for t, target in enumerate(core.targets):
                if core.allowed is None or core.allowed[m][f][t]:
                    yield from _port_terms(plan, core, matching, feature, target, row, column)
                column += plan.out_stacks[target.stack].width
            row += plan.in_stacks[feature.stack].width


def _port_terms(
    plan: Plan, core: Core, matching, feature: Port, target: Port, row: int, column: int
) -> Iterator[Term]:
    """The terms from each block of the feature's stack to each block of the target's."""
    # The partition as pairs of output and input axes, in the stacks' canonical positions.
    groups = [(target.view.kept[i], feature.view.kept[j]) for i, j in enumerate(matching)]
    groups += [(group, ()) for group in target.view.summed]
    groups += [((), group) for group in feature.view.summed]
    for source, in_order, rows in plan.in_stacks[feature.stack].members:
        at = column
        for sink, out_order, columns in plan.out_stacks[target.stack].members:
            partition = sorted(
                tuple(
                    sorted(
                        [("o", out_order[i]) for i in outputs]
                        + [("i", in_order[i]) for i in inputs]
                    )
                )
                for outputs, inputs in groups
            )
            paths = (
                plan.in_space.leaves[plan.in_space.blocks[source].leaf].path,
                plan.out_space.leaves[plan.out_space.blocks[sink].leaf].path,
            )
            place = (core.name, row, at, rows, columns)
            yield Term(*paths, source, sink, tuple(partition), *place)
            at += columns
        row += rows
