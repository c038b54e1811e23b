"""What a layer costs, known from its plan alone: no array is made."""

from dataclasses import dataclass
from math import prod

import numpy as np

from ..spec import WeightSpace
from ._plan import Core, Plan, make_plan, views_used


@dataclass(frozen=True)
class Cost:
    """The cost of one part of a layer's forward pass."""

    part: str
    terms: int = 0
    parameters: int = 0
    flops: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


@dataclass(frozen=True)
class CostReport:
    """What a layer costs: a row for reducing, for each core and for embedding."""

    rows: tuple[Cost, ...]

    @property
    def total(self) -> Cost:
        """The sum of all rows."""
        fields = ("terms", "parameters", "flops", "bytes_read", "bytes_written")
        sums = {field: sum(getattr(row, field) for row in self.rows) for field in fields}
        return Cost("total", **sums)

    def __str__(self) -> str:
        header = ("part", "terms", "parameters", "FLOPs", "read", "written")
        body = [
            (
                row.part,
                f"{row.terms:,}",
                f"{row.parameters:,}",
                _scaled(row.flops, 1000, ""),
                _scaled(row.bytes_read, 1024, "B"),
                _scaled(row.bytes_written, 1024, "B"),
            )
            for row in (*self.rows, self.total)
        ]
        widths = [max(len(line[i]) for line in (header, *body)) for i in range(len(header))]

        def render(line: tuple[str, ...]) -> str:
            first, *rest = (
                cell.ljust(w) if i == 0 else cell.rjust(w)
                for i, (cell, w) in enumerate(zip(line, widths, strict=True))
            )
            return "  ".join([first, *rest])

        return "\n".join(map(render, (header, *body)))


def _scaled(value: int | float, base: int, unit: str) -> str:
    for prefix in ("", "k", "M", "G", "T", "P"):
        if value < base or prefix == "P":
            return f"{value:.3g} {prefix}{unit}".rstrip()
        value /= base
    raise AssertionError


def cost_report(
    space: WeightSpace | Plan,
    in_channels: int,
    out_channels: int,
    *,
    out_space: WeightSpace | None = None,
    minimal: bool = False,
    batch: int = 1,
    itemsize: int = 4,
) -> CostReport:
    """Terms, parameters, FLOPs and bytes of a layer's forward pass, per core.

    Bytes count each array an operation reads or writes once, coefficients included; a compiler
    that fuses operations moves fewer.

    Args:
        space: the input's weight space, or a plan.
        in_channels: channels of the input.
        out_channels: channels of the output.
        out_space: the output's weight space, by default the input's.
        minimal: as in `make_plan`.
        batch: how many inputs are processed together.
        itemsize: bytes of a number.

    >>> import jax
    >>> matrix = WeightSpace.from_spec("a b", jax.ShapeDtypeStruct((64, 32), "float32"))
    >>> print(cost_report(matrix, 16, 16))
    part    terms  parameters   FLOPs     read  written
    reduce      0           0    66 k   258 kB  6.06 kB
    ()          1         256     512  1.06 kB     64 B
    a           1         256  32.8 k     5 kB     4 kB
    b           1         256  16.4 k     3 kB     2 kB
    a,b         1         256  1.05 M   129 kB   128 kB
    embed       0           0    66 k  6.06 kB   258 kB
    total       4       1,024  1.23 M   402 kB   398 kB
    """
    plan = space if isinstance(space, Plan) else make_plan(space, out_space, minimal=minimal)
    reduce = _moves("reduce", plan, "in", in_channels, batch, itemsize)
    embed = _moves("embed", plan, "out", out_channels, batch, itemsize)
    cores = [_core(plan, core, in_channels, out_channels, batch, itemsize) for core in plan.cores]
    return CostReport((reduce, *cores, embed))


def core_parameters(plan: Plan, core: Core, in_channels: int, out_channels: int) -> int:
    """The number of coefficients of a core that are terms."""
    sources = np.array([plan.in_stacks[f.stack].width for f in core.features])
    sinks = np.array([plan.out_stacks[t.stack].width for t in core.targets])
    pairs = plan.matchings_allowed(core) * np.outer(sources, sinks)
    return int(pairs.sum()) * in_channels * out_channels


def _core(plan: Plan, core: Core, in_channels, out_channels, batch, itemsize) -> Cost:
    rows = in_channels * sum(plan.in_stacks[f.stack].width for f in core.features)
    columns = out_channels * sum(plan.out_stacks[t.stack].width for t in core.targets)
    matchings, entries = len(core.matchings), batch * core.size
    return Cost(
        core.name,
        terms=int(plan.term_counts(core).sum()),
        parameters=core_parameters(plan, core, in_channels, out_channels),
        flops=2 * entries * matchings * rows * columns,
        bytes_read=itemsize * (matchings * entries * rows + matchings * rows * columns),
        bytes_written=itemsize * matchings * entries * columns,
    )


def _moves(part: str, plan: Plan, side: str, channels: int, batch: int, itemsize: int) -> Cost:
    """Reductions read finer arrays and write coarser ones; embeddings do the reverse."""
    stacks = plan.in_stacks if side == "in" else plan.out_stacks
    fine = coarse = operations = 0
    for index, views in views_used(plan, side).items():
        stack = stacks[index]
        per_entry = stack.width * channels * batch

        def entries(view, stack=stack) -> int:
            return prod(stack.labels[group[0]].size for group in view.kept)

        for view, step in stack.steps(views):
            fine += per_entry * entries(step.source)
            coarse += per_entry * entries(view)
            operations += per_entry * entries(step.source if step.mean else view)
    read, written = (fine, coarse) if side == "in" else (coarse, fine)
    return Cost(
        part, flops=operations, bytes_read=itemsize * read, bytes_written=itemsize * written
    )
