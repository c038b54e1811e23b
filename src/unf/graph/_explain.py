"""Why each axis of each parameter is what it is."""

from collections.abc import Iterator, Sequence

from ..spec import Axis as SpecAxis
from ..spec import Notes, format_axes, names_in
from ._terms import Axis, Cat, Family, Prod, Term, children
from ._values import Value

MOST_REASONS = 3


def explain(
    paths: Sequence[str],
    parameters: Sequence[Value],
    written: Sequence[Sequence[SpecAxis]],
    used: int,
) -> Notes:
    """Notes on every leaf: what tied, split or fixed each axis, with source lines.

    Args:
        paths: the leaves' paths.
        parameters: their values, whose terms remember how they came to be.
        written: their axes in the specification.
        used: the parameters that outputs depend on, as bits.
    """
    incoming: dict[Axis, list[tuple[str, str]]] = {}
    for value in parameters:
        for term in value.terms:
            for node in _nodes(term):
                if isinstance(node.link, Axis) and node.origin:
                    incoming.setdefault(node.link, []).append((node.origin, str(node.reason)))
    axes = {}
    for path, value, row in zip(paths, parameters, written, strict=True):
        lines = []
        for i, (term, axis) in enumerate(zip(value.terms, row, strict=True)):
            reasons = list(dict.fromkeys(_reasons(term, axis, incoming)))
            lines.append(f"axis {i}, {format_axes((axis,))}, {term.size} long")
            lines.extend(f"  {reason}" for reason in reasons)
        axes[path] = tuple(lines)
    unused = tuple(path for i, path in enumerate(paths) if not used >> i & 1)
    return Notes(axes, unused)


def _nodes(term: Term) -> Iterator[Axis]:
    """The axes that a term was, one after the other, and those of its parts."""
    while isinstance(term, Axis):
        yield term
        if term.link is None:
            return
        term = term.link
    for child in children(term):
        yield from _nodes(child)


def _reasons(
    term: Term, axis: SpecAxis, incoming: dict[Axis, list[tuple[str, str]]]
) -> Iterator[str]:
    own = term.origin if isinstance(term, Axis) else ""
    told = 0
    for node in _nodes(term):
        if isinstance(node.link, Prod):
            yield f"a product: {node.reason}"
        elif isinstance(node.link, Cat):
            yield f"a concatenation: {node.reason}"
        elif isinstance(node.link, Family):
            yield f"one for each layer: {node.reason}"
        elif isinstance(node.link, Axis) and told < MOST_REASONS:
            told += 1
            other = node.link.origin
            yield f"permutes with {other}: {node.reason}" if other else f"tied: {node.reason}"
        elif node.link is None and node.fixed is not None:
            yield f"fixed: {node.fixed}"
        if node.link is None:
            for origin, reason in incoming.get(node, []):
                if told < MOST_REASONS and origin != own:
                    told += 1
                    yield f"permutes with {origin}: {reason}"
    if told == 0 and not any(node.fixed or node.link for node in _nodes(term)):
        yield "nothing ties it to another axis"
    for name in names_in(axis):
        parent = name.path.rpartition(".")[0]
        if parent:
            yield f"{name.path} is nested: wherever it stands, {parent} stands exactly once"
