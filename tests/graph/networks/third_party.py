"""Patterns met in other people's networks, each in a few lines."""

from functools import partial

import jax
import jax.numpy as jnp

from ._case import f32, i32, network

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


# --- gradients of lookups -------------------------------------------------------------------


@network({"embed": "[9] d", "out": "d [2]"})
def gradient_of_a_vmapped_lookup():
    """Equinox's embedding under vmap: a gather whose window is a whole row."""

    def loss(p, tokens):
        row = partial(jax.lax.dynamic_index_in_dim, p["embed"], keepdims=False)
        return jnp.sum((jnp.tanh(jax.vmap(row)(tokens)) @ p["out"]) ** 2 * jnp.arange(2.0)[None])

    return jax.value_and_grad(loss), {"embed": f32(9, 6), "out": f32(6, 2)}, i32(4)


@network({"w": "h.k [5] h", "out": "h.k h"})
def gradient_of_a_batched_lookup():
    """BigBird's block-sparse attention: heads are a batching axis of the gather."""

    def loss(p, places):
        x = jax.vmap(lambda w, i: w[i], (2, None))(p["w"].transpose(1, 0, 2), places)
        y = jnp.einsum("htk,kh->t", jnp.tanh(x), p["out"])
        return jnp.sum(jnp.tanh(y) * jnp.arange(1.0, 3.0))

    return jax.value_and_grad(loss), {"w": f32(4, 5, 3), "out": f32(4, 3)}, i32(2)
