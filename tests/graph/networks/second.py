"""Networks of the other modules written again with another library."""

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp

from ._case import f32, i32, linen, network
from .attention import attend

F32 = jnp.float32
KEY = jax.random.key(0)


def equinox(model, *inputs, call=None):
    """An Equinox model, batched over its first input, as `(fn, params, *inputs)`."""
    params, static = eqx.partition(model, eqx.is_array)
    call = call or (lambda model, *xs: jax.vmap(model)(*xs))
    return (
        (lambda params, *xs: call(eqx.combine(params, static), *xs)),
        jax.eval_shape(lambda: params),
        *inputs,
    )


def haiku(forward, *inputs):
    """A Haiku function without state as `(fn, params, *inputs)`."""
    model = hk.without_apply_rng(hk.transform(forward))
    concrete = [jnp.zeros(x.shape, x.dtype) for x in inputs]
    return model.apply, jax.eval_shape(lambda: model.init(KEY, *concrete)), *inputs


def pool(x):
    return jnp.mean(x, axis=(-2, -1))


@network(
    {
        "layers/0/weight": "(g g.c) [3 3 3]", "layers/0/bias": "(g g.c) [1 1]",
        "layers/1/weight": "(g g.c)", "layers/1/bias": "(g g.c)",
        "layers/4/weight": "[2] (g g.c)", "layers/4/bias": "[2]",
    },
    sizes={"g": 2},
    narrow=True,
)  # fmt: skip
def group_norm_equinox():
    model = eqx.nn.Sequential(
        [
            eqx.nn.Conv2d(3, 6, 3, padding=1, dtype=F32, key=KEY),
            eqx.nn.GroupNorm(2, 6, dtype=F32),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.Lambda(pool),
            eqx.nn.Linear(6, 2, dtype=F32, key=KEY),
        ]
    )
    return equinox(model, f32(2, 3, 4, 4))


@network(
    {
        "layers/0/weight": "(g g.i) [3 1 1]", "layers/1/weight": "(g g.o) g.i [3 3]",
        "layers/4/weight": "[2] (g g.o)", "layers/4/bias": "[2]",
    },
    narrow=True,
)  # fmt: skip
def grouped_convolution_equinox():
    model = eqx.nn.Sequential(
        [
            eqx.nn.Conv2d(3, 6, 1, use_bias=False, dtype=F32, key=KEY),
            eqx.nn.Conv2d(6, 8, 3, padding=1, groups=2, use_bias=False, dtype=F32, key=KEY),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.Lambda(pool),
            eqx.nn.Linear(8, 2, dtype=F32, key=KEY),
        ]
    )
    return equinox(model, f32(2, 3, 4, 4))


@network(
    {
        "conv/w": "[3 3 3] c", "conv/b": "c", "layer_norm/scale": "c", "layer_norm/offset": "c",
        "linear/w": "c [2]", "linear/b": "[2]",
    }
)  # fmt: skip
def layer_norm_haiku():
    def forward(x):
        x = hk.Conv2D(5, 3, name="conv")(x)
        x = jax.nn.relu(hk.LayerNorm(-1, True, True)(x))
        return hk.Linear(2)(jnp.mean(x, axis=(1, 2)))

    return haiku(forward, f32(2, 4, 4, 3))


