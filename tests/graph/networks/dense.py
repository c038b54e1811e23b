"""Fully connected networks, in every library, and variations on them."""

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
from flax import nnx

from ._case import f32, linen, network


class Mlp(nn.Module):
    widths: tuple[int, ...] = (6, 5, 3)

    @nn.compact
    def __call__(self, x):
        for width in self.widths[:-1]:
            x = nn.relu(nn.Dense(width)(x))
        return nn.Dense(self.widths[-1])(x)


@network(
    {
        "params/Dense_0/kernel": "[4] a", "params/Dense_0/bias": "a",
        "params/Dense_1/kernel": "a b", "params/Dense_1/bias": "b",
        "params/Dense_2/kernel": "b [3]", "params/Dense_2/bias": "[3]",
    }
)  # fmt: skip
def mlp_linen():
    return linen(Mlp(), f32(2, 4))


@network(
    {
        "first/kernel": "[4] a", "first/bias": "a",
        "second/kernel": "a b", "second/bias": "b",
        "third/kernel": "b [3]", "third/bias": "[3]",
    }
)  # fmt: skip
def mlp_nnx():
    class Model(nnx.Module):
        def __init__(self, rngs):
            self.first = nnx.Linear(4, 6, rngs=rngs)
            self.second = nnx.Linear(6, 5, rngs=rngs)
            self.third = nnx.Linear(5, 3, rngs=rngs)

        def __call__(self, x):
            return self.third(jnp.tanh(self.second(jnp.tanh(self.first(x)))))

    graph, state = nnx.split(Model(nnx.Rngs(0)))
    pure = nnx.to_pure_dict(state)

    def apply(params, x):
        merged = nnx.clone(state) if hasattr(nnx, "clone") else state
        nnx.replace_by_pure_dict(merged, params)
        return nnx.merge(graph, merged)(x)

    return apply, jax.eval_shape(lambda: pure), f32(2, 4)


@network(
    {
        "mlp/~/linear_0/w": "[4] a", "mlp/~/linear_0/b": "a",
        "mlp/~/linear_1/w": "a b", "mlp/~/linear_1/b": "b",
        "mlp/~/linear_2/w": "b [3]", "mlp/~/linear_2/b": "[3]",
    }
)  # fmt: skip
def mlp_haiku():
    model = hk.without_apply_rng(hk.transform(lambda x: hk.nets.MLP([6, 5, 3])(x)))
    params = jax.eval_shape(lambda: model.init(jax.random.key(0), jnp.zeros((2, 4))))
    return model.apply, params, f32(2, 4)


@network(
    {
        "layers/0/weight": "a [4]", "layers/0/bias": "a",
        "layers/1/weight": "b a", "layers/1/bias": "b",
        "layers/2/weight": "[3] b", "layers/2/bias": "[3]",
    }
)  # fmt: skip
def mlp_equinox():
    model = eqx.nn.MLP(4, 3, 5, 2, key=jax.random.key(0))
    params, static = eqx.partition(model, eqx.is_array)

    def apply(params, x):
        return jax.vmap(eqx.combine(params, static))(x)

    return apply, jax.eval_shape(lambda: params), f32(2, 4)


@network({"w1": "[4] a", "b1": "a", "w2": "a [3]"})
def mlp_loss():
    """A loss as well as a forward pass."""

    def loss(p, x, y):
        logits = jnp.tanh(x @ p["w1"] + p["b1"][None]) @ p["w2"]
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1)
        return -jnp.mean(chosen)

    params = {"w1": f32(4, 6), "b1": f32(6), "w2": f32(6, 3)}
    return loss, params, f32(2, 4), jax.ShapeDtypeStruct((2,), jnp.int32)


@network({"w1": "[4] a", "w2": "a b"})
def mlp_gradient():
    """A gradient permutes as its parameters do; no output is left to be fixed."""

    def gradient(p, x):
        return jax.grad(lambda p: jnp.sum((jnp.tanh(x @ p["w1"]) @ p["w2"]) ** 2))(p)

    return gradient, {"w1": f32(4, 6), "w2": f32(6, 3)}, f32(2, 4)


@network({"w0": "[4] a", "w1": "a b", "w2": "b a", "w3": "a [3]"})
def residual():
    def apply(p, x):
        x = x @ p["w0"]
        x = x + jnp.tanh(x @ p["w1"]) @ p["w2"]
        return x @ p["w3"]

    return apply, {"w0": f32(4, 6), "w1": f32(6, 5), "w2": f32(5, 6), "w3": f32(6, 3)}, f32(2, 4)


