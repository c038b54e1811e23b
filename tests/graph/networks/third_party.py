"""Patterns met in other people's networks, each in a few lines."""

import jax
import jax.numpy as jnp

from ._case import f32, network

# --- results that nobody uses ---------------------------------------------------------------


@network({"a": "[3] a", "b": "a b", "c": "b [2]"})
def states_returned_and_dropped():
    """A stack of layers returns all its states, of which the caller needs the last."""

    def apply(p, x):
        h = jnp.tanh(x @ p["a"])
        g = jnp.tanh(h @ p["b"])
        jnp.stack([h, g]), jnp.sort(g)
        return g @ p["c"]

    return apply, {"a": f32(3, 8), "b": f32(8, 8), "c": f32(8, 2)}, f32(3)


@network({"w": "[3] a", "u": "a a", "v": "a b", "r": "b b", "out": "b [2]"})
def two_recurrent_layers_with_dropped_states():
    """The results dropped are those of scans, conditions and functions with own derivatives."""

    def layer(w, u, x):
        @jax.jit
        def step(h, y):
            h = jnp.tanh(h @ u + y)
            return h, (h, jnp.sort(h))

        last, (hidden, _) = jax.lax.scan(step, jnp.zeros(len(u), x.dtype), x @ w)
        return hidden, last

    @jax.custom_jvp
    def watched(x):
        return x, jnp.cumsum(x, -1)

    watched.defjvp(lambda primals, tangents: (watched(*primals), 2 * tangents))

    def apply(p, x):
        x, first = layer(p["w"], p["u"], x)
        x, _ = watched(x)
        x, second = layer(p["v"], p["r"], x)
        jnp.stack([first, second])
        x, _ = jax.lax.cond(jnp.sum(x) > 0, lambda x: (x, jnp.flip(x, -1)), lambda x: (2 * x, x), x)
        return x @ p["out"]

    shapes = {"w": f32(3, 4), "u": f32(4, 4), "v": f32(4, 4), "r": f32(4, 4), "out": f32(4, 2)}
    return apply, shapes, f32(5, 3)