@network(
    {
        "params/conv/w": "[3 3 3] c", "params/batch_norm/scale": "[1 1 1] c",
        "params/batch_norm/offset": "[1 1 1] c",
        "params/linear/w": "c [2]", "params/linear/b": "[2]",
        **{
            f"state/batch_norm/~/{kind}_ema/{name}": "[1 1 1] c"
            for kind in ("mean", "var") for name in ("average", "hidden")
        },
        **{f"state/batch_norm/~/{kind}_ema/counter": "" for kind in ("mean", "var")},
    },
    narrow=True,
    dead=tuple(f"state/batch_norm/~/{kind}_ema/average" for kind in ("mean", "var")),
)  # fmt: skip
def batch_norm_haiku():
    """Training mode: the state that is returned permutes as the one that came in."""

    def forward(x):
        x = hk.Conv2D(5, 3, with_bias=False, name="conv")(x)
        x = jax.nn.relu(hk.BatchNorm(True, True, 0.9)(x, is_training=True))
        return hk.Linear(2)(jnp.mean(x, axis=(1, 2)))

    model = hk.without_apply_rng(hk.transform_with_state(forward))
    params, state = jax.eval_shape(lambda: model.init(KEY, jnp.zeros((2, 4, 4, 3), F32)))

    def apply(variables, x):
        y, state = model.apply(variables["params"], variables["state"], x)
        return {"y": y, "state": state}

    return apply, {"params": params, "state": state}, f32(2, 4, 4, 3)


@network(
    {
        "stem/w": "[1 1 3] c", "depthwise_conv2_d/w": "[3 3 1] c", "out/w": "c [2]",
    }
)  # fmt: skip
def depthwise_convolution_haiku():
    def forward(x):
        x = jax.nn.relu(hk.Conv2D(6, 1, with_bias=False, name="stem")(x))
        x = jax.nn.relu(hk.DepthwiseConv2D(1, 3, with_bias=False)(x))
        return hk.Linear(2, with_bias=False, name="out")(jnp.mean(x, axis=(1, 2)))

    return haiku(forward, f32(2, 4, 4, 3))


@network(
    {
        "0/weight": "s [4]", "1/0/weight": "a s", "1/1/weight": "s a",
        "2/0/weight": "b s", "2/1/weight": "s b", "3/weight": "[2] s",
    }
)  # fmt: skip
def residual_equinox():
    def linear(inputs, outputs):
        return eqx.nn.Linear(inputs, outputs, use_bias=False, dtype=F32, key=KEY)

    model = (linear(4, 6), (linear(6, 5), linear(5, 6)), (linear(6, 3), linear(3, 6)), linear(6, 2))

    def call(model, x):
        def one(x):
            x = model[0](x)
            for up, down in model[1:3]:
                x = x + down(jnp.tanh(up(x)))
            return model[3](x)

        return jax.vmap(one)(x)

    return equinox(model, f32(2, 4), call=call)


@network(
    {
        f"multi_head_attention/{name}/w": f"[6] (h h.{inner})"
        for name, inner in (("query", "k"), ("key", "k"), ("value", "v"))
    }
    | {"multi_head_attention/linear/w": "(h h.v) [6]"},
    sizes={"h": 2},
)
def attention_haiku():
    def forward(x):
        attention = hk.MultiHeadAttention(
            2, 3, value_size=4, model_size=6, w_init=hk.initializers.RandomNormal(), with_bias=False
        )
        return attention(x, x, x)

    return haiku(forward, f32(5, 6))


STACK = "__layer_stack_no_per_layer"


@network(
    {
        "embed/w": "[4] d", "out/w": "d [2]",
        f"{STACK}/up/w": "[l] d l.m", f"{STACK}/down/w": "[l] l.m d",
    }
)  # fmt: skip
def scanned_layers_haiku():
    def forward(x):
        def layer(x):
            y = jnp.tanh(hk.Linear(5, with_bias=False, name="up")(x))
            return x + hk.Linear(6, with_bias=False, name="down")(y)

        x = hk.Linear(6, with_bias=False, name="embed")(x)
        x = hk.experimental.layer_stack(3)(layer)(x)
        return hk.Linear(2, with_bias=False, name="out")(x)

    return haiku(forward, f32(2, 4))


@network({"layers/0/weight": "m m.a [4]", "layers/0/bias": "m m.a",
          "layers/1/weight": "m [3] m.a", "layers/1/bias": "m [3]"},
         hidden=("layers/1/bias place 0 of part [out]",))  # fmt: skip
