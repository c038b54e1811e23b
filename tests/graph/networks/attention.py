"""Attention and Transformers."""

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp

from ._case import f32, i32, linen, network


@network(
    {
        "params/query/kernel": "[6] h h.k", "params/query/bias": "h h.k",
        "params/key/kernel": "[6] h h.k", "params/key/bias": "h h.k",
        "params/value/kernel": "[6] h h.v", "params/value/bias": "h h.v",
        "params/out/kernel": "h h.v [6]", "params/out/bias": "[6]",
    },
    dead=("params/key/bias",),
)  # fmt: skip
def attention_linen():
    return linen(nn.MultiHeadDotProductAttention(2, qkv_features=8), f32(1, 5, 6))


@network(
    {
        "query_proj/weight": "(h h.k) [6]", "key_proj/weight": "(h h.k) [6]",
        "value_proj/weight": "(h h.v) [6]", "output_proj/weight": "[6] (h h.v)",
    },
    sizes={"h": 2},
)  # fmt: skip
def attention_equinox():
    """Heads flattened into one axis; keys and values of different sizes."""
    model = eqx.nn.MultiheadAttention(2, 6, qk_size=3, vo_size=4, key=jax.random.key(0))
    params, static = eqx.partition(model, eqx.is_array)

    def apply(params, x):
        return eqx.combine(params, static)(x, x, x)

    return apply, jax.eval_shape(lambda: params), f32(5, 6)


def attend(q, k, v):
    """Attention over [time, head, size]."""
    scores = jnp.einsum("thk,shk->hts", q, k) / jnp.sqrt(k.shape[-1])
    return jnp.einsum("hts,shv->thv", jax.nn.softmax(scores), v)


def rotate(x):
    """Rotary positions for [time, head, size], with the two halves of `size` rotated together."""
    half = x.shape[-1] // 2
    angle = jnp.arange(1.0, len(x) + 1)[:, None, None]
    angle = angle * jnp.arange(1.0, half + 1)[None, None]
    a, b = x[..., :half], x[..., half:]
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


def _rotary(q, k, v, p):
    return jnp.einsum("thv,hvd->td", attend(rotate(q), rotate(k), v), p["o"])


@network({"q": "h [6] [4]", "kv": "[c] h [6] c{[4] | h.v}", "o": "h h.v [6]"})
def keys_and_values_in_one_array():
    """Gemma's kv_einsum: rotary positions fix the keys, and the values are free."""

    def apply(p, x):
        k, v = jnp.einsum("td,chdk->cthk", x, p["kv"])
        return _rotary(jnp.einsum("td,hdk->thk", x, p["q"]), k, v, p)

    return apply, {"q": f32(2, 6, 4), "kv": f32(2, 2, 6, 4), "o": f32(2, 4, 6)}, f32(5, 6)


@network({"q": "h [6] [4]", "kv": "h [6] c{[4] | h.v} [c]", "o": "h h.v [6]"})
def keys_and_values_indexed_last():
    """The parameter itself is indexed, along its last axis."""

    def apply(p, x):
        q, k, v = (
            jnp.einsum("td,hdk->thk", x, w) for w in (p["q"], p["kv"][..., 0], p["kv"][..., 1])
        )
        return _rotary(q, k, v, p)

    return apply, {"q": f32(2, 6, 4), "kv": f32(2, 6, 4, 2), "o": f32(2, 4, 6)}, f32(5, 6)


@network({"qkv": "[c] [6] (h c{[4] | [4] | h.v})", "o": "h h.v [6]"}, sizes={"h": 2})
def queries_keys_and_values_in_one_array():
    """Heads flattened, taken apart after the product."""

    def apply(p, x):
        y = jnp.einsum("td,cde->cte", x, p["qkv"])
        q, k, v = (y[i].reshape(-1, 2, 4) for i in range(3))
        return _rotary(q, k, v, p)

    return apply, {"qkv": f32(3, 6, 8), "o": f32(2, 4, 6)}, f32(5, 6)