@network({"w1": "[4] a", "w2": "(a + [4]) b", "w3": "(b + a + [4]) [3]"})
def dense_concatenation():
    def apply(p, x):
        x = jnp.concatenate([jnp.tanh(x @ p["w1"]), x], axis=-1)
        x = jnp.concatenate([jnp.tanh(x @ p["w2"]), x], axis=-1)
        return x @ p["w3"]

    return apply, {"w1": f32(4, 6), "w2": f32(10, 5), "w3": f32(15, 3)}, f32(2, 4)


@network({"w": "[4] [6]", "down": "[4] r", "up": "r [6]"})
def lora():
    def apply(p, x):
        return jnp.tanh(x @ (p["w"] + p["down"] @ p["up"]))

    return apply, {"w": f32(4, 6), "down": f32(4, 2), "up": f32(2, 6)}, f32(2, 4)


@network({"w1": "[2] a", "b1": "a", "w2": "a b", "b2": "b", "w3": "b [1]"})
def siren():
    def apply(p, x):
        x = jnp.sin(30.0 * (x @ p["w1"] + p["b1"][None]))
        return jnp.sin(30.0 * (x @ p["w2"] + p["b2"][None])) @ p["w3"]

    params = {"w1": f32(2, 6), "b1": f32(6), "w2": f32(6, 5), "b2": f32(5), "w3": f32(5, 1)}
    return apply, params, f32(3, 2)


@network({"up": "[4] (2 m)", "down": "m [4]"})
def gated_mlp():
    def apply(p, x):
        gate, value = jnp.split(x @ p["up"], 2, axis=-1)
        return (jax.nn.silu(gate) * value) @ p["down"]

    return apply, {"up": f32(4, 10), "down": f32(5, 4)}, f32(2, 4)


@network({"w1": "[4] [8]", "w2": "[8] [3]"})
def dropout():
    """Dropout with a fixed key."""

    def apply(p, x):
        x = jnp.tanh(x @ p["w1"])
        keep = jax.random.bernoulli(jax.random.key(3), 0.5, x.shape)
        return jnp.where(keep, x, 0.0) @ p["w2"]

    return apply, {"w1": f32(4, 8), "w2": f32(8, 3)}, f32(2, 4)


@network({"w1": "m [4] m.a", "b1": "m m.a", "w2": "m m.a [3]"})
def averaged_ensemble():
    def one(p, x):
        return jnp.tanh(x @ p["w1"] + p["b1"][None]) @ p["w2"]

    def apply(p, x):
        return jnp.mean(jax.vmap(one, in_axes=(0, None))(p, x), axis=0)

    params = {"w1": f32(3, 4, 5), "b1": f32(3, 5), "w2": f32(3, 5, 3)}
    return apply, params, f32(2, 4)


@network({"router": "[4] e", "up": "e [4] e.m", "down": "e e.m [4]"})
def soft_experts():
    """A soft mixture: every expert on every input, weighted."""

    def apply(p, x):
        weights = jax.nn.softmax(x @ p["router"])
        hidden = jax.nn.relu(jnp.einsum("bd,edm->bem", x, p["up"]))
        return jnp.einsum("be,bem,emd->bd", weights, hidden, p["down"])

    params = {"router": f32(4, 3), "up": f32(3, 4, 5), "down": f32(3, 5, 4)}
    return apply, params, f32(2, 4)


@network({"embed": "[4] d", "up": "[l] d l.m", "down": "[l] l.m d", "out": "d [2]"})
def scanned_layers():
    """Layers stacked along an axis and scanned over."""

    def apply(p, x):
        def layer(x, w):
            return x + jnp.tanh(x @ w["up"]) @ w["down"], None

        x, _ = jax.lax.scan(layer, x @ p["embed"], {"up": p["up"], "down": p["down"]})
        return x @ p["out"]

    params = {"embed": f32(4, 6), "up": f32(3, 6, 5), "down": f32(3, 5, 6), "out": f32(6, 2)}
    return apply, params, f32(2, 4)


@network({"embed": "[4] d", "up": "[l] d l.m", "down": "[l] l.m d"})
def indexed_layers():
    """Layers stacked along an axis and indexed one by one."""

    def apply(p, x):
        x = x @ p["embed"]
        for i in range(3):
            x = x + jnp.tanh(x @ p["up"][i]) @ p["down"][i]
        return jnp.sum(x**2)

    return apply, {"embed": f32(4, 6), "up": f32(3, 6, 5), "down": f32(3, 5, 6)}, f32(2, 4)
