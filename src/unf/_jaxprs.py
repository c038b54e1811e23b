"""What every walk over a jaxpr needs to know."""

from typing import Any

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