def averaged_ensemble_equinox():
    """The last biases are only averaged, so they may also permute alone: not found."""
    keys = jax.random.split(KEY, 3)
    model = eqx.filter_vmap(lambda key: eqx.nn.MLP(4, 3, 5, 1, dtype=F32, key=key))(keys)

    def call(model, x):
        def predict(member, x):
            return jax.vmap(member)(x)

        return jnp.mean(eqx.filter_vmap(predict, in_axes=(eqx.if_array(0), None))(model, x), 0)

    return equinox(model, f32(2, 4), call=call)


@network({"linear/w": "[4] [6]", "linear/b": "[6]", "linear_1/w": "[6] [3]", "linear_1/b": "[3]"})
def dropout_haiku():
    def forward(x):
        x = jnp.tanh(hk.Linear(6)(x))
        return hk.Linear(3)(hk.dropout(hk.next_rng_key(), 0.5, x))

    model = hk.transform(forward)
    params = jax.eval_shape(lambda: model.init(KEY, jnp.zeros((2, 4), F32)))
    return (lambda params, x: model.apply(params, jax.random.key(1), x)), params, f32(2, 4)


@network({"embed/embeddings": "[7] d", "positions": "[5] d", "up/w": "d (2 m)", "down/w": "m d"})
def gated_language_model_haiku():
    """A tied embedding, learned positions and a gated block."""

    def forward(tokens):
        embed = hk.Embed(7, 4, name="embed")
        x = embed(tokens) + hk.get_parameter("positions", (5, 4), init=hk.initializers.Constant(0))
        gate, value = jnp.split(hk.Linear(10, with_bias=False, name="up")(x), 2, axis=-1)
        x = x + hk.Linear(4, with_bias=False, name="down")(jax.nn.silu(gate) * value)
        return x @ embed.embeddings.T

    fn, params, tokens = haiku(forward, i32(5))
    names = {(m, n): n if m == "~" else f"{m}/{n}" for m, p in params.items() for n in p}
    flat = {name: params[m][n] for (m, n), name in names.items()}

    def apply(flat, tokens):
        nested = {m: {n: flat[names[m, n]] for n in p} for m, p in params.items()}
        return fn(nested, tokens)

    return apply, flat, tokens


class DenseNetBlock(nn.Module):
    @nn.compact
    def __call__(self, x):
        for i in range(2):
            y = nn.Conv(3 + i, (3, 3), use_bias=False, name=f"conv{i}")(nn.relu(x))
            x = jnp.concatenate([x, y], axis=-1)
        return nn.Dense(2, use_bias=False, name="out")(jnp.mean(x, axis=(1, 2)))


@network(
    {
        "params/conv0/kernel": "[3 3 2] a", "params/conv1/kernel": "[3 3] ([2] + a) b",
        "params/out/kernel": "([2] + a + b) [2]",
    }
)  # fmt: skip
def dense_concatenation_linen():
    return linen(DenseNetBlock(), f32(2, 4, 4, 2))


@network(
    {"q": "[6] h h.k", "k": "[6] h h.k", "v": "[6] h h.v", "o": "h h.v d",
     "cls": "d", "head": "d [3]"},
)  # fmt: skip
def vit_equinox_style():
    """A class token as a plain array, attention batched with vmap."""

    def one(p, x):
        q, k, v = (jnp.einsum("td,dhk->thk", x, p[n]) for n in "qkv")
        y = jnp.einsum("thv,hvd->td", attend(q, k, v), p["o"])
        y = jnp.concatenate([p["cls"][None], y])
        return jnp.tanh(y[0] + jnp.mean(y[1:], axis=0)) @ p["head"]

    params = {n: f32(6, 2, 4) for n in "qkv"} | {
        "o": f32(2, 4, 5), "cls": f32(5), "head": f32(5, 3),
    }  # fmt: skip
    return (lambda p, x: jax.vmap(one, in_axes=(None, 0))(p, x)), params, f32(2, 5, 6)