@network({"w": "[l] l{a | b | c} l{b | c | d}", "in": "[4] a", "out": "d [2]"})
def stacked_layers_in_a_row():
    """Layers of one width without a residual stream, stacked and scanned over."""

    def apply(p, x):
        x, _ = jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x @ p["in"], p["w"])
        return x @ p["out"]

    return apply, {"w": f32(3, 5, 5), "in": f32(4, 5), "out": f32(5, 2)}, f32(2, 4)


def _fused(split):
    def apply(p, x):
        y = attend(*split(x @ p["qkv"]))
        return y.reshape(y.shape[0], -1) @ p["out"]

    return apply, {"qkv": f32(6, 24), "out": f32(8, 6)}, f32(5, 6)


@network({"qkv": "[6] ((h h.k) + (h h.k) + (h h.v))", "out": "(h h.v) [6]"}, sizes={"h": 2})
def fused_by_kind():
    """All queries, then all keys, then all values: a split and a reshape."""
    return _fused(lambda y: [t.reshape(-1, 2, 4) for t in jnp.split(y, 3, axis=-1)])


@network({"qkv": "[6] ((h h.k) + (h h.k) + (h h.v))", "out": "(h h.v) [6]"}, sizes={"h": 2})
def fused_by_kind_reshaped():
    """The same layout, reached by a reshape and indexing."""

    def split(y):
        y = y.reshape(-1, 3, 2, 4)
        return y[:, 0], y[:, 1], y[:, 2]

    return _fused(split)


@network({"qkv": "[6] (h (h.k + h.k + h.v))", "out": "(h h.v) [6]"}, sizes={"h": 2})
def fused_by_head():
    """Each head's query, key and value side by side."""
    return _fused(lambda y: jnp.split(y.reshape(-1, 2, 12), 3, axis=-1))


@network(
    {"q": "[6] (h h.k)", "k": "[6] (h h.k)", "v": "[6] (h h.v)", "o": "(h h.v) [6]",
     "s": "h h.k"},
)  # fmt: skip
def attention_scaled_per_head():
    def apply(p, x):
        q, k, v = (jnp.reshape(x @ p[n], (-1, 2, 4)) for n in "qkv")
        y = attend(q * p["s"][None], k, v)
        return y.reshape(y.shape[0], -1) @ p["o"]

    params = {n: f32(6, 8) for n in "qkv"} | {"o": f32(8, 6), "s": f32(2, 4)}
    return apply, params, f32(5, 6)


@network(
    {"q": "[6] (h k)", "k": "[6] (h k)", "v": "[6] (h h.v)", "o": "(h h.v) [6]", "s": "k"},
)
def shared_query_key_norm():
    """A scale shared by all heads: one permutation of `k` for all of them."""

    def apply(p, x):
        q, k, v = (jnp.reshape(x @ p[n], (-1, 2, 4)) for n in "qkv")

        def norm(x):
            return x * jax.lax.rsqrt(jnp.mean(x**2, -1, keepdims=True)) * p["s"][None, None]

        y = attend(norm(q), norm(k), v)
        return y.reshape(y.shape[0], -1) @ p["o"]

    return apply, {n: f32(6, 8) for n in "qkv"} | {"o": f32(8, 6), "s": f32(4)}, f32(5, 6)


