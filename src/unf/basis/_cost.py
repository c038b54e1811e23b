"""What a layer costs, known from its plan alone: no array is made."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import prod

import numpy as np

from .._html import repr_html
from ..spec import WeightSpace
from ._plan import Core, Plan, make_plan, views_used
from ._sharding import most_voted, shard_axes, shard_blocks, shard_stacks
from ._views import View

MAX_FIXED = 16
"""The longest fixed axes that models keep fixed by default."""


@dataclass(frozen=True)
class Cost:
    """What one part of a layer's forward pass costs each device."""

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
        devices: the number of devices that leaves are sharded across.
        bytes_in: what a device holds of the input.
        bytes_out: what a device holds of the output.
        bytes_coefficients: the coefficients, which every device holds.
        long_fixed: the sizes of fixed axes that models would permute instead.
        without_them: the parameters of the layer if they were permuted.
    """

    rows: tuple[Cost, ...]
    devices: int
    bytes_in: int
    bytes_out: int
    bytes_coefficients: int
    long_fixed: Mapping[str, int] = field(default_factory=dict)
    without_them: int = 0

    @property
    def total(self) -> Cost:
        """The sum of all rows."""
        names = [each.name for each in fields(Cost) if each.name != "part"]
        return Cost("total", **{n: sum(getattr(row, n) for row in self.rows) for n in names})

    def cells(self) -> list[tuple[str, ...]]:
        """The report as a table of strings: a header, a row for each part, and the total."""
        header = ("part", "terms", "parameters", "FLOPs", "read", "written", "exchanged")
        lines: list[tuple[str, ...]] = [header]
        for row in (*self.rows, self.total):
            moved = (row.bytes_read, row.bytes_written, row.bytes_exchanged)
            counts = (f"{row.terms:,}", f"{row.parameters:,}", _scaled(row.flops, 1000, ""))
            lines.append((row.part, *counts, *(_scaled(x, 1024, "B") for x in moved)))
        return [line[:-1] for line in lines] if self.devices == 1 else lines

    def note(self) -> str:
        """What each of several devices holds, and what long fixed axes cost; empty if neither."""
        lines = []
        if self.devices > 1:
            held = (self.bytes_in, self.bytes_out, self.bytes_coefficients)
            names = ("in", "out", "coefficients")
            parts = [f"{_scaled(x, 1024, 'B')} {n}" for x, n in zip(held, names, strict=True)]
            lines.append(f"on each of {self.devices} devices, which holds {', '.join(parts)}")
        if self.long_fixed:
            sizes = ", ".join(f"{name}={size}" for name, size in self.long_fixed.items())
            lines.append(
                f"with {sizes} permuted, as models do above max_fixed={MAX_FIXED}: "
                f"{self.without_them:,} parameters"
            )
        return "\n".join(lines)

    def __str__(self) -> str:
        lines = self.cells()
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        rows = []
        for first, *numbers in lines:
            right = [cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=True)]
            rows.append("  ".join([first.ljust(widths[0]), *right]))
        return "\n".join(filter(None, [*rows, self.note()]))

    _repr_html_ = repr_html


def _scaled(value: int | float, base: int, unit: str) -> str:
    prefixes = iter(("", "k", "M", "G", "T", "P"))
    prefix = next(prefixes)
    while value >= base and prefix != "P":
        value, prefix = value / base, next(prefixes)
    return f"{value:.3g} {prefix}{unit}".rstrip()


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
    that fuses operations moves fewer. With several devices, FLOPs and bytes are those of one of
    them, with leaves sharded as `unf.nn` does, and bytes exchanged are those of the arrays that
    collectives make there: means over a sharded axis, results that every device needs, and
    blocks that are resharded.

    Args:
        space: the input's weight space, or a plan.
        in_channels: channels of the input.
        out_channels: channels of the output.
        out_space: the output's weight space, by default the input's.
        minimal: as in `make_plan`.
        batch: the number of inputs processed together.
        itemsize: bytes per number.
        devices: the number of devices that leaves are sharded across.

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
    source = _Side(plan, "in", in_channels, batch, devices)
    target = _Side(plan, "out", out_channels, batch, devices)
    cores = [_core_cost(plan, core, source, target, itemsize) for core in plan.cores]
    relaxed = plan.in_space.relax(above=MAX_FIXED)
    long_fixed = {n: size for n, size in relaxed.sizes.items() if n not in plan.in_space.sizes}
    without_them = 0
    if long_fixed and plan.in_space == plan.out_space:
        other = make_plan(relaxed, minimal=minimal)
        channels = (in_channels, out_channels)
        without_them = sum(core_parameters(other, core, *channels) for core in other.cores)
    matrices = sum(prod(plan.matrix_shape(c, in_channels, out_channels)) for c in plan.cores)
    return CostReport(
        (_move_cost("reduce", source, itemsize), *cores, _move_cost("embed", target, itemsize)),
        devices=devices,
        bytes_in=itemsize * source.held,
        bytes_out=itemsize * target.held,
        bytes_coefficients=itemsize * matrices,
        long_fixed=long_fixed if without_them else {},
        without_them=without_them,
    )


def core_parameters(plan: Plan, core: Core, in_channels: int, out_channels: int) -> int:
    """The number of a core's coefficients that belong to terms."""
    pairs = plan.matchings_allowed(core) * np.outer(*plan.widths(core))
    return int(pairs.sum()) * in_channels * out_channels


