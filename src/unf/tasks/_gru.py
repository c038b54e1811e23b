"""A gated recurrent unit that reads symbols, with its gradient written out.

With r, z, n the gates and T_s the row of a table for the symbol s that is read,

    r = σ(T_r + h W_r)    z = σ(T_z + h W_z)    n = tanh(T_n + r ⊙ (h W_n + b))
    h' = (1 − z) ⊙ n + z ⊙ h.

Training many small networks at once is bound by memory traffic, not by arithmetic: the gradients
of W, b and T are one product over all time steps, instead of a sum read and written at each.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

Table = Float[Array, "symbols gates"]
Kernel = Float[Array, "hidden gates"]
Bias = Float[Array, " hidden"]
State = Float[Array, "batch hidden"]


def gru_step(
    table: Table, kernel: Kernel, bias: Bias, symbols: Int[Array, " batch"], state: State
) -> State:
    """The state after one symbol."""
    return _blend(_gates(table, bias, symbols, state @ kernel), state)


@jax.custom_vjp
def gru(
    table: Table, kernel: Kernel, bias: Bias, symbols: Int[Array, "time batch"], state: State
) -> Float[Array, "time batch hidden"]:
    """The states after each symbol, beginning from `state`."""
    return _forward(table, kernel, bias, symbols, state)[0]


def _gates(table: Table, bias: Bias, symbols: Array, product: Array) -> tuple[Array, ...]:
    """r, z, n and h W_n + b, in at least float32 whatever the operands are stored in."""
    wide = jnp.promote_types(product.dtype, jnp.float32)
    given_r, given_z, given_n = jnp.split(_look_up(table, symbols).astype(wide), 3, axis=-1)
    own_r, own_z, own_n = jnp.split(product.astype(wide), 3, axis=-1)
    own_n = own_n + bias.astype(wide)[None]
    r, z = jax.nn.sigmoid(given_r + own_r), jax.nn.sigmoid(given_z + own_z)
    return r, z, jnp.tanh(given_n + r * own_n), own_n


def _look_up(table: Table, symbols: Int[Array, " batch"]) -> Array:
    return table.at[symbols].get(mode="promise_in_bounds")


def _blend(gates: tuple[Array, ...], state: State) -> State:
    _, z, n, _ = gates
    return ((1 - z) * n + z * state.astype(z.dtype)).astype(state.dtype)


def _forward(table: Table, kernel: Kernel, bias: Bias, symbols: Array, state: State):
    def step(state: State, now: Array) -> tuple[State, tuple]:
        gates = _gates(table, bias, now, state @ kernel)
        after = _blend(gates, state)
        return after, (after, (state, *(gate.astype(state.dtype) for gate in gates)))

    _, (states, kept) = _over_time(step, state, symbols, len(symbols))
    return _stack(states), (table, kernel, bias, symbols, kept)


def _backward(residuals: tuple, cotangents: Float[Array, "time batch hidden"]):
    table, kernel, _, symbols, kept = residuals
    dtype, hidden = kernel.dtype, kernel.shape[0]
    # Gradients by h W_r, h W_z, h W_n and by T_n side by side; the last does not reach h.
    padded = jnp.concatenate([kernel, jnp.zeros((hidden, hidden), dtype)], axis=1).T

    wide = jnp.promote_types(dtype, jnp.float32)

    def step(d_state: State, now: tuple) -> tuple[State, Array]:
        d_after, kept = now
        state, r, z, n, own_n = (x.astype(wide) for x in kept)
        d_after = (d_state + d_after).astype(wide)
        d_n = d_after * (1 - z) * (1 - n * n)
        d_r = d_n * own_n * r * (1 - r)
        d_z = d_after * (state - n) * z * (1 - z)
        at_gates = jnp.concatenate([d_r, d_z, d_n * r, d_n], axis=-1).astype(dtype)
        d_state = d_after * z + (at_gates @ padded).astype(wide)
        return d_state.astype(dtype), at_gates

    nothing = jnp.zeros_like(cotangents[0])
    series = (cotangents, kept)
    d_state, at_gates = _over_time(step, nothing, series, len(symbols), reverse=True)
    at_gates = _stack(at_gates).reshape(-1, 4 * hidden)
    before = _stack(kept[0]).reshape(-1, hidden)
    read = jax.nn.one_hot(symbols.reshape(-1), table.shape[0], dtype=dtype)
    d_kernel = (before.T @ at_gates)[:, : 3 * hidden]
    d_table = read.T @ at_gates
    d_bias = jnp.sum(d_table[:, 2 * hidden : 3 * hidden], axis=0)
    d_table = jnp.concatenate([d_table[:, : 2 * hidden], d_table[:, 3 * hidden :]], axis=1)
    return d_table, d_kernel, d_bias, None, d_state


gru.defvjp(_forward, _backward)


def _over_time(
    step: Callable, carry: Any, xs: Any, length: int, *, reverse: bool = False
) -> tuple[Any, Any]:
    """`lax.scan`, written out on accelerators: faster there, and slow to compile on CPUs.

    Written out, what is collected stays in separate arrays, so that nothing is copied together.
    """
    if not _written_out():
        return jax.lax.scan(step, carry, xs, reverse=reverse)
    collected: list[Any] = [None] * length
    for time in reversed(range(length)) if reverse else range(length):
        now = jax.tree.map(lambda x, t=time: x[t], xs, is_leaf=_is_series)
        carry, collected[time] = step(carry, now)
    return carry, jax.tree.map(lambda *arrays: _Series(arrays), *collected)


def _written_out() -> bool:
    return jax.default_backend() != "cpu"


class _Series:
    """Arrays, one for each time."""

    def __init__(self, arrays: tuple[Array, ...]):
        self.arrays = arrays

    def __getitem__(self, time: int) -> Array:
        return self.arrays[time]


jax.tree_util.register_pytree_node(
    _Series, lambda series: (series.arrays, None), lambda _, arrays: _Series(tuple(arrays))
)


def _is_series(x: Any) -> bool:
    return isinstance(x, _Series)


def _stack(x: Any) -> Array:
    return jnp.stack(x.arrays) if _is_series(x) else x
