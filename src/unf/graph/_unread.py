"""Parts of parameters that no operation reads, such as positions beyond the longest sequence.

Reading starts where a parameter is combined with something. Until then operations only take
views of it: they cut, move, or convert its entries, and what is cut off stays unread.
"""

from collections.abc import Iterator, Sequence

from ._expressions import Cat, Variable, resolve, variables
from ._values import Value

VIEWS = {
    "broadcast_in_dim", "convert_element_type", "copy", "dynamic_slice", "reshape", "slice",
    "split", "squeeze", "stop_gradient", "transpose", "unstack",
}  # fmt: skip


def note_reading(primitive: str, operands: Sequence[Value], results: Sequence[Value]) -> None:
    """Record which operands an operation reads, and which results are views of its first."""
    is_view = primitive in VIEWS and operands[0].is_view
    for x in operands[1:] if is_view else operands:
        x.is_read = True
    for x in results:
        x.is_view = is_view


def find_unread(parameters: Sequence[Value], values: Sequence[Value]) -> set[Variable]:
    """The variables of parameters that are in no value that is read."""
    unread = {v for x in parameters for expr in x.exprs for v in variables(expr)}
    for x in [*parameters, *values]:
        if x.is_read or not x.is_view:
            for expr in x.exprs:
                unread.difference_update(variables(expr))
    return unread


def unread_parts(value: Value, unread: set[Variable]) -> Iterator[tuple[int, int, int]]:
    """The unread parts of a parameter's axes: dimension, start, stop."""
    for dimension, expr in enumerate(map(resolve, value.exprs)):
        start = 0
        for part in expr.parts if isinstance(expr, Cat) else ():
            inside = set(variables(part))
            if inside and inside <= unread:
                yield dimension, start, start + part.size
            start += part.size
