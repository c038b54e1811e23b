"""A gated recurrent unit that reads symbols, with its gradient written out.

With r, z, n the gates and T_s the row of a table for the symbol s,

    r = σ(T_r + h W_r)    z = σ(T_z + h W_z)    n = tanh(T_n + r ⊙ (h W_n + b))
    h' = (1 − z) ⊙ n + z ⊙ h.

Training many small networks at once is limited by memory traffic, not by arithmetic, so the
gradients of W, b and T are single products over all time steps. On accelerators the loop is
unrolled, with the gates side by side in one product and each step in its own arrays, so that
nothing is copied together. CPUs compile and run that slowly; they scan, gate by gate.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

Table = Float[Array, "symbols gates"]
Kernel = Float[Array, "hidden gates"]
Bias = Float[Array, " hidden"]
State = Float[Array, "batch hidden"]
States = Float[Array, "time batch hidden"]
Triple = tuple[Array, Array, Array]


class _Gates(NamedTuple):
    """The gates of one step, in at least float32; `own` is h W_n + b."""

    r: Array
    z: Array
    n: Array
    own: Array

    def after(self, state: State) -> State:
        """The next state."""
        return ((1 - self.z) * self.n + self.z * state).astype(state.dtype)

    def pull_back(self, d_after: State, state: State) -> tuple[Array, ...]:
        """Gradients with respect to h W_r, h W_z, h W_n, T_n, and h directly."""
        r, z, n, own = (gate.astype(wide(gate)) for gate in self)
        d_after = d_after.astype(r.dtype)
        d_n = d_after * (1 - z) * (1 - n * n)
        d_r = d_n * own * r * (1 - r)
        d_z = d_after * (state.astype(r.dtype) - n) * z * (1 - z)
        return d_r, d_z, d_n * r, d_n, d_after * z

    def kept(self, like: Array) -> "_Gates":
        """The gates in the dtype in which they are kept for the backward pass."""
        return _Gates(*(gate.astype(like.dtype) for gate in self))


def gru(
    table: Table, kernel: Kernel, bias: Bias, symbols: Int[Array, "time batch"], state: State
) -> States:
    """The states after each symbol, starting from `state`; gates r, z, n are side by side."""
    if _on_accelerator():
        return _unrolled(table, kernel, bias, symbols, state)
    return _scanned(_thirds(table), _thirds(kernel), bias, symbols, state)


def gru_step(
    table: Table, kernel: Kernel, bias: Bias, symbols: Int[Array, " batch"], state: State
) -> State:
    """The state after one symbol."""
    return _gates(_thirds(_look_up(table, symbols)), _thirds(state @ kernel), bias).after(state)


def mixed_step(
    table: Table, kernel: Kernel, bias: Bias, mixed: Float[Array, "batch symbols"], state: State
) -> State:
    """The state after a mixture of symbols."""
    return _gates(_thirds(mixed @ table), _thirds(state @ kernel), bias).after(state)


def wide(x: Array) -> jnp.dtype:
    """The dtype to compute in: at least float32."""
    return jnp.promote_types(x.dtype, jnp.float32)


def _on_accelerator() -> bool:
    return jax.default_backend() != "cpu"


def _thirds(x: Array) -> Triple:
    first, second, third = jnp.split(x, 3, axis=-1)
    return first, second, third


def _look_up(table: Array, symbols: Array) -> Array:
    return table.at[symbols].get(mode="promise_in_bounds")


def _gates(given: Sequence[Array], own: Sequence[Array], bias: Bias) -> _Gates:
    """The gates from rows of the table and products with the state."""
    dtype = wide(bias)
    (given_r, given_z, given_n), (own_r, own_z, own_n) = (
        [x.astype(dtype) for x in triple] for triple in (given, own)
    )
    own_n = own_n + bias.astype(dtype)[None]
    r, z = jax.nn.sigmoid(given_r + own_r), jax.nn.sigmoid(given_z + own_z)
    return _Gates(r, z, jnp.tanh(given_n + r * own_n), own_n)


def _one_hot(symbols: Array, like: Array) -> Array:
    return jax.nn.one_hot(symbols.reshape(-1), like.shape[0], dtype=like.dtype)


@jax.custom_vjp
def _scanned(tables: Triple, kernels: Triple, bias: Bias, symbols: Array, state: State) -> States:
    return _scan_forward(tables, kernels, bias, symbols, state)[0]


def _scan_forward(tables: Triple, kernels: Triple, bias: Bias, symbols: Array, state: State):
    def step(state: State, given: list[Array]) -> tuple[State, tuple[State, _Gates]]:
        gates = _gates(given, [state @ kernel for kernel in kernels], bias)
        return gates.after(state), (state, gates.kept(state))

    rows = [_look_up(table, symbols) for table in tables]
    last, (before, gates) = jax.lax.scan(step, state, rows)
    states = jnp.concatenate([before[1:], last[None]])
    return states, (tables, kernels, symbols, before, gates)


def _scan_backward(residuals: tuple, cotangents: States):
    tables, kernels, symbols, before, gates = residuals
    dtype, hidden = before.dtype, before.shape[-1]

    def step(d_state: State, now: tuple) -> tuple[State, list[Array]]:
        d_after, state, gates = now
        *at_gates, d_direct = gates.pull_back(d_state + d_after, state)
        at_gates = [x.astype(dtype) for x in at_gates]
        products = [d @ kernel.T for d, kernel in zip(at_gates, kernels, strict=False)]
        return (d_direct + sum(products)).astype(dtype), at_gates

    start = jnp.zeros_like(cotangents[0])
    d_state, at_gates = jax.lax.scan(step, start, (cotangents, before, gates), reverse=True)
    d_r, d_z, d_own, d_n = (x.reshape(-1, hidden) for x in at_gates)
    before, read = before.reshape(-1, hidden), _one_hot(symbols, tables[0])
    d_kernels = tuple(before.T @ d for d in (d_r, d_z, d_own))
    d_tables = tuple(read.T @ d for d in (d_r, d_z, d_n))
    return d_tables, d_kernels, jnp.sum(d_own, axis=0), None, d_state


_scanned.defvjp(_scan_forward, _scan_backward)


@jax.custom_vjp
def _unrolled(table: Table, kernel: Kernel, bias: Bias, symbols: Array, state: State) -> States:
    return _unroll_forward(table, kernel, bias, symbols, state)[0]


def _unroll_forward(table: Table, kernel: Kernel, bias: Bias, symbols: Array, state: State):
    states, kept = [state], []
    for now in symbols:
        product = states[-1] @ kernel
        gates = _gates(_thirds(_look_up(table, now)), _thirds(product), bias)
        states.append(gates.after(states[-1]))
        kept.append(gates.kept(state))
    return jnp.stack(states[1:]), (table, kernel, symbols, states[:-1], kept)


def _unroll_backward(residuals: tuple, cotangents: States):
    table, kernel, symbols, before, kept = residuals
    dtype, hidden = kernel.dtype, kernel.shape[0]
    # The fourth gradient, by T_n, does not reach h.
    padded = jnp.concatenate([kernel, jnp.zeros((hidden, hidden), dtype)], axis=1).T
    d_state, collected = jnp.zeros_like(cotangents[0]), []
    for d_after, state, gates in zip(cotangents[::-1], before[::-1], kept[::-1], strict=True):
        *at_gates, d_direct = gates.pull_back(d_state + d_after, state)
        collected.append(jnp.concatenate(at_gates, axis=-1).astype(dtype))
        d_state = (d_direct + (collected[-1] @ padded).astype(d_direct.dtype)).astype(dtype)
    at_gates = jnp.stack(collected[::-1]).reshape(-1, 4 * hidden)
    d_kernel = (jnp.stack(before).reshape(-1, hidden).T @ at_gates)[:, : 3 * hidden]
    d_table = _one_hot(symbols, table).T @ at_gates
    d_bias = jnp.sum(d_table[:, 2 * hidden : 3 * hidden], axis=0)
    d_table = jnp.concatenate([d_table[:, : 2 * hidden], d_table[:, 3 * hidden :]], axis=1)
    return d_table, d_kernel, d_bias, None, d_state


_unrolled.defvjp(_unroll_forward, _unroll_backward)
