"""What each operation says about roles: how they pass back, and where weights meet activations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from ..rules.arithmetic import SEVERAL, UNARY
from ..rules.shape import REDUCTIONS
from ._values import (
    Activation,
    Factors,
    Meetings,
    Operand,
    Roles,
    Shape,
    Weights,
    dominant,
    entrywise_role,
    inserted,
    regrouped,
    resized,
    uniform,
)

Passed = list[tuple[Weights, Roles]]
Rule = Callable[..., Sequence[Operand] | None]
"""A rule takes the `Meetings`, an equation and its operands; None means that nothing is known."""
SCALING = ("mul", "div", "pow")
IN_ORDER = ("cummax", "cummin", "cumlogsumexp", "cumprod", "cumsum", "rev", "sort")
UPDATES = ("dynamic_update_slice", "scatter", "scatter-add", "scatter-mul", "scatter-sub")


def out_shapes(eqn: Any) -> list[Shape]:
    """The shapes of an equation's results."""
    return [tuple(var.aval.shape) for var in eqn.outvars]


def any_activation(operands: Sequence[Operand]) -> bool:
    """Whether some operand depends on an input."""
    return any(isinstance(x, Activation) for x in operands)


def _through(x: Weights, shape: Shape, back: Callable[[Roles], Roles]) -> Weights:
    """A function of one array."""
    return Weights(shape, lambda roles: [(x, back(roles))], x.copies)


# --- one array ------------------------------------------------------------------------------


def _moving(pull: Callable[[Any, Roles, Shape], Roles]) -> Rule:
    """The rule of an operation on one array, given how roles of its result pass back."""

    def rule(meetings: Meetings, eqn: Any, x: Operand, *_: Operand) -> list[Operand] | None:
        if not isinstance(x, Weights):
            return None
        (shape,) = out_shapes(eqn)
        return [_through(x, shape, lambda roles: pull(eqn.params, roles, x.shape))]

    return rule


def _transpose(params: Any, roles: Roles, shape: Shape) -> Roles:
    order = list(params["permutation"])
    return tuple(roles[order.index(i)] for i in range(len(shape)))


def _reshape(params: Any, roles: Roles, shape: Shape) -> Roles:
    is_plain = params.get("dimensions") is None
    return regrouped(roles, shape) if is_plain else uniform(shape, None)


def _elementwise(meetings: Meetings, eqn: Any, *operands: Operand) -> list[Operand] | None:
    """A function of each entry, of several arrays side by side."""
    shapes = [tuple(var.aval.shape) for var in eqn.invars]
    if shapes != out_shapes(eqn):
        return None
    return [
        _through(x, x.shape, lambda roles: roles) if isinstance(x, Weights) else x and replace(x)
        for x in operands
    ]


def _broadcast(meetings: Meetings, eqn: Any, x: Operand, *_: Operand) -> list[Operand] | None:
    if not isinstance(x, Weights):
        return None
    (shape,) = out_shapes(eqn)
    places = [int(i) for i in eqn.params["broadcast_dimensions"]]
    kept = {place for place, n in zip(places, x.shape, strict=True) if shape[place] == n}
    new = [n for i, n in enumerate(shape) if i not in kept]
    result = _through(x, shape, lambda roles: resized(tuple(roles[i] for i in places), x.shape))
    result.copies = max(1, x.copies) * prod(new) if new else x.copies
    return [result]


# --- parts and lookups ----------------------------------------------------------------------


def _part(meetings: Meetings, x: Weights, shape: Shape) -> Weights:
    """A slice; if it has one index along an axis that is then dropped, each index has a meeting."""

    def back(roles: Roles) -> Roles:
        found = list(resized(roles, x.shape))
        for i, (have, size) in enumerate(zip(shape, x.shape, strict=True)):
            if have == 1 < size and dominant(roles[i]) is None:
                found[i] = ((size, meetings.role_of_part(x, i)),)
        return tuple(found)

    return _through(x, shape, back)