@network({"q": "[6] (h [4])", "k": "[6] (h [4])", "v": "[6] (h h.v)", "o": "(h h.v) [6]"})
def rotary():
    """Rotary embeddings tell the entries of a key apart."""

    def rotate(x):
        time, size = x.shape[0], x.shape[-1]
        angles = jnp.outer(jnp.arange(time), 10.0 ** -jnp.arange(size // 2))[:, None]
        cos, sin = jnp.cos(angles), jnp.sin(angles)
        a, b = jnp.split(x, 2, axis=-1)
        return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)

    def apply(p, x):
        q, k, v = (jnp.reshape(x @ p[n], (-1, 2, 4)) for n in "qkv")
        y = attend(rotate(q), rotate(k), v)
        return y.reshape(y.shape[0], -1) @ p["o"]

    return apply, {n: f32(6, 8) for n in "qkv"} | {"o": f32(8, 6)}, f32(5, 6)


@network(
    {"q": "[6] (h [2 2])", "k": "[6] (h [2 2])", "v": "[6] (h h.v)", "o": "(h h.v) [6]"},
    sizes={"h": 2},
)
def rotary_interleaved():
    """Rotary embeddings of neighbouring pairs."""

    def rotate(x):
        angles = jnp.outer(jnp.arange(x.shape[0]), 10.0 ** -jnp.arange(x.shape[-1] // 2))[:, None]
        cos, sin = jnp.cos(angles), jnp.sin(angles)
        a, b = x[..., ::2], x[..., 1::2]
        return jnp.stack([a * cos - b * sin, a * sin + b * cos], axis=-1).reshape(x.shape)

    def apply(p, x):
        q, k, v = (jnp.reshape(x @ p[n], (-1, 2, 4)) for n in "qkv")
        y = attend(rotate(q), rotate(k), v)
        return y.reshape(y.shape[0], -1) @ p["o"]

    return apply, {n: f32(6, 8) for n in "qkv"} | {"o": f32(8, 6)}, f32(5, 6)


@network(
    {"q": "[6] (g g.r g.k)", "k": "[6] (g g.k)", "v": "[6] (g g.v)", "o": "(g g.r g.v) [6]"},
    sizes={"g": 2},
)
def grouped_queries():
    """Two groups of three query heads share a key head each."""

    def apply(p, x):
        q = jnp.reshape(x @ p["q"], (-1, 6, 4))
        k, v = (jnp.repeat(jnp.reshape(x @ p[n], (-1, 2, 4)), 3, axis=1) for n in "kv")
        y = attend(q, k, v)
        return y.reshape(y.shape[0], -1) @ p["o"]

    params = {"q": f32(6, 24), "k": f32(6, 8), "v": f32(6, 8), "o": f32(24, 6)}
    return apply, params, f32(5, 6)


@network({"q": "[6] h h.k", "k": "[6] h h.k", "v": "[6] h h.v", "o": "h h.v [6]", "bias": "h [9]"})
def relative_positions():
    """A learned bias for each head and distance."""

    def apply(p, x):
        q, k, v = (jnp.einsum("td,dhk->thk", x, p[n]) for n in "qkv")
        distance = jnp.arange(5)[:, None] - jnp.arange(5)[None] + 4
        scores = jnp.einsum("thk,shk->hts", q, k) + p["bias"][:, distance]
        y = jnp.einsum("hts,shv->thv", jax.nn.softmax(scores), v)
        return jnp.einsum("thv,hvd->td", y, p["o"])

    params = {n: f32(6, 2, 4) for n in "qkv"} | {"o": f32(2, 4, 6), "bias": f32(2, 9)}
    return apply, params, f32(5, 6)


class Block(nn.Module):
    heads: int = 2
    hidden: int = 5

    @nn.compact
    def __call__(self, x, mask=None):
        y = nn.LayerNorm(name="norm1")(x)
        x = x + nn.MultiHeadDotProductAttention(self.heads, name="attention")(y, y, mask=mask)
        y = nn.LayerNorm(name="norm2")(x)
        y = nn.gelu(nn.Dense(self.hidden, name="up")(y))
        return x + nn.Dense(x.shape[-1], name="down")(y)


BLOCK = {
    "norm1/scale": "d", "norm1/bias": "d", "norm2/scale": "d", "norm2/bias": "d",
    "attention/query/kernel": "d {h} {h}.k", "attention/query/bias": "{h} {h}.k",
    "attention/key/kernel": "d {h} {h}.k", "attention/key/bias": "{h} {h}.k",
    "attention/value/kernel": "d {h} {h}.v", "attention/value/bias": "{h} {h}.v",
    "attention/out/kernel": "{h} {h}.v d", "attention/out/bias": "d",
    "up/kernel": "d {m}", "up/bias": "{m}", "down/kernel": "{m} d", "down/bias": "d",
}  # fmt: skip


def block_spec(prefix: str, index: int = 0) -> dict[str, str]:
    """What is expected of a block: its own heads and hidden units, the common stream."""
    return {
        f"{prefix}/{path}": spec.format(h=f"h{index}", m=f"m{index}")
        for path, spec in BLOCK.items()
    }


class Gpt(nn.Module):
    layers: int = 2
    vocabulary: int = 7
    width: int = 4
    context: int = 5
    heads: int = 2
    hidden: int = 5

    @nn.compact
    def __call__(self, tokens):
        embed = nn.Embed(self.vocabulary, self.width, name="token")
        positions = self.param("positions", nn.initializers.normal(), (self.context, self.width))
        x = embed(tokens) + positions[None, : tokens.shape[1]]
        mask = nn.make_causal_mask(tokens)
        for i in range(self.layers):
            x = Block(self.heads, self.hidden, name=f"block{i}")(x, mask)
        return embed.attend(nn.LayerNorm(name="norm")(x))


@network(
    {
        "params/token/embedding": "[7] d", "params/positions": "[5] d",
        "params/norm/scale": "d", "params/norm/bias": "d",
        **block_spec("params/block0", 0), **block_spec("params/block1", 1),
    },
    dead=("params/block0/attention/key/bias", "params/block1/attention/key/bias"),
)  # fmt: skip
def gpt_tied():
    return linen(Gpt(), i32(2, 5))


class Vit(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Conv(4, (2, 2), strides=(2, 2), padding="VALID", name="patches")(x)
        x = x.reshape(x.shape[0], -1, 4)
        token = self.param("class", nn.initializers.normal(), (1, 1, 4))
        x = jnp.concatenate([jnp.broadcast_to(token, (x.shape[0], 1, 4)), x], axis=1)
        x = x + self.param("positions", nn.initializers.normal(), (1, 5, 4))
        x = Block(name="block")(x)
        return nn.Dense(3, name="head")(nn.LayerNorm(name="norm")(x)[:, 0])


@network(
    {
        "params/patches/kernel": "[2 2 3] d", "params/patches/bias": "d",
        "params/class": "[1 1] d", "params/positions": "[1 5] d",
        "params/norm/scale": "d", "params/norm/bias": "d",
        "params/head/kernel": "d [3]", "params/head/bias": "[3]",
        **block_spec("params/block"),
    },
    dead=("params/block/attention/key/bias",),
)  # fmt: skip
def vit():
    return linen(Vit(), f32(2, 4, 4, 3))


class ScannedGpt(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Dense(4, name="embed")(x)
        blocks = nn.scan(
            lambda block, x, _: (block(x), None),
            variable_axes={"params": 0},
            split_rngs={"params": True},
            length=2,
        )
        x, _ = blocks(Block(name="block"), x, None)
        return nn.Dense(3, name="out")(x)


@network(
    {
        "params/embed/kernel": "[6] d", "params/embed/bias": "d",
        "params/out/kernel": "d [3]", "params/out/bias": "[3]",
        **{
            f"params/block/{path}": "[l] " + spec.format(h="l.h", m="l.m")
            for path, spec in BLOCK.items()
        },
    },
    dead=("params/block/attention/key/bias",),
)  # fmt: skip
def scanned_transformer():
    """Blocks stacked for a scan: heads and hidden units of their own in each."""
    return linen(ScannedGpt(), f32(2, 3, 6))
