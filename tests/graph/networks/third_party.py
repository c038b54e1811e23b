"""Patterns met in other people's networks, each in a few lines."""

from functools import partial

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp

from ._case import f32, i32, linen, network

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


# --- patches --------------------------------------------------------------------------------


@network({"in": "[3] c", "out": "(c [9]) [2]"})
def patches():
    """im2col: a convolution in groups with a constant kernel, an identity for each channel."""

    def apply(p, x):
        h = jnp.tanh(jnp.einsum("bhwi,io->bhwo", x, p["in"]))
        names = ("NHWC", "HWIO", "NHWC")
        read = jax.lax.conv_general_dilated_patches
        return read(h, (3, 3), (1, 1), "SAME", dimension_numbers=names) @ p["out"]

    return apply, {"in": f32(3, 8), "out": f32(72, 2)}, f32(1, 5, 5, 3)


@network(
    {
        "params/Conv_0/kernel": "[3 2] c", "params/Conv_0/bias": "c",
        "params/ConvLocal_0/kernel": "[6] (c [3]) d", "params/ConvLocal_0/bias": "[6] d",
        "params/Dense_0/kernel": "d [2]", "params/Dense_0/bias": "[2]",
    },
    sizes={"c": 4},
)  # fmt: skip
def local_convolution():
    """Flax's convolution with other weights at each position."""

    class Local(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.relu(nn.Conv(4, (3,))(x))
            return nn.Dense(2)(nn.relu(nn.ConvLocal(5, (3,))(x)).mean(1))

    return linen(Local(), f32(2, 6, 2))


@network(
    {"w": "[3] (p.h [p])", "u": "(p.h [p]) m", "v": "m (p.h [p])", "o": "(p.h [p]) [2]"},
    sizes={"p": 2},
)
def coupling_with_a_checkerboard():
    """Every other unit passes, and changes the rest, as in RealNVP."""

    def apply(p, x):
        mask = jnp.arange(8) % 2
        h = x @ p["w"]
        h = h + jnp.tanh((mask * h) @ p["u"]) @ p["v"] * (1 - mask)
        return jnp.tanh(h) @ p["o"]

    shapes = {"w": f32(3, 8), "u": f32(8, 5), "v": f32(5, 8), "o": f32(8, 2)}
    return apply, shapes, f32(3)


# --- tables of positions --------------------------------------------------------------------


@network(
    {"embed": "[9] d", "pos": "([4] + rest) d", "w": "d d", "out": "d [9]"},
    hidden=("pos place 1 of (4 + pos) stream",),
)
def positions_beyond_the_sequence():
    """Flax's lm1b: tokens are shifted by one, and the table of positions is longer than they."""

    def apply(p, tokens):
        shifted = jnp.pad(tokens, (1, 0))[:-1]
        x = p["embed"][shifted] + p["pos"].astype(p["w"].dtype)[None, : len(tokens)][0]
        seen = jnp.tril(jnp.ones((len(tokens),) * 2)) * (tokens[None] > 0)
        x = x + jax.nn.softmax(jnp.where(seen > 0, x @ x.T, -1e9)) @ x @ p["w"]
        return x @ p["out"]

    shapes = {"embed": f32(9, 5), "pos": f32(7, 5), "w": f32(5, 5), "out": f32(5, 9)}
    return apply, shapes, i32(4)


# --- fused queries, keys and values ---------------------------------------------------------

FUSED = {"qkv": "[6] ((h h.k) + (h h.k) + (h h.v))", "out": "(h h.v) [3]"}


def fused(take_apart):
    """Attention of two heads whose queries, keys and values `take_apart` finds in one array."""

    def apply(p, x):
        q, k, v = take_apart(x @ p["qkv"])
        scores = jax.nn.softmax(jnp.einsum("htk,hsk->hts", q, k))
        return jnp.einsum("hts,hsv->thv", scores, v).reshape(len(x), -1) @ p["out"]

    return apply, {"qkv": f32(6, 24), "out": f32(8, 3)}, f32(5, 6)


@network(FUSED, sizes={"h": 2})
def fused_timm():
    """A view as (3, heads, width), transposed, then unbound."""
    return fused(lambda y: jnp.unstack(y.reshape(len(y), 3, 2, 4).transpose(1, 2, 0, 3)))


@network(FUSED, sizes={"h": 2})
def fused_timm_normalized():
    """The same with every query and key divided by its length."""

    def take_apart(y):
        q, k, v = y.reshape(len(y), 3, 2, 4).transpose(1, 2, 0, 3)
        return *(z / jnp.sqrt(1 + jnp.sum(z**2, -1, keepdims=True)) for z in (q, k)), v

    return fused(take_apart)


@network(FUSED, sizes={"h": 2})
def fused_torch():
    """PyTorch's multi-head attention: unflatten, unsqueeze, transpose, squeeze, index, view."""

    def take_apart(y):
        y = jnp.squeeze(jnp.swapaxes(y.reshape(len(y), 1, 3, 8)[None], 0, -2), -2)[..., 0, :]
        return [y[i].reshape(-1, 2, 4).swapaxes(0, 1) for i in range(3)]

    return fused(take_apart)


# --- group norm -----------------------------------------------------------------------------


def normalize_groups(y, groups):
    """Divide each group of channels, the last axis, by its length."""
    z = y.reshape(*y.shape[:-1], groups, -1)
    return (z / jnp.sqrt(1 + jnp.mean(z**2, -1, keepdims=True))).reshape(y.shape)


@network(
    {"a": "[3] (g g.c)", "b": "[3] (h h.d)", "out": "((g g.c) + (h h.d)) [2]"},
    sizes={"g": 2, "h": 3},
)
def group_norm_of_a_skip():
    """Two streams of 8 and 12 channels are concatenated and normalized in groups of 4."""

    def apply(p, x):
        y = jnp.concatenate([x @ p["a"], x @ p["b"]], -1)
        return normalize_groups(y, 5) @ p["out"]

    return apply, {"a": f32(3, 8), "b": f32(3, 12), "out": f32(20, 2)}, f32(2, 3)


@network({"a": "[3] [8]", "b": "[3] [12]", "out": "[20 2]"}, sizes={})
def group_norm_across_a_skip():
    """Groups of 5 do not fit the streams, so that one group has channels of both."""

    def apply(p, x):
        y = jnp.concatenate([x @ p["a"], x @ p["b"]], -1)
        return normalize_groups(y, 4) @ p["out"]

    return apply, {"a": f32(3, 8), "b": f32(3, 12), "out": f32(20, 2)}, f32(2, 3)


UNET = {
    "params/down/kernel": "[3 2] (g g.c)", "params/middle/kernel": "[3] (g g.c) (h h.d)",
    "params/norm/scale": "((g g.c) + (h h.d))", "params/norm/bias": "((g g.c) + (h h.d))",
    "params/up/kernel": "[3] ((g g.c) + (h h.d)) [2]",
}  # fmt: skip


@network(UNET, sizes={"g": 2, "h": 3})
def unet_with_group_norm():
    """Flax's group norm of a skip: means are repeated for each channel."""

    class Unet(nn.Module):
        @nn.compact
        def __call__(self, x):
            down = nn.Conv(4, (3,), use_bias=False, name="down")(x)
            middle = nn.Conv(6, (3,), use_bias=False, name="middle")(nn.relu(down))
            y = nn.GroupNorm(5, name="norm")(jnp.concatenate([down, middle], -1))
            return nn.Conv(2, (3,), use_bias=False, name="up")(nn.swish(y))

    return linen(Unet(), f32(1, 6, 2))


@network(
    {
        "a": "(g g.c) [3]", "b": "(h h.d) [3]",
        "scale": "((g g.c) + (h h.d))", "out": "[2] ((g g.c) + (h h.d))",
    },
    sizes={"g": 2, "h": 3},
)  # fmt: skip
def group_norm_with_channels_first():
    """Equinox and PyTorch: channels come first, and a group has all their positions."""
    norm = eqx.nn.GroupNorm(5, 10)

    def apply(p, x):
        y = jnp.concatenate([jnp.tanh(p["a"] @ x), p["b"] @ x])
        y = eqx.tree_at(lambda n: n.weight, norm, p["scale"])(y)
        return p["out"] @ jax.nn.relu(y)

    shapes = {"a": f32(4, 3), "b": f32(6, 3), "scale": f32(10), "out": f32(2, 10)}
    return apply, shapes, f32(3, 6)


@network(
    {
        "params/in/kernel": "[4] (g g.c)", "params/out/kernel": "(g g.c) [2]",
        **{f"params/mix_{i}/kernel": "(g g.c) (g g.c)" for i in range(2)},
        **{f"params/norm_{i}/{name}": "(g g.c)" for i in range(2) for name in ("scale", "bias")},
    },
    sizes={"g": 3},
)  # fmt: skip
def residual_group_norm():
    """Weights with two axes of groups, each with channels of its own."""

    class Residual(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.Dense(6, use_bias=False, name="in")(x)
            for i in range(2):
                y = nn.relu(nn.GroupNorm(3, name=f"norm_{i}")(x))
                x = x + nn.Dense(6, use_bias=False, name=f"mix_{i}")(y)
            return nn.Dense(2, use_bias=False, name="out")(x)

    return linen(Residual(), f32(3, 4))
