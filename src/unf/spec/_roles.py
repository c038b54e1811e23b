"""Roles of axes: how an array meets activations, whatever the order in which it is stored."""

from collections.abc import Mapping
from typing import Any

from jaxtyping import PyTree

from ._errors import SpecError, shown
from ._tree import flatten_params, is_under

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


def roles_by_pattern(patterns: Mapping[str, str], params: PyTree) -> PyTree:
    """Roles of the leaves whose paths match a pattern; the others have those of JAX's order.

    >>> import jax
    >>> params = {"embed": jax.ShapeDtypeStruct((9, 4), "float32")}
    >>> roles_by_pattern({"emb*": "index out"}, params), roles_by_pattern({}, params)
    ({'embed': 'index out'}, {'embed': ('in', 'out')})
    """
    leaves, treedef = flatten_params(params)
    found = [[patterns[p] for p in patterns if is_under(path, p)] for path, _ in leaves]
    pairs = zip(found, leaves, strict=True)
    return treedef.unflatten([x[0] if x else roles_by_position(len(s)) for x, (_, s) in pairs])


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
