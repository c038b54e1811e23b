"""What every walk over a jaxpr needs to know."""

from collections.abc import Sequence
from typing import Any

import jax.extend.core as jex

INLINED = {
    "jit", "pjit", "closed_call", "core_call", "call", "custom_jvp_call", "custom_vjp_call",
    "custom_vjp_call_jaxpr", "remat", "remat2", "checkpoint", "xla_call", "custom_lin",
    "eval_jaxpr", "composite", "custom_vmap_call",
}  # fmt: skip
"""Operations that only wrap another jaxpr, under one of the names `BODIES`."""
BODIES = ("jaxpr", "call_jaxpr", "fun_jaxpr", "call")


def inlined_body(eqn: Any) -> Any | None:
    """The jaxpr, closed or open, that an equation only wraps; None if it does more than that."""
    if eqn.primitive.name not in INLINED:
        return None
    return next((eqn.params[key] for key in BODIES if key in eqn.params), None)


def count_loop_values(
    body: Any, in_ranks: Sequence[int], out_ranks: Sequence[int]
) -> tuple[int, int]:
    """How many values a scan carries, and how many it scans over, which come last.

    Found from ranks, since releases of JAX store the numbers in different places: an array
    that is scanned over or collected has one axis more outside the body than inside.
    """
    body = body.jaxpr if isinstance(body, jex.ClosedJaxpr) else body
    scanned = [n > len(v.aval.shape) for n, v in zip(in_ranks, body.invars, strict=True)]
    collected = [n > len(v.aval.shape) for n, v in zip(out_ranks, body.outvars, strict=True)]
    return len(collected) - sum(collected), sum(scanned)
