"""The terms of a layer, one for each valid partition, to be listed, printed and looked up."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from html import escape
from string import ascii_lowercase

from .._drawing import card
from ..spec import WeightSpace
from ._plan import Core, Plan, Stack, make_plan

Index = tuple[str, int]
Partition = tuple[tuple[Index, ...], ...]


@dataclass(frozen=True, repr=False)
class Term:
    """One basis function E of eq. 25, between one block of the input and one of the output.

    Attributes:
        source: path of the input leaf; `source_block` its block's position in the space.
        target: path of the output leaf; `target_block` likewise.
        partition: groups of indices; ("o", 0) is the output's first permuted axis, ("i", 0)
            the input's.
        core: the name of the core whose matrix holds the coefficients.
        row: the first of its rows in that matrix, per channel.
        column: the first of its columns, per channel.
        rows: how many rows, per channel: the size of the input's fixed axes.
        columns: how many columns, per channel: the size of the output's fixed axes.
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
        """The term as an equation, a letter for each group: `E[a,b] = mean_c X[a,c]`."""
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

    def _repr_html_(self) -> str:
        """What notebooks show."""
        from ._picture import draw_term

        return card(escape(f"{self.target} ← {self.source}"), "<br>", draw_term(self))


def _letter(i: int) -> str:
    return ascii_lowercase[i % 26] + (str(i // 26) if i >= 26 else "")


def terms(
    space: WeightSpace, out_space: WeightSpace | None = None, *, minimal: bool = False
) -> Iterator[Term]:
    """All terms of a layer from `space` to `out_space` (Algorithm 1 for every pair of leaves).

    >>> import jax
    >>> space = WeightSpace.from_spec("a b", jax.ShapeDtypeStruct((8, 32), "float32"))
    >>> for term in sorted(terms(space), key=str):
    ...     print(term.formula)
    E[a,b] = X[a,b]
    E[a,b] = mean_c X[a,c]
    E[a,b] = mean_c X[c,b]
    E[a,b] = mean_c,d X[c,d]
    """
    plan = make_plan(space, out_space, minimal=minimal)
    for core in plan.cores:
        yield from core_terms(plan, core)


def core_terms(plan: Plan, core: Core) -> Iterator[Term]:
    """The terms of one core."""
    row = 0
    for m, matching in enumerate(core.matchings):
        for f, feature in enumerate(core.features):
            in_stack = plan.in_stacks[feature.stack]
            column = 0
            for t, target in enumerate(core.targets):
                out_stack = plan.out_stacks[target.stack]
                if core.allowed is None or core.allowed[m][f][t]:
                    groups = _join(feature.view, target.view, matching)
                    yield from _member_terms(
                        plan, core.name, groups, in_stack, out_stack, row, column
                    )
                column += out_stack.width
            row += in_stack.width


def _join(feature, target, matching) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The partition as pairs of output and input axes, in the stacks' canonical positions."""
    kept = [(target.kept[i], feature.kept[j]) for i, j in enumerate(matching)]
    return [*kept, *((g, ()) for g in target.summed), *(((), g) for g in feature.summed)]


def _member_terms(
    plan: Plan, core: str, groups, in_stack: Stack, out_stack: Stack, row: int, column: int
) -> Iterator[Term]:
    for source, in_order, rows in zip(
        in_stack.blocks, in_stack.orders, in_stack.widths, strict=True
    ):
        at = column
        for target, out_order, columns in zip(
            out_stack.blocks, out_stack.orders, out_stack.widths, strict=True
        ):
            partition = tuple(
                sorted(
                    tuple(
                        sorted(
                            [("o", out_order[i]) for i in outputs]
                            + [("i", in_order[i]) for i in inputs]
                        )
                    )
                    for outputs, inputs in groups
                )
            )
            in_leaf = plan.in_space.leaves[plan.in_space.blocks[source].leaf]
            out_leaf = plan.out_space.leaves[plan.out_space.blocks[target].leaf]
            yield Term(
                in_leaf.path, out_leaf.path, source, target, partition, core, row, at, rows, columns
            )
            at += columns
        row += rows