def _taken(meetings: Meetings, x: Weights, axes: Sequence[int]) -> Weights:
    """One index along some axes, which are dropped."""
    part = _part(meetings, x, tuple(1 if i in axes else n for i, n in enumerate(x.shape)))
    shape = tuple(n for i, n in enumerate(x.shape) if i not in axes)
    return _through(part, shape, lambda roles: inserted(roles, part.shape, axes))


def _slice(meetings: Meetings, eqn: Any, x: Activation | Weights) -> list[Operand] | None:
    shapes = out_shapes(eqn)
    if isinstance(x, Weights):
        return [_part(meetings, x, shape) for shape in shapes]
    if eqn.primitive.name == "split":
        return None
    start, stop = tuple(eqn.params["start_indices"]), tuple(eqn.params["limit_indices"])
    views = {i: n for i, n in x.views.items() if shapes[0][i] == eqn.invars[0].aval.shape[i]}
    return [Activation(x, start, stop, views)]


def _unstack(meetings: Meetings, eqn: Any, x: Operand) -> list[Operand] | None:
    if not isinstance(x, Weights):
        return None
    axis = eqn.params["axis"] % len(x.shape)
    return [_taken(meetings, x, (axis,)) for _ in eqn.outvars]


def _dynamic_slice(
    meetings: Meetings, eqn: Any, x: Operand, *starts: Operand
) -> list[Operand] | None:
    if not isinstance(x, Weights):
        return None
    (shape,) = out_shapes(eqn)
    if not any_activation(starts):
        return [_part(meetings, x, shape)]
    kinds = ["out" if have == size else "index" for have, size in zip(shape, x.shape, strict=True)]
    meetings.meet(x, tuple(((n, kind),) for n, kind in zip(x.shape, kinds, strict=True)))
    return [Activation()]


def _gather(meetings: Meetings, eqn: Any, x: Operand, indices: Operand) -> list[Operand] | None:
    """Rows of a table; a single one at a known position is a part, like that of a slice."""
    if not isinstance(x, Weights):
        return None
    numbers, sizes, (shape,) = (
        eqn.params["dimension_numbers"], eqn.params["slice_sizes"], out_shapes(eqn),
    )  # fmt: skip
    collapsed, batch = numbers.collapsed_slice_dims, numbers.operand_batching_dims
    cut = [i for i, n in enumerate(x.shape) if sizes[i] < n and i not in batch]
    kinds = dict.fromkeys((*collapsed, *cut), "index") | dict.fromkeys(batch, "each")
    lookup: Roles = tuple(((n, kinds.get(i, "out")),) for i, n in enumerate(x.shape))
    if isinstance(indices, Activation):
        meetings.meet(x, lookup)
        return [Activation()]
    if {*cut} <= {*collapsed} and len(shape) == len(numbers.offset_dims):
        return [_taken(meetings, x, collapsed)]

    def back(roles: Roles) -> Roles:
        kept = [i for i in range(len(sizes)) if i not in (*collapsed, *batch)]
        offsets = dict(zip(kept, [roles[i] for i in numbers.offset_dims], strict=True))
        if entrywise_role(roles):
            return lookup
        return tuple(each if i in kinds else offsets[i] for i, each in enumerate(lookup))

    return [_through(x, shape, back)]


# --- several arrays -------------------------------------------------------------------------


def _combine(meetings: Meetings, eqn: Any, *operands: Operand) -> list[Operand] | None:
    """Entry by entry. Without activations, what is broadcast scales or shifts what is not."""
    name, (shape,) = eqn.primitive.name, out_shapes(eqn)
    shapes = [tuple(var.aval.shape) for var in eqn.invars]
    if name in ("select_n", "select_if_vmap"):  # what decides between the cases is none of them
        operands, shapes = operands[1:], shapes[1:]
    role = "scale" if name in SCALING else "shift"
    if any_activation(operands):
        meetings.entrywise(operands, role)
        return [Activation()]
    weights = [x for x in operands if isinstance(x, Weights)]
    whole = [x for x in weights if x.shape == shape and x.copies < 2]
    rest = [x for x in weights if x not in whole]
    constants = [given for x, given in zip(operands, shapes, strict=True) if x is None]
    is_outer = not whole and shape not in constants and not any(x.shape == () for x in rest)

    def back(roles: Roles) -> Passed:
        if is_outer:
            return [(x, resized(roles, x.shape)) for x in rest]
        return [*((x, roles) for x in whole), *((x, uniform(x.shape, role)) for x in rest)]

    copies = [x.copies if x.shape == shape else max(2, x.copies) for x in weights]
    return [Weights(shape, back, min(copies))] if weights else None


