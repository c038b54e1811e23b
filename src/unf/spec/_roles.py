"""Roles of axes: how an array meets activations, whatever the order in which it is stored."""

from typing import Any

from ._errors import SpecError, shown

ROLES = {
    "in": "contracted with activations",
    "out": "becomes an axis of activations",
    "window": "slides over activations: a position in a filter",
    "index": "looked up by index",
    "each": "a batch axis of a product: an expert, a head stored apart, a stacked layer",
    "scale": "multiplied with activations, entry by entry",
    "shift": "added to activations, entry by entry",
}
"""Every role of an axis, and what it means."""

LeafRoles = tuple[str, ...]
"""The role of each stored axis of one array."""


def roles_by_position(rank: int) -> LeafRoles:
    """The roles in JAX's order: `shift`, `in out`, and windows before these.

    >>> roles_by_position(1), roles_by_position(4)
    (('shift',), ('window', 'window', 'in', 'out'))
    """
    return ("shift",) * rank if rank < 2 else (*["window"] * (rank - 2), "in", "out")


def parse_roles(written: Any, rank: int, path: str) -> LeafRoles:
    """The roles of one array, written as `"out in"` or as a tuple.

    Raises:
        SpecError: if there is no such role, or not one for each axis.
    """
    roles = tuple(written.split()) if isinstance(written, str) else written
    if not isinstance(roles, tuple | list) or not all(role in ROLES for role in roles):
        raise SpecError(
            "unknown roles", path=path, expected=f"some of {list(ROLES)}", got=shown(written)
        )
    if len(roles) != rank:
        raise SpecError(
            f"{len(roles)} roles for {rank} axes",
            path=path,
            expected="a role for each stored axis",
            got=shown(written),
        )
    return tuple(roles)
