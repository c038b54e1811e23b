"""Activations and functions of weights, the roles of their axes, and how roles pass back."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from ...spec._roles import LeafRoles

Shape = tuple[int, ...]
Factors = tuple[tuple[int, str | None], ...]
"""The roles of one axis: sizes and roles of its factors, in row-major order.

None is the role of what nothing is known about.
"""
Roles = tuple[Factors, ...]
ENTRYWISE = ("scale", "shift")
DOMINANT = ("in", "out", *ENTRYWISE, "window", "index", "each")
"""Of the factors or parts of one stored axis, the first of these decides."""


@dataclass(frozen=True, eq=False)
class Activation:
    """A value that depends on an input.

    Attributes:
        origin: the activation of which this is a slice, from `start` to `stop`.
        views: for some axes, how many shifted slices of one activation are side by side there.
    """

    origin: "Activation | None" = None
    start: Shape = ()
    stop: Shape = ()
    views: Mapping[int, int] = field(default_factory=dict)

    def is_shifted(self, other: "Activation | None") -> bool:
        """Whether both are slices of one activation, of the same size, overlapping, not the same.

        That is what the positions of a filter meet.
        """
        if other is None or self.origin is None or self.origin is not other.origin:
            return False
        sides = zip(self.start, self.stop, other.start, other.stop, strict=True)
        overlap = all(b - a == d - c and a < d and c < b for a, b, c, d in sides)
        return overlap and self.start != other.start


@dataclass(eq=False)
class Weights:
    """A function of parameters alone.

    Attributes:
        shape: its shape.
        back: given the roles of its axes, what it was computed from and the roles of those axes;
            what it most resembles comes first.
        copies: how often broadcasting repeats it along new axes; 0 without new axes.
        seen: the roles that were passed back already.
    """

    shape: Shape
    back: Callable[[Roles], "list[tuple[Weights, Roles]]"] = lambda roles: []
    copies: int = 0
    seen: set[Roles] = field(default_factory=set)


class Parameter(Weights):
    """A parameter, whose roles are those of its first meeting with an activation."""

    def __init__(self, shape: Shape):
        super().__init__(shape, self._keep)
        self.roles: LeafRoles | None = None

    def _keep(self, roles: Roles) -> list[tuple[Weights, Roles]]:
        found = _completed([dominant(factors) for factors in roles])
        if self.roles is None:
            self.roles = found
        elif found is not None:  # a second position of a filter shows that the first was one
            pairs = zip(self.roles, found, strict=True)
            self.roles = tuple("window" if p == ("each", "window") else p[0] for p in pairs)
        return []


Operand = Activation | Weights | None
"""What is known about a value; None stands for a constant."""


class Meetings:
    """Where weights meet activations."""

    def __init__(self) -> None:
        self._met: Activation | None = None
        self._first_met: dict[tuple[Weights, int], Activation | None] = {}

    def meet(self, x: Weights, roles: Roles, activation: Activation | None = None) -> None:
        """Give roles to weights, and to all that they were computed from."""
        self._met = activation
        waiting = [(x, roles)]
        while waiting:
            node, roles = waiting.pop()
            if roles not in node.seen:
                node.seen.add(roles)
                waiting.extend(reversed(node.back(roles)))

    def entrywise(self, operands: Sequence[Operand], role: str = "shift") -> None:
        """Weights are combined with activations, or become activations, entry by entry."""
        for x in operands:
            if isinstance(x, Weights):
                self.meet(x, uniform(x.shape, role))

    def role_of_part(self, x: Weights, axis: int) -> str:
        """The role of an axis along which one index is taken, to meet an activation by itself."""
        first = self._first_met.setdefault((x, axis), self._met)
        is_filter = self._met is not None and self._met.is_shifted(first)
        return "window" if is_filter else "each"


def uniform(shape: Shape, role: str | None) -> Roles:
    """The same role for all axes."""
    return tuple(((size, role),) for size in shape)


def dominant(factors: Factors) -> str | None:
    """The role of an axis as a whole."""
    found = {role for _, role in factors}
    return next((role for role in DOMINANT if role in found), None)


def resized(roles: Roles, shape: Shape) -> Roles:
    """The roles of a whole, given those of a part, or the other way round."""
    return tuple(
        factors if prod(n for n, _ in factors) == size else ((size, dominant(factors)),)
        for factors, size in zip(roles, shape, strict=True)
    )


def inserted(roles: Roles, shape: Shape, axes: Sequence[int]) -> Roles:
    """The roles of an array some of whose axes were dropped, given those of the others."""
    kept, dropped = iter(roles), {axis % len(shape) for axis in axes}
    return tuple(((n, None),) if i in dropped else next(kept) for i, n in enumerate(shape))


def regrouped(roles: Roles, shape: Shape) -> Roles:
    """The roles of an array of this shape that was reshaped, given those of the result."""
    factors = [factor for axis in roles for factor in axis if factor[0] > 1]
    found: list[Factors] = []
    for size in shape:
        axis: list[tuple[int, str | None]] = []
        rest = size
        while rest > 1:
            have, role = factors.pop(0) if factors else (1, None)
            taken = min(have, rest)
            if taken == 1 or have % taken or rest % taken:
                return uniform(shape, None)
            if have > taken:
                factors.insert(0, (have // taken, role))
            axis.append((taken, role))
            rest //= taken
        found.append(tuple(axis) or ((size, None),))
    return tuple(found)


def entrywise_role(roles: Roles) -> str | None:
    """`scale` or `shift`, if an array meets activations entry by entry."""
    found = {role for factors in roles for _, role in factors} - {None, "each"}
    return found.pop() if len(found) == 1 and found <= {*ENTRYWISE} else None


def _completed(roles: list[str | None]) -> LeafRoles | None:
    """Roles also for the axes that nothing is known about, given those of the others."""
    known = {role for role in roles if role is not None}
    if roles and not known:
        return None
    missing = next((role for role in ENTRYWISE if role in known), "each")
    if ("in" in known) != ("out" in known):
        missing = "out" if "in" in known else "in"
    return tuple(role or missing for role in roles)