def _concatenate(meetings: Meetings, eqn: Any, *operands: Operand) -> list[Operand]:
    axis, (shape,) = eqn.params["dimension"], out_shapes(eqn)
    if any_activation(operands):
        meetings.entrywise(operands)
        first, *others = (x for x in operands if isinstance(x, Activation))
        shifted = [x for x in others if first.is_shifted(x) and x.start[axis] == first.start[axis]]
        count = len(shifted) + 1
        return [Activation(views={axis: count} if 1 < count == len(operands) else {})]
    weights = [x for x in operands if isinstance(x, Weights)]

    def back(roles: Roles) -> Passed:
        return [(x, resized(roles, x.shape)) for x in weights]

    return [Weights(shape, back, min(x.copies for x in weights))]


def _stack(meetings: Meetings, eqn: Any, *operands: Operand) -> list[Operand] | None:
    if any_activation(operands):
        meetings.entrywise(operands)
        return None
    (shape,) = out_shapes(eqn)
    axis, weights = eqn.params["axis"] % len(shape), [x for x in operands if isinstance(x, Weights)]
    return [Weights(shape, lambda roles: [(x, roles[:axis] + roles[axis + 1 :]) for x in weights])]


def _update(meetings: Meetings, eqn: Any, x: Operand, *others: Operand) -> list[Operand] | None:
    """Of functions of weights, only the array that is updated is followed."""
    if any_activation((x, *others)):
        meetings.entrywise((x, *others))
        return None
    return [_through(x, x.shape, lambda roles: roles)] if isinstance(x, Weights) else None


# --- products -------------------------------------------------------------------------------

Side = tuple[Sequence[int], Sequence[int]]
"""The axes of an operand that a product sums over, and its batch axes."""


def _dot_general(meetings: Meetings, eqn: Any, x: Operand, y: Operand) -> list[Operand]:
    """Σ_k x_bik y_bkj: `each` for b, `in` for k, and `out` for j, if x is an activation."""
    (x_sum, y_sum), (x_batch, y_batch) = eqn.params["dimension_numbers"]
    of_x, of_y = (x_sum, x_batch), (y_sum, y_batch)
    if isinstance(x, Weights) and isinstance(y, Weights) and bool(x.copies) != bool(y.copies):
        # Only activations have axes, such as a batch, that no parameter has.
        meetings.entrywise([x if x.copies else y])
        x, y = (Activation(), y) if x.copies else (x, Activation())
    if not any_activation((x, y)):
        return [_composed(eqn, x, y, of_x, of_y)]
    for own, other, side, its in ((x, y, of_x, of_y), (y, x, of_y, of_x)):
        if isinstance(own, Weights) and isinstance(other, Activation):
            views = {i: other.views.get(j, 1) for i, j in zip(side[0], its[0], strict=True)}
            meetings.meet(own, _map_roles(own.shape, side, views), other)
    return [Activation()]


def _ragged_dot(
    meetings: Meetings, eqn: Any, x: Operand, y: Operand, _: Operand
) -> list[Operand] | None:
    numbers = eqn.params["ragged_dot_dimension_numbers"]
    (_, y_sum), (_, y_batch) = numbers.dot_dimension_numbers
    if isinstance(x, Activation) and isinstance(y, Weights):
        groups = (*y_batch, *numbers.rhs_group_dimensions)
        meetings.meet(y, _map_roles(y.shape, (y_sum, groups), {}))
    return None


