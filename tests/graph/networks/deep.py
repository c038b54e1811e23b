"""Networks at their real depth and reduced width: verified numerically."""

from functools import partial

import flax.linen as nn
import jax.numpy as jnp

from ._case import f32, i32, linen, network
from .attention import Gpt


class ResNet(nn.Module):
    """ResNet with basic (18) or bottleneck (50) blocks, inference mode."""

    stages: tuple[int, ...]
    bottleneck: bool
    width: int = 2
    classes: int = 3

    @nn.compact
    def __call__(self, x):
        conv = partial(nn.Conv, use_bias=False)
        norm = partial(nn.BatchNorm, use_running_average=True)
        x = nn.relu(norm()(conv(self.width, (7, 7), (2, 2))(x)))
        x = nn.max_pool(x, (3, 3), (2, 2), padding="SAME")
        for stage, blocks in enumerate(self.stages):
            width = self.width * 2**stage
            for block in range(blocks):
                strides = (2, 2) if stage and not block else (1, 1)
                out = width * (4 if self.bottleneck else 1)
                if self.bottleneck:
                    y = nn.relu(norm()(conv(width, (1, 1))(x)))
                    y = nn.relu(norm()(conv(width, (3, 3), strides)(y)))
                    y = norm()(conv(out, (1, 1))(y))
                else:
                    y = nn.relu(norm()(conv(width, (3, 3), strides)(x)))
                    y = norm()(conv(out, (3, 3))(y))
                if x.shape != y.shape:
                    x = norm()(conv(out, (1, 1), strides)(x))
                x = nn.relu(x + y)
        return nn.Dense(self.classes)(jnp.mean(x, axis=(1, 2)))


@network()
def resnet18():
    return linen(ResNet((2, 2, 2, 2), bottleneck=False), f32(1, 32, 32, 3))


@network()
def resnet50():
    return linen(ResNet((3, 4, 6, 3), bottleneck=True), f32(1, 32, 32, 3))


@network()
def gpt2():
    return linen(Gpt(layers=12, vocabulary=11, width=6, context=4, heads=2, hidden=8), i32(1, 4))


class Mixer(nn.Module):
    layers: int = 8

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(5, (2, 2), (2, 2))(x)
        x = x.reshape(x.shape[0], -1, 5)
        for _ in range(self.layers):
            y = jnp.swapaxes(nn.LayerNorm()(x), 1, 2)
            y = nn.Dense(x.shape[1])(nn.gelu(nn.Dense(3)(y)))
            x = x + jnp.swapaxes(y, 1, 2)
            y = nn.LayerNorm()(x)
            x = x + nn.Dense(5)(nn.gelu(nn.Dense(7)(y)))
        return nn.Dense(2)(jnp.mean(nn.LayerNorm()(x), axis=1))


@network()
def mixer():
    return linen(Mixer(), f32(1, 4, 4, 3))


class T5(nn.Module):
    """Encoder and decoder with cross attention, relative positions and a tied embedding."""

    layers: int = 6
    width: int = 4

    @nn.compact
    def __call__(self, source, target):
        embed = nn.Embed(9, self.width)
        encoded = embed(source)
        for i in range(self.layers):
            encoded = encoded + self._attend(encoded, encoded, f"encoder{i}")
            encoded = encoded + self._feed(encoded)
        decoded = embed(target)
        for i in range(self.layers):
            decoded = decoded + self._attend(decoded, decoded, f"decoder{i}", causal=True)
            decoded = decoded + self._attend(decoded, nn.RMSNorm()(encoded), f"cross{i}")
            decoded = decoded + self._feed(decoded)
        return embed.attend(nn.RMSNorm()(decoded))

    def _attend(self, x, memory, name, causal=False):
        x = nn.RMSNorm()(x)
        memory = nn.RMSNorm()(memory) if memory.shape == x.shape else memory
        project = partial(nn.DenseGeneral, (2, 2), use_bias=False)
        q, k, v = project()(x), project()(memory), project()(memory)
        distance = jnp.arange(x.shape[1])[:, None] - jnp.arange(memory.shape[1])[None]
        table = self.param(f"{name}_distance", nn.initializers.normal(), (7, 2))
        scores = jnp.einsum("bthk,bshk->bhts", q, k)
        scores = scores + jnp.transpose(table[distance + 3], (2, 0, 1))[None]
        if causal:
            scores = jnp.where(distance[None, None] >= 0, scores, -1e9)
        y = jnp.einsum("bhts,bshv->bthv", nn.softmax(scores), v)
        return nn.DenseGeneral(self.width, axis=(-2, -1), use_bias=False)(y)

    def _feed(self, x):
        y = nn.RMSNorm()(x)
        gate, up = (nn.Dense(3, use_bias=False)(y) for _ in range(2))
        return nn.Dense(self.width, use_bias=False)(nn.gelu(gate) * up)


@network()
def t5():
    return linen(T5(), i32(1, 4), i32(1, 3))
