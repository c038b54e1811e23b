"""Why each axis of each parameter permutes with others or is fixed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..spec._grammar import AxisSpec, format_axes, names_in
from ._expressions import Cat, Expr, Family, Prod, Variable, children
from ._unread import unread_parts
from ._values import Value

MOST_REASONS = 3
Incoming = dict[Variable, list[tuple[str, str]]]


@dataclass(frozen=True)
class Notes:
    """What `infer` learned about a space beyond the space itself.

    Attributes:
        axes: for each leaf's path, lines that explain its axes.
        unused: the leaves that no output depends on, and the parts of others that nothing
            reads: `path`, or `path[:, 7:20]`.
        left_out: arrays of the network that are no leaves, such as counters, and why.
    """

    axes: Mapping[str, tuple[str, ...]]
    unused: tuple[str, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)

    def explain(self, path: str) -> list[str]:
        """The lines that explain one leaf."""
        lines = list(self.axes[path])
        for part in self.unused:
            if part == path:
                lines.append("unused: no output depends on it")
            elif part.startswith(f"{path}["):
                lines.append(f"unused: nothing reads {part}")
        return lines


def make_notes(
    paths: Sequence[str],
    parameters: Sequence[Value],
    written: Sequence[Sequence[AxisSpec]],
    used: int,
    unread: set[Variable],
) -> Notes:
    """Notes on every leaf: what tied, split or fixed each axis, with source lines.

    `written` are the leaves' axes in the specification, `used` is a bit mask of the
    parameters that outputs depend on, `unread` are the variables that nothing reads.
    """
    incoming: Incoming = {}
    for value in parameters:
        for expr in value.exprs:
            for node in _history(expr):
                if isinstance(node.link, Variable) and node.origin:
                    incoming.setdefault(node.link, []).append((node.origin, str(node.reason)))
    axes = {}
    for path, value, row in zip(paths, parameters, written, strict=True):
        lines = []
        for i, (expr, axis) in enumerate(zip(value.exprs, row, strict=True)):
            lines.append(f"axis {i}, {format_axes((axis,))}, {expr.size} long")
            lines.extend(f"  {reason}" for reason in dict.fromkeys(_reasons(expr, axis, incoming)))
        axes[path] = tuple(lines)
    unused = []
    for i, (path, value) in enumerate(zip(paths, parameters, strict=True)):
        if not used >> i & 1:
            unused.append(path)
            continue
        for dimension, start, stop in unread_parts(value, unread):
            unused.append(f"{path}[{':, ' * dimension}{start}:{stop}]")
    return Notes(axes, tuple(unused))


def _history(expr: Expr) -> Iterator[Variable]:
    """The variables that an expression was, one after the other, and those of its parts."""
    while isinstance(expr, Variable):
        yield expr
        if expr.link is None:
            return
        expr = expr.link
    for child in children(expr):
        yield from _history(child)


def _reasons(expr: Expr, axis: AxisSpec, incoming: Incoming) -> Iterator[str]:
    own = expr.origin if isinstance(expr, Variable) else ""
    count = 0
    for node in _history(expr):
        if isinstance(node.link, Prod):
            yield f"a product: {node.reason}"
        elif isinstance(node.link, Cat):
            yield f"a concatenation: {node.reason}"
        elif isinstance(node.link, Family):
            yield f"one for each layer: {node.reason}"
        elif isinstance(node.link, Variable) and count < MOST_REASONS:
            count += 1
            other = node.link.origin
            yield f"permutes with {other}: {node.reason}" if other else f"tied: {node.reason}"
        elif node.link is None and node.fixed is not None:
            yield f"fixed: {node.fixed}"
        if node.link is None:
            for origin, reason in incoming.get(node, []):
                if count < MOST_REASONS and origin != own:
                    count += 1
                    yield f"permutes with {origin}: {reason}"
    if count == 0 and not any(node.fixed or node.link for node in _history(expr)):
        yield "nothing ties it to another axis"
    for name in names_in(axis):
        parent = name.path.rpartition(".")[0]
        if parent:
            yield f"{name.path} is nested: wherever it occurs, {parent} occurs exactly once"