def _map_roles(shape: Shape, side: Side, views: Mapping[int, int]) -> Roles:
    """The roles of weights that map activations; of shifted views, the outer factor is a window."""
    summed, batch = side
    roles = list(uniform(shape, "out"))
    for i in batch:
        roles[i] = ((shape[i], "each"),)
    for i in summed:
        count = views.get(i, 1)
        window = [(count, "window")] if count > 1 else []
        roles[i] = (*window, (shape[i] // count, "in"))
    return tuple(roles)


def _composed(eqn: Any, x: Operand, y: Operand, of_x: Side, of_y: Side) -> Weights:
    """A product of weights: the axes of each that remain have the roles they have in the product.

    If the product meets activations entry by entry, one factor is a map, and the other takes the
    place of its activations: a constant, or a vector among matrices, or else the first factor.
    """
    (shape,), number = out_shapes(eqn), len(of_x[1])
    ranks = [len(var.aval.shape) for var in eqn.invars]
    maps_y = x is not None and (y is None or ranks[0] > ranks[1])
    middle = ranks[0] - len(of_x[0])

    def back(roles: Roles) -> Passed:
        role = entrywise_role(roles)
        batch, of_both = roles[:number], (roles[number:middle], roles[middle:])
        found: Passed = []
        for own, side, free, is_map in zip(
            (x, y), (of_x, of_y), of_both, (maps_y, not maps_y), strict=True
        ):
            if not isinstance(own, Weights) or not roles:
                continue
            if role is None:
                found.append((own, _factor_roles(own.shape, side, batch, free)))
            else:
                as_map = _map_roles(own.shape, side, {})
                found.append((own, as_map if is_map else uniform(own.shape, role)))
        return found

    return Weights(shape, back)


def _factor_roles(shape: Shape, side: Side, batch: Sequence[Factors], free: Roles) -> Roles:
    """An axis that is summed over is `in`, unless the others are inputs."""
    known, rest = {dominant(factors) for factors in free}, iter(free)
    role = "out" if {"in", "window", "index"} & known and "out" not in known else "in"
    of_batch = dict(zip(side[1], batch, strict=True))
    return tuple(
        ((n, role),) if i in side[0] else of_batch[i] if i in of_batch else next(rest)
        for i, n in enumerate(shape)
    )


def _convolution(meetings: Meetings, eqn: Any, x: Operand, kernel: Operand) -> list[Operand] | None:
    numbers = eqn.params["dimension_numbers"]
    sides = ((kernel, numbers.rhs_spec), (x, numbers.lhs_spec))
    if isinstance(kernel, Weights):  # what it slides over is an activation, though it be a weight
        meetings.entrywise([x])
        sides = sides[:1]
    elif not isinstance(kernel, Activation):
        return None
    for own, (out, into, *space) in sides:
        if isinstance(own, Weights):
            kinds = {out: "out", into: "in"} | dict.fromkeys(space, "window")
            meetings.meet(own, tuple(((n, kinds[i]),) for i, n in enumerate(own.shape)))
    return [Activation()]


RULES: dict[str, Rule] = {
    **dict.fromkeys((*UNARY, *IN_ORDER), _elementwise),
    **dict.fromkeys(SEVERAL, _combine),
    **dict.fromkeys(REDUCTIONS, _moving(lambda p, roles, shape: inserted(roles, shape, p["axes"]))),
    **dict.fromkeys(("pad", "tile"), _moving(lambda p, roles, shape: resized(roles, shape))),
    "squeeze": _moving(lambda p, roles, shape: inserted(roles, shape, p["dimensions"])),
    "transpose": _moving(_transpose),
    "reshape": _moving(_reshape),
    "broadcast_in_dim": _broadcast,
    "slice": _slice,
    "split": _slice,
    "unstack": _unstack,
    "dynamic_slice": _dynamic_slice,
    "gather": _gather,
    "concatenate": _concatenate,
    "stack": _stack,
    **dict.fromkeys(UPDATES, _update),
    "dot_general": _dot_general,
    "ragged_dot_general": _ragged_dot,
    "conv_general_dilated": _convolution,
}
