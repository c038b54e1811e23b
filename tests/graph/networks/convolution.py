"""Convolutional networks and normalisation."""

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp

from ._case import f32, linen, network


class Cnn(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(4, (3, 3))(x))
        x = nn.max_pool(x, (2, 2), (2, 2))
        x = nn.relu(nn.Conv(5, (3, 3))(x))
        x = x.reshape(x.shape[0], -1)
        x = nn.relu(nn.Dense(6)(x))
        return nn.Dense(2)(x)


@network(
    {
        "params/Conv_0/kernel": "[3 3 3] a", "params/Conv_0/bias": "a",
        "params/Conv_1/kernel": "[3 3] a b", "params/Conv_1/bias": "b",
        "params/Dense_0/kernel": "([2 3] b) c", "params/Dense_0/bias": "c",
        "params/Dense_1/kernel": "c [2]", "params/Dense_1/bias": "[2]",
    }
)  # fmt: skip
def cnn_linen():
    return linen(Cnn(), f32(2, 4, 6, 3))


@network(
    {
        "layers/0/weight": "a [3 3 3]", "layers/0/bias": "a [1 1]",
        "layers/2/weight": "b a [3 3]", "layers/2/bias": "b [1 1]",
        "layers/5/weight": "[2] (b [2 3])", "layers/5/bias": "[2]",
    },
    narrow=True,
)  # fmt: skip
def cnn_equinox():
    keys = jax.random.split(jax.random.key(0), 3)
    model = eqx.nn.Sequential(
        [
            eqx.nn.Conv2d(3, 4, 3, padding=1, dtype=jnp.float32, key=keys[0]),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.Conv2d(4, 5, 3, padding=1, dtype=jnp.float32, key=keys[1]),
            eqx.nn.MaxPool2d(2, 2),
            eqx.nn.Lambda(jnp.ravel),
            eqx.nn.Linear(30, 2, dtype=jnp.float32, key=keys[2]),
        ]
    )
    params, static = eqx.partition(model, eqx.is_array)

    def apply(params, x):
        return jax.vmap(eqx.combine(params, static))(x)

    return apply, jax.eval_shape(lambda: params), f32(2, 3, 4, 6)


class Normed(nn.Module):
    norm: type[nn.Module]
    arguments: dict

    @nn.compact
    def __call__(self, x):
        x = nn.relu(self.norm(**self.arguments)(nn.Conv(6, (3, 3))(x)))
        return nn.Dense(2)(jnp.mean(x, axis=(1, 2)))


@network(
    {
        "params/Conv_0/kernel": "[3 3 3] a", "params/Conv_0/bias": "a",
        "params/BatchNorm_0/scale": "a", "params/BatchNorm_0/bias": "a",
        "batch_stats/BatchNorm_0/mean": "a", "batch_stats/BatchNorm_0/var": "a",
        "params/Dense_0/kernel": "a [2]", "params/Dense_0/bias": "[2]",
    }
)  # fmt: skip
def batch_norm():
    return linen(Normed(nn.BatchNorm, {"use_running_average": True}), f32(2, 4, 4, 3))


@network(
    {
        "params/Conv_0/kernel": "[3 3 3] a", "params/Conv_0/bias": "a",
        "params/BatchNorm_0/scale": "a", "params/BatchNorm_0/bias": "a",
        "batch_stats/BatchNorm_0/mean": "a", "batch_stats/BatchNorm_0/var": "a",
        "params/Dense_0/kernel": "a [2]", "params/Dense_0/bias": "[2]",
    },
)  # fmt: skip
def batch_norm_training():
    """Batch statistics are returned, and permute as they came in."""
    module = Normed(nn.BatchNorm, {"use_running_average": False})
    _, shapes, x = linen(module, f32(2, 4, 4, 3))
    return (lambda v, x: module.apply(v, x, mutable=["batch_stats"])), shapes, x


@network(
    {
        "params/Conv_0/kernel": "[3 3 3] a", "params/Conv_0/bias": "a",
        "params/LayerNorm_0/scale": "a", "params/LayerNorm_0/bias": "a",
        "params/Dense_0/kernel": "a [2]", "params/Dense_0/bias": "[2]",
    }
)  # fmt: skip
def layer_norm():
    return linen(Normed(nn.LayerNorm, {}), f32(2, 4, 4, 3))


@network(
    {
        "params/Conv_0/kernel": "[3 3 3] (g g.c)", "params/Conv_0/bias": "(g g.c)",
        "params/GroupNorm_0/scale": "(g g.c)", "params/GroupNorm_0/bias": "(g g.c)",
        "params/Dense_0/kernel": "(g g.c) [2]", "params/Dense_0/bias": "[2]",
    },
    sizes={"g": 2},
)  # fmt: skip
def group_norm():
    return linen(Normed(nn.GroupNorm, {"num_groups": 2}), f32(2, 4, 4, 3))


