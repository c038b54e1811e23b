"""What a layer costs, known from its plan alone: no array is made."""

from collections import Counter
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from math import prod

import numpy as np

from .._drawing import card, table
from ..spec import WeightSpace
from ._plan import Core, Plan, make_plan, views_used
from ._spread import spread_axes, spread_blocks, spread_stacks
from ._views import View


@dataclass(frozen=True)
class Cost:
    """The cost of one part of a layer's forward pass, to each device."""

    part: str
    terms: int = 0
    parameters: int = 0
    flops: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    bytes_exchanged: int = 0


@dataclass(frozen=True)
class CostReport:
    """What a layer costs each device: a row for reducing, for each core and for embedding.

    Attributes:
        rows: the parts.
        devices: over how many devices leaves are spread.
        bytes_in: what a device holds of the input.
        bytes_out: what a device holds of the output.
        bytes_coefficients: the coefficients, which every device holds.
    """

    rows: tuple[Cost, ...]
    devices: int
    bytes_in: int
    bytes_out: int
    bytes_coefficients: int

    @property
    def total(self) -> Cost:
        """The sum of all rows."""
        fields = [field.name for field in dataclass_fields(Cost) if field.name != "part"]
        sums = {field: sum(getattr(row, field) for row in self.rows) for field in fields}
        return Cost("total", **sums)

    def __str__(self) -> str:
        return "\n".join(filter(None, [_table(self._lines()), self._note()]))

    def _repr_html_(self) -> str:
        """What notebooks show."""
        header, *body = self._lines()
        return card(table(header, body), self._note())

    def _lines(self) -> list[tuple[str, ...]]:
        """A heading, and the cells of each row."""
        header = ("part", "terms", "parameters", "FLOPs", "read", "written", "exchanged")
        body = [
            (
                row.part,
                f"{row.terms:,}",
                f"{row.parameters:,}",
                _scaled(row.flops, 1000, ""),
                _scaled(row.bytes_read, 1024, "B"),
                _scaled(row.bytes_written, 1024, "B"),
                _scaled(row.bytes_exchanged, 1024, "B"),
            )
            for row in (*self.rows, self.total)
        ]
        lines = [header, *body]
        return [line[:-1] for line in lines] if self.devices == 1 else lines

    def _note(self) -> str:
        if self.devices == 1:
            return ""
        held = [
            f"{_scaled(getattr(self, f'bytes_{part}'), 1024, 'B')} {label}"
            for part, label in (("in", "in"), ("out", "out"), ("coefficients", "coefficients"))
        ]
        return f"on each of {self.devices} devices, which holds {', '.join(held)}"


