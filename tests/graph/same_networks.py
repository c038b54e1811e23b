"""Networks that each library builds in its own way, here in plain JAX, and how to compare roles."""

from collections import Counter
from math import prod

import jax
import jax.numpy as jnp

from unf import WeightSpace

from .networks._case import f32, i32
from .networks.attention import attend


def sizes_by_role(space: WeightSpace) -> Counter:
    """For each leaf, how many entries it has along the axes of each role.

    Libraries order axes in other ways, split heads from features or not, and add axes of size one.
    """
    found = []
    for leaf in space.leaves:
        pairs = list(zip(leaf.shape, space.roles[leaf.path], strict=True))
        names = sorted({role for _, role in pairs})
        found.append(tuple((r, prod(n for n, other in pairs if other == r)) for r in names))
    return Counter(found)


def add(x, b):
    return x + jnp.broadcast_to(b, x.shape)


def mlp(p, x):
    return add(jax.nn.relu(add(x @ p["w1"], p["b1"])) @ p["w2"], p["b2"])


def cnn(p, x):
    x = jax.lax.conv_general_dilated(
        x, p["k"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    x = add(x, p["b"])
    groups = x.reshape(*x.shape[:-1], 2, 3)
    groups = groups - groups.mean((1, 2, 4), keepdims=True)
    groups = groups / jnp.sqrt(1e-5 + jnp.mean(groups**2, (1, 2, 4), keepdims=True))
    x = groups.reshape(x.shape) * p["scale"].reshape(1, 1, 1, -1)
    return add(jax.nn.relu(add(x, p["shift"])).mean((1, 2)) @ p["w"], p["out"])


def norm(x, scale, shift):
    x = x - x.mean(-1, keepdims=True)
    x = x / jnp.sqrt(1e-5 + jnp.mean(x**2, -1, keepdims=True))
    return add(x * jnp.broadcast_to(scale, x.shape), shift)


def block(p, tokens):
    """One sequence through an embedding, attention of two heads, and a hidden layer."""
    x = p["embed"][tokens]
    y = norm(x, p["scale1"], p["shift1"])
    heads = [(y @ p[n]).reshape(len(x), 2, 3) for n in "qkv"]
    x = x + attend(*heads).reshape(len(x), -1) @ p["o"]
    y = norm(x, p["scale2"], p["shift2"])
    return x + add(jax.nn.gelu(add(y @ p["up"], p["b1"])) @ p["down"], p["b2"])


def rnn(p, x):
    """[time, batch, 3] through a recurrent layer of 5 and a linear one."""

    def step(h, y):
        h = jnp.tanh(add(y @ p["w"], p["b"]) + h @ p["u"])
        return h, None

    h, _ = jax.lax.scan(step, jnp.zeros((x.shape[1], 5), x.dtype), x)
    return h @ p["out"]


PLAIN = {
    "mlp": (mlp, {"w1": f32(4, 6), "b1": f32(6), "w2": f32(6, 3), "b2": f32(3)}, f32(2, 4)),
    "cnn": (
        cnn,
        {
            "k": f32(3, 3, 4, 6), "b": f32(6), "scale": f32(6), "shift": f32(6),
            "w": f32(6, 2), "out": f32(2),
        },
        f32(2, 5, 5, 4),
    ),
    "block": (
        block,
        {
            "embed": f32(9, 4), "q": f32(4, 6), "k": f32(4, 6), "v": f32(4, 6), "o": f32(6, 4),
            "up": f32(4, 7), "b1": f32(7), "down": f32(7, 4), "b2": f32(4),
            "scale1": f32(4), "shift1": f32(4), "scale2": f32(4), "shift2": f32(4),
        },
        i32(5),
    ),
    "rnn": (
        rnn, {"w": f32(3, 5), "b": f32(5), "u": f32(5, 5), "out": f32(5, 2)}, f32(4, 2, 3),
    ),
}  # fmt: skip
"""Each network as `(fn, params, input)`."""