class ResidualStage(nn.Module):
    """Two residual blocks, the first with a projection shortcut."""

    @nn.compact
    def __call__(self, x):
        for block in range(2):
            y = nn.relu(nn.Conv(4, (3, 3), use_bias=False, name=f"a{block}")(x))
            y = nn.Conv(5, (3, 3), use_bias=False, name=f"b{block}")(y)
            if block == 0:
                x = nn.Conv(5, (1, 1), use_bias=False, name="shortcut")(x)
            x = nn.relu(x + y)
        return nn.Dense(2, use_bias=False, name="out")(jnp.mean(x, axis=(1, 2)))


@network(
    {
        "params/a0/kernel": "[3 3 3] m", "params/b0/kernel": "[3 3] m s",
        "params/shortcut/kernel": "[1 1 3] s",
        "params/a1/kernel": "[3 3] s n", "params/b1/kernel": "[3 3] n s",
        "params/out/kernel": "s [2]",
    }
)  # fmt: skip
def residual_projection():
    return linen(ResidualStage(), f32(2, 4, 4, 3))


class Grouped(nn.Module):
    features: int
    groups: int

    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(6, (1, 1), use_bias=False, name="stem")(x))
        x = nn.Conv(
            self.features, (3, 3), feature_group_count=self.groups, use_bias=False, name="mid"
        )(x)
        return nn.Dense(2, use_bias=False, name="out")(jnp.mean(nn.relu(x), axis=(1, 2)))


@network(
    {
        "params/stem/kernel": "[1 1 3] (g g.i)",
        "params/mid/kernel": "[3 3] g.i (g g.o)",
        "params/out/kernel": "(g g.o) [2]",
    }
)  # fmt: skip
def grouped_convolution():
    return linen(Grouped(8, 2), f32(2, 4, 4, 3))


@network(
    {
        "params/stem/kernel": "[1 1 3] g",
        "params/mid/kernel": "[3 3 1] g",
        "params/out/kernel": "g [2]",
    }
)  # fmt: skip
def depthwise_convolution():
    return linen(Grouped(6, 6), f32(2, 4, 4, 3))


class SqueezeExcite(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Conv(6, (3, 3), use_bias=False, name="conv")(x)
        gate = jnp.mean(x, axis=(1, 2), keepdims=True)
        gate = nn.relu(nn.Conv(3, (1, 1), use_bias=False, name="squeeze")(gate))
        x = x * nn.sigmoid(nn.Conv(6, (1, 1), use_bias=False, name="excite")(gate))
        return nn.Dense(2, use_bias=False, name="out")(jnp.mean(nn.relu(x), axis=(1, 2)))


@network(
    {
        "params/conv/kernel": "[3 3 3] a", "params/squeeze/kernel": "[1 1] a r",
        "params/excite/kernel": "[1 1] r a", "params/out/kernel": "a [2]",
    }
)  # fmt: skip
def squeeze_and_excitation():
    return linen(SqueezeExcite(), f32(2, 4, 4, 3))


@network({"conv": "[3 3 2] (a [2 2])", "mix": "[1 1] a [2]"})
def pixel_shuffle():
    """Channels `(a 2 2)` become an image of twice the size."""

    def apply(p, x):
        y = _conv(x, p["conv"])
        b, h, w, _ = y.shape
        y = y.reshape(b, h, w, 3, 2, 2).transpose(0, 1, 4, 2, 5, 3).reshape(b, 2 * h, 2 * w, 3)
        return _conv(jnp.tanh(y), p["mix"])

    return apply, {"conv": f32(3, 3, 2, 12), "mix": f32(1, 1, 3, 2)}, f32(2, 4, 4, 2)


class UNet(nn.Module):
    @nn.compact
    def __call__(self, x):
        first = nn.relu(nn.Conv(3, (3, 3), use_bias=False, name="down1")(x))
        second = nn.max_pool(first, (2, 2), (2, 2))
        second = nn.relu(nn.Conv(4, (3, 3), use_bias=False, name="down2")(second))
        up = jnp.repeat(jnp.repeat(second, 2, axis=1), 2, axis=2)
        up = nn.relu(nn.Conv(5, (3, 3), use_bias=False, name="up")(up))
        joined = jnp.concatenate([up, first, x], axis=-1)
        return nn.Conv(2, (3, 3), use_bias=False, name="out")(joined)


@network(
    {
        "params/down1/kernel": "[3 3 2] a", "params/down2/kernel": "[3 3] a b",
        "params/up/kernel": "[3 3] b c", "params/out/kernel": "[3 3] (c + a + [2]) [2]",
    }
)  # fmt: skip
def unet():
    return linen(UNet(), f32(1, 4, 4, 2))


def _conv(x, kernel):
    return jax.lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