def _table(lines: list[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


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
    devices: int = 1,
) -> CostReport:
    """Terms, parameters, FLOPs and bytes of a layer's forward pass, per core.

    Bytes count each array an operation reads or writes once, coefficients included; a compiler
    that fuses operations moves fewer. On several devices, FLOPs and bytes are those of one of
    them, with leaves cut as `spread_axes` says, and bytes exchanged are those of the arrays that
    collectives make there: means over an axis that is cut, results that every device needs,
    and parts of blocks that have to be cut otherwise.

    Args:
        space: the input's weight space, or a plan.
        in_channels: channels of the input.
        out_channels: channels of the output.
        out_space: the output's weight space, by default the input's.
        minimal: as in `make_plan`.
        batch: how many inputs are processed together.
        itemsize: bytes of a number.
        devices: how many devices leaves are spread over.

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
    >>> print(cost_report(matrix, 16, 16, devices=8))
    part    terms  parameters   FLOPs     read  written  exchanged
    reduce      0           0   8.7 k    34 kB  2.56 kB       2 kB
    ()          1         256     512  1.06 kB     64 B        0 B
    a           1         256   4.1 k   1.5 kB    512 B        0 B
    b           1         256  16.4 k     3 kB     2 kB        0 B
    a,b         1         256   131 k    17 kB    16 kB        0 B
    embed       0           0   8.7 k  2.56 kB    34 kB        0 B
    total       4       1,024   169 k  59.1 kB  55.1 kB       2 kB
    on each of 8 devices, which holds 16 kB in, 16 kB out, 4 kB coefficients
    """
    plan = space if isinstance(space, Plan) else make_plan(space, out_space, minimal=minimal)
    ends = {
        "in": _Side(plan, "in", in_channels, batch, devices),
        "out": _Side(plan, "out", out_channels, batch, devices),
    }
    cores = [_core(plan, core, ends["in"], ends["out"], itemsize) for core in plan.cores]
    matrices = sum(
        _rows(plan, c, in_channels) * _columns(plan, c, out_channels) for c in plan.cores
    )
    return CostReport(
        (_moves("reduce", ends["in"], itemsize), *cores, _moves("embed", ends["out"], itemsize)),
        devices=devices,
        bytes_in=itemsize * ends["in"].held,
        bytes_out=itemsize * ends["out"].held,
        bytes_coefficients=itemsize * matrices,
    )


def core_parameters(plan: Plan, core: Core, in_channels: int, out_channels: int) -> int:
    """The number of coefficients of a core that are terms."""
    sources = np.array([plan.in_stacks[f.stack].width for f in core.features])
    sinks = np.array([plan.out_stacks[t.stack].width for t in core.targets])
    pairs = plan.matchings_allowed(core) * np.outer(sources, sinks)
    return int(pairs.sum()) * in_channels * out_channels


def _rows(plan: Plan, core: Core, in_channels: int) -> int:
    width = sum(plan.in_stacks[f.stack].width for f in core.features)
    return len(core.matchings) * in_channels * width


def _columns(plan: Plan, core: Core, out_channels: int) -> int:
    return out_channels * sum(plan.out_stacks[t.stack].width for t in core.targets)


class _Side:
    """The input or the output of a plan, and what of it one device has, in numbers.

    Attributes:
        cuts: for each stack, the axis along which it is cut, or None.
    """

    def __init__(self, plan: Plan, side: str, channels: int, batch: int, devices: int):
        self.space = plan.in_space if side == "in" else plan.out_space
        self.stacks = plan.in_stacks if side == "in" else plan.out_stacks
        self.views = views_used(plan, side)
        self.channels, self.batch, self.devices = channels, batch, devices
        self.cuts = spread_stacks(self.space, self.stacks, devices)

    def place(self, stack: int, view: View) -> int | None:
        """The axis of a view's array along which it is cut; None if every device has it whole."""
        cut = self.cuts[stack]
        found = [i for i, group in enumerate(view.kept) if cut in group]
        return found[0] if found else None

    def whole(self, stack: int, view: View) -> int:
        """The size of a view's array."""
        labels, width = self.stacks[stack].labels, self.stacks[stack].width
        entries = prod(labels[group[0]].size for group in view.kept)
        return self.batch * self.channels * width * entries

    def part(self, stack: int, view: View) -> int:
        """The size of what one device has of a view's array."""
        whole = self.whole(stack, view)
        return whole if self.place(stack, view) is None else whole // self.devices

    @property
    def held(self) -> int:
        """The size of what one device has of the leaves."""
        axes = spread_axes(self.space, self.devices)
        return (self.batch * self.channels) * sum(
            prod(leaf.shape) // (1 if axis is None else self.devices)
            for leaf, axis in zip(self.space.leaves, axes, strict=True)
        )

    @property
    def moved(self) -> int:
        """The size of what one device has of blocks that are cut otherwise than their stack."""
        blocks, total = spread_blocks(self.space, self.devices), 0
        for stack, cut in zip(self.stacks, self.cuts, strict=True):
            entries = self.batch * self.channels * prod(label.size for label in stack.labels)
            for block, order, width in zip(stack.blocks, stack.orders, stack.widths, strict=True):
                found = blocks[block]
                if found is not None and (found.moved or order.index(found.label) != cut):
                    total += width * entries // self.devices
        return total


def _core(plan: Plan, core: Core, source: _Side, target: _Side, itemsize: int) -> Cost:
    rows = _rows(plan, core, source.channels)
    columns = _columns(plan, core, target.channels)
    places = [source.place(f.stack, f.view) for f in core.features]
    votes: Counter[int] = Counter()
    for feature, place in zip(core.features, places, strict=True):
        if place is not None:
            votes[place] += plan.in_stacks[feature.stack].width
    cut = max(votes, key=lambda p: (votes[p], -p)) if votes else None
    entries = source.batch * core.size // (1 if cut is None else source.devices)
    exchanged = 0
    if cut is not None:
        turned = sum(matching[cut] != cut for matching in core.matchings)
        exchanged += turned * entries * rows // len(core.matchings)
        for feature, place in zip(core.features, places, strict=True):
            if place not in (None, cut):
                exchanged += source.part(feature.stack, feature.view)
        for port in core.targets:
            if target.place(port.stack, port.view) != cut:
                exchanged += target.part(port.stack, port.view)
    return Cost(
        core.name,
        terms=int(plan.term_counts(core).sum()),
        parameters=core_parameters(plan, core, source.channels, target.channels),
        flops=2 * entries * rows * columns,
        bytes_read=itemsize * (entries * rows + rows * columns),
        bytes_written=itemsize * len(core.matchings) * entries * columns,
        bytes_exchanged=itemsize * exchanged,
    )


def _moves(part: str, side: _Side, itemsize: int) -> Cost:
    """Reductions read finer arrays and write coarser ones; embeddings do the reverse."""
    fine = coarse = operations = 0
    exchanged = side.moved
    for index, views in side.views.items():
        for view, step in side.stacks[index].steps(views):
            fine += side.part(index, step.source)
            coarse += side.part(index, view)
            operations += side.part(index, step.source if step.mean else view)
            if part == "reduce" and step.mean and side.cuts[index] in step.mean:
                exchanged += side.part(index, view)
    read, written = (fine, coarse) if part == "reduce" else (coarse, fine)
    return Cost(
        part,
        flops=operations,
        bytes_read=itemsize * read,
        bytes_written=itemsize * written,
        bytes_exchanged=itemsize * exchanged,
    )