class _Side:
    """The input or the output of a plan, and how much of it one device holds, in numbers.

    Attributes:
        axes: for each stack, the axis along which it is sharded, or None.
    """

    def __init__(self, plan: Plan, side: str, channels: int, batch: int, devices: int):
        self.space = plan.in_space if side == "in" else plan.out_space
        self.stacks = plan.in_stacks if side == "in" else plan.out_stacks
        self.views = views_used(plan, side)
        self.channels, self.batch, self.devices = channels, batch, devices
        self.axes = shard_stacks(self.space, self.stacks, devices)

    def place(self, stack: int, view: View) -> int | None:
        """The axis along which a view's array is sharded; None if it is replicated."""
        found = [i for i, group in enumerate(view.kept) if self.axes[stack] in group]
        return found[0] if found else None

    def part(self, stack: int, view: View) -> int:
        """The size of one device's shard of a view's array."""
        labels, width = self.stacks[stack].labels, self.stacks[stack].width
        entries = prod(labels[group[0]].size for group in view.kept)
        whole = self.batch * self.channels * width * entries
        return whole if self.place(stack, view) is None else whole // self.devices

    @property
    def held(self) -> int:
        """The size of one device's shards of the leaves."""
        axes = shard_axes(self.space, self.devices)
        return (self.batch * self.channels) * sum(
            prod(leaf.shape) // (1 if axis is None else self.devices)
            for leaf, axis in zip(self.space.leaves, axes, strict=True)
        )

    @property
    def moved(self) -> int:
        """The size of one device's shards of blocks that are resharded for their stack."""
        blocks, total = shard_blocks(self.space, self.devices), 0
        for stack, axis in zip(self.stacks, self.axes, strict=True):
            entries = self.batch * self.channels * prod(label.size for label in stack.labels)
            for block, order, width in stack.members:
                found = blocks[block]
                if found is not None and (found.resharded or order.index(found.label) != axis):
                    total += width * entries // self.devices
        return total


def _core_cost(plan: Plan, core: Core, source: _Side, target: _Side, itemsize: int) -> Cost:
    rows, columns = plan.matrix_shape(core, source.channels, target.channels)
    places = [source.place(f.stack, f.view) for f in core.features]
    votes: Counter[int] = Counter()
    for feature, place in zip(core.features, places, strict=True):
        if place is not None:
            votes[place] += plan.in_stacks[feature.stack].width
    axis = most_voted(votes)
    entries = source.batch * core.size // (1 if axis is None else source.devices)
    exchanged = 0
    if axis is not None:
        turned = sum(matching[axis] != axis for matching in core.matchings)
        exchanged += turned * entries * rows // len(core.matchings)
        for feature, place in zip(core.features, places, strict=True):
            if place not in (None, axis):
                exchanged += source.part(feature.stack, feature.view)
        for port in core.targets:
            if target.place(port.stack, port.view) != axis:
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


def _move_cost(part: str, side: _Side, itemsize: int) -> Cost:
    """Reductions read finer arrays and write coarser ones; embeddings do the reverse."""
    fine = coarse = operations = 0
    exchanged = side.moved
    for index, views in side.views.items():
        for view, step in side.stacks[index].steps(views):
            fine += side.part(index, step.source)
            coarse += side.part(index, view)
            operations += side.part(index, step.source if step.mean else view)
            if part == "reduce" and step.mean and side.axes[index] in step.mean:
                exchanged += side.part(index, view)
    read, written = (fine, coarse) if part == "reduce" else (coarse, fine)
    return Cost(
        part,
        flops=operations,
        bytes_read=itemsize * read,
        bytes_written=itemsize * written,
        bytes_exchanged=itemsize * exchanged,
    )
