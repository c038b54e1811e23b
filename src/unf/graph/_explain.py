"""Why each axis of each parameter permutes with others or is fixed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..spec import Leaf
from ..spec._grammar import format_axes, names_in
from ..spec._roles import LeafRoles
from ._expressions import Cat, Expr, Family, Prod, Variable, children
from ._unread import unread_parts
from ._values import Value

MOST_REASONS = 3
Incoming = dict[Variable, list[tuple[str, str]]]


@dataclass(frozen=True)
class Notes:
    """What `infer` learned about a space beyond the space itself.

    Attributes:
        reasons: for each leaf's path, what tied, split or fixed each of its axes.
        unused: the leaves that no output depends on, and the parts of others that nothing
            reads: `path`, or `path[:, 7:20]`.
        left_out: arrays of the network that are no leaves, such as counters, and why.
    """

    reasons: Mapping[str, tuple[tuple[str, ...], ...]]
    unused: tuple[str, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)

    def explain(self, leaf: Leaf, roles: LeafRoles) -> Iterator[str]:
        """The lines that explain one leaf, with the names and roles that its axes have now."""
        each = zip(leaf.axes, leaf.shape, roles, self.reasons[leaf.path], strict=True)
        for i, (axis, size, role, reasons) in enumerate(each):
            yield f"axis {i}, {format_axes((axis,))}, {size} long, {role}"
            yield from (f"  {reason}" for reason in reasons)
            for name in dict.fromkeys(name.path for name in names_in(axis)):
                if parent := name.rpartition(".")[0]:
                    yield f"  {name} is nested: wherever it occurs, {parent} occurs exactly once"
        for part in self.unused:
            if part == leaf.path:
                yield "unused: no output depends on it"
            elif part.startswith(f"{leaf.path}["):
                yield f"unused: nothing reads {part}"


def make_notes(
    paths: Sequence[str], parameters: Sequence[Value], used: int, unread: set[Variable]
) -> Notes:
    """Notes on every leaf: what tied, split or fixed each axis, with source lines.

    `used` is a bit mask of the parameters that outputs depend on, `unread` are the variables that
    nothing reads.
    """
    incoming: Incoming = {}
    for value in parameters:
        for expr in value.exprs:
            for node in _history(expr):
                if isinstance(node.link, Variable) and node.origin:
                    incoming.setdefault(node.link, []).append((node.origin, str(node.reason)))
    reasons = {
        path: tuple(tuple(dict.fromkeys(_reasons(expr, incoming))) for expr in value.exprs)
        for path, value in zip(paths, parameters, strict=True)
    }
    unused = []
    for i, (path, value) in enumerate(zip(paths, parameters, strict=True)):
        if not used >> i & 1:
            unused.append(path)
            continue
        for dimension, start, stop in unread_parts(value, unread):
            unused.append(f"{path}[{':, ' * dimension}{start}:{stop}]")
    return Notes(reasons, tuple(unused))


def _history(expr: Expr) -> Iterator[Variable]:
    """The variables that an expression was, one after the other, and those of its parts."""
    while isinstance(expr, Variable):
        yield expr
        if expr.link is None:
            return
        expr = expr.link
    for child in children(expr):
        yield from _history(child)


def _reasons(expr: Expr, incoming: Incoming) -> Iterator[str]:
    own = expr.origin if isinstance(expr, Variable) else ""
    count = 0
    for node in _history(expr):
        if isinstance(node.link, Prod):
            yield f"a product: {node.reason}"
        elif isinstance(node.link, Cat):
            yield f"a concatenation: {node.reason}"
        elif isinstance(node.link, Family):
            yield f"one for each index: {node.reason}"
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
