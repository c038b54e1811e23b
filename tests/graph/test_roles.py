"""Roles of axes: how each parameter first meets activations, whatever the order of storage."""

from functools import cache, partial

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from jax import lax

import unf
from tests.graph.networks._case import f32, i32, linen
from tests.graph.networks.second import equinox, haiku
from tests.graph.same_networks import PLAIN, sizes_by_role
from tests.graph.test_random_programs import QUIET, Program, programs


def roles_of(fn, params, *inputs, **kwargs):
    found = unf.infer(fn, params, *inputs, **kwargs).roles
    return {path: " ".join(roles) for path, roles in found.items()}


def convolve(x, kernel, numbers, **kwargs):
    strides = (1,) * (x.ndim - 2)
    return lax.conv_general_dilated(x, kernel, strides, "SAME", dimension_numbers=numbers, **kwargs)


# --- one operation each ---------------------------------------------------------------------

X = f32(2, 4)
IMAGE = f32(2, 6, 6, 4)
TOKENS = i32(2, 5)


def both_ways(p, x):
    """A tied embedding: looked up, then contracted."""
    return p["w"][x] @ p["w"].T


def penalized(p, x):
    return jnp.sum(p["w"] ** 2) + jnp.sum(x @ p["w"])


def weight_normalized(p, x):
    length = jnp.sqrt(jnp.sum(p["v"] ** 2, axis=0, keepdims=True))
    return x @ (p["g"][None] * p["v"] / length)


def standardized(p, x):
    w = p["w"] - jnp.mean(p["w"], axis=0, keepdims=True)
    return x @ (w / jnp.std(w, axis=0, keepdims=True) * p["gain"][None])


def spectrally_normalized(p, x):
    return x @ (p["w"] / (p["u"] @ p["w"] @ p["v"]))


def rank_one(p, x):
    return x @ (p["a"][:, None] * p["b"][None])


def low_rank(p, x):
    return x @ (p["w"] + p["a"] @ p["b"])


def batch_norm(p, x):
    """Folded into one scale and one shift."""
    scale = p["gain"] * lax.rsqrt(p["var"] + 1e-5)
    return x * scale[None] + (p["bias"] - p["mean"] * scale)[None]


def layers_indexed_in_a_loop(p, x):
    return lax.fori_loop(0, 3, lambda i, x: jnp.tanh(x @ p["w"][i] + p["b"][i][None]), x)


def slices_of_a_filter(p, x):
    """A filter of 3 positions as one product for each."""
    x = jnp.pad(x, ((0, 0), (1, 1), (0, 0)))
    return sum(x[:, i : i + 5] @ p["w"][i] for i in range(3))


def patches(p, x):
    """A filter of 3×3 positions as one product with all of them side by side."""
    x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    views = [x[:, i : i + 6, j : j + 6] for i in range(3) for j in range(3)]
    return jnp.concatenate(views, -1) @ p["w"].reshape(36, 5)


def halves(p, x):
    """Not a filter: each half of the features has weights of its own."""
    return x[:, :2] @ p["w"][0] + x[:, 2:] @ p["w"][1]


def experts_one_by_one(p, x):
    return jnp.stack([x[i] @ p["w"][i] for i in range(2)])


def learned_state(p, x):
    state = jnp.broadcast_to(p["start"], (2, 5))
    return lax.scan(lambda h, y: (jnp.tanh(h @ p["u"] + y @ p["w"]), None), state, x)[0]


def learned_state_unrolled(p, x):
    h = p["start"]
    for y in x:
        h = jnp.tanh(p["u"] @ h + p["w"] @ y)
    return h


def zero_state_unrolled(p, x):
    h = jnp.zeros((2, 5))
    for y in x:
        h = jnp.tanh(p["decay"][None] * h + h @ p["u"] + y @ p["w"])
    return h


def lstm_like(p, x):
    def step(carry, y):
        c, h = carry
        gate = jax.nn.sigmoid(h @ p["u"] + y @ p["w"])
        c = gate * c + y @ p["w"]
        return (c, jnp.tanh(c)), None

    start = jnp.broadcast_to(p["cell"], (2, 5)), jnp.zeros((2, 5), "float32")
    return lax.scan(step, start, x)[0][1]


def learned_queries(p, x):
    """Queries that are parameters are projected as activations are."""
    q = jnp.broadcast_to(p["queries"], (2, 3, 4)) @ p["w"]
    return jnp.einsum("bqk,btk->bqt", q, x)


def class_token(p, x):
    return jnp.concatenate([jnp.broadcast_to(p["token"], (2, 1, 4)), x], 1)


def masked_token(p, x):
    return jnp.where(x > 0, jnp.broadcast_to(p["token"], x.shape), x)


def projected_positions(p, x):
    return x + (p["positions"] @ p["w"])[None]


def fourier_features(p, x):
    """Positions are constants, and their features are mapped."""
    return x + jnp.tanh(jnp.sin(jnp.outer(jnp.arange(5.0), jnp.ones(3))) @ p["w"])[None]


def no_inputs(p):
    """The network reads constant coordinates."""
    x = jnp.linspace(0, 1, 6).reshape(3, 2)
    return jnp.sin(x @ p["w1"] + p["b1"][None]) @ p["w2"]


def chosen(p, x):
    return lax.cond(x[0, 0] > 0, lambda: x @ p["a"], lambda: x @ p["b"] + p["c"][None])


def chosen_weights(p, x):
    return x @ lax.cond(x[0, 0] > 0, lambda: p["a"], lambda: p["b"])


def ragged(p, x):
    return lax.ragged_dot(x, p["w"], jnp.array([1, 1, 0]))


CASES = {
    "matrix": (lambda p, x: x @ p["w"], {"w": (4, 5)}, X, {"w": "in out"}),
    "transposed": (lambda p, x: x @ p["w"].T, {"w": (5, 4)}, X, {"w": "out in"}),
    "column": (lambda p, x: x @ p["w"][:, 0], {"w": (4, 1)}, X, {"w": "in out"}),
    "heads": (
        lambda p, x: jnp.einsum("bd,dhk->bhk", x, p["w"]), {"w": (4, 2, 3)}, X, {"w": "in out out"},
    ),
    "heads joined": (
        lambda p, x: jnp.einsum("bhk,hkd->bd", x.reshape(2, 2, 2), p["w"]),
        {"w": (2, 2, 3)}, X, {"w": "in in out"},
    ),
    "heads in one axis": (
        lambda p, x: jnp.einsum("bd,dhk->bhk", x, p["w"].reshape(4, 2, 3)),
        {"w": (4, 6)}, X, {"w": "in out"},
    ),
    "heads apart": (
        lambda p, x: jnp.einsum("bhk,hkd->bhd", x.reshape(2, 2, 2), p["w"]),
        {"w": (2, 2, 3)}, X, {"w": "each in out"},
    ),
    "experts": (
        lambda p, x: jax.vmap(lambda w, x: x @ w)(p["w"], x), {"w": (2, 4, 3)}, X,
        {"w": "each in out"},
    ),
    "experts in groups": (ragged, {"w": (3, 4, 5)}, X, {"w": "each in out"}),
    "experts one by one": (experts_one_by_one, {"w": (2, 4, 3)}, X, {"w": "each in out"}),
    "halves": (halves, {"w": (2, 2, 3)}, X, {"w": "each in out"}),
    "scale and shift": (
        lambda p, x: x * jnp.exp(p["s"])[None] + p["b"].reshape(1, 4),
        {"s": (4,), "b": (4, 1)}, X, {"s": "scale", "b": "shift shift"},
    ),
    "divided": (lambda p, x: p["s"] / x, {"s": (2, 4)}, X, {"s": "scale scale"}),
    "temperature": (lambda p, x: x / p["s"], {"s": ()}, X, {"s": ""}),
    "batch norm": (
        batch_norm, dict.fromkeys(("bias", "gain", "mean", "var"), (4,)), X,
        {"bias": "shift", "gain": "scale", "mean": "shift", "var": "scale"},
    ),
    "convolution": (
        lambda p, x: convolve(x, p["w"], ("NHWC", "HWIO", "NHWC")),
        {"w": (3, 3, 4, 5)}, IMAGE, {"w": "window window in out"},
    ),
    "1×1 convolution": (
        lambda p, x: convolve(x, p["w"], ("NHWC", "IOHW", "NHWC")),
        {"w": (4, 5, 1, 1)}, IMAGE, {"w": "in out window window"},
    ),
    "depthwise convolution": (
        lambda p, x: convolve(x, p["w"], ("NHWC", "HWIO", "NHWC"), feature_group_count=4),
        {"w": (3, 3, 1, 8)}, IMAGE, {"w": "window window in out"},
    ),
    "transposed convolution": (
        lambda p, x: lax.conv_transpose(x, p["w"], (2, 2), "SAME"),
        {"w": (3, 3, 4, 5)}, IMAGE, {"w": "window window in out"},
    ),
    "slices of a filter": (
        slices_of_a_filter, {"w": (3, 4, 6)}, f32(2, 5, 4), {"w": "window in out"},
    ),
    "patches": (patches, {"w": (3, 3, 4, 5)}, IMAGE, {"w": "window window in out"}),
    "looked up": (lambda p, x: p["w"][x], {"w": (9, 4)}, TOKENS, {"w": "index out"}),
    "looked up along the last axis": (
        lambda p, x: jnp.take(p["w"], x, axis=1), {"w": (4, 9)}, TOKENS, {"w": "out index"},
    ),
    "looked up by .at": (
        lambda p, x: p["w"].at[x].get(mode="clip"), {"w": (9, 4)}, TOKENS, {"w": "index out"},
    ),
    "looked up one by one": (
        lambda p, x: lax.dynamic_index_in_dim(p["w"], x[0, 0]), {"w": (9, 4)}, TOKENS,
        {"w": "index out"},
    ),
    "looked up under vmap": (
        lambda p, x: jax.vmap(partial(lax.dynamic_index_in_dim, p["w"]))(x[0]), {"w": (9, 4)},
        TOKENS, {"w": "index out"},
    ),
    "one-hot": (
        lambda p, x: jax.nn.one_hot(x, 9) @ p["w"], {"w": (9, 4)}, TOKENS, {"w": "in out"},
    ),
    "distances": (
        lambda p, x: x + p["w"][:, np.array([[0, 1], [1, 2]])], {"w": (4, 3)}, f32(4, 2, 2),
        {"w": "out index"},
    ),
    "tied": (both_ways, {"w": (9, 4)}, TOKENS, {"w": "index out"}),
    "penalized": (penalized, {"w": (4, 5)}, X, {"w": "in out"}),
    "low rank": (
        low_rank, {"w": (4, 5), "a": (4, 3), "b": (3, 5)}, X,
        {"w": "in out", "a": "in out", "b": "in out"},
    ),
    "looked up in a product": (
        lambda p, x: (p["embed"] @ p["w"])[x], {"embed": (9, 4), "w": (4, 5)}, TOKENS,
        {"embed": "index out", "w": "in out"},
    ),
    "rank one": (rank_one, {"a": (4,), "b": (5,)}, X, {"a": "in", "b": "out"}),
    "weight norm": (
        weight_normalized, {"g": (5,), "v": (4, 5)}, X, {"g": "scale", "v": "in out"},
    ),
    "weight standardization": (
        standardized, {"gain": (5,), "w": (4, 5)}, X, {"gain": "scale", "w": "in out"},
    ),
    "spectral norm": (
        spectrally_normalized, {"u": (4,), "v": (5,), "w": (4, 5)}, X,
        {"u": "shift", "v": "shift", "w": "in out"},
    ),
    "layers in a loop": (
        layers_indexed_in_a_loop, {"w": (3, 4, 4), "b": (3, 4)}, X,
        {"w": "each in out", "b": "each shift"},
    ),
    "learned state": (
        learned_state, {"start": (1, 5), "u": (5, 5), "w": (4, 5)}, f32(3, 2, 4),
        {"start": "shift shift", "u": "in out", "w": "in out"},
    ),
    "learned state, unrolled": (
        learned_state_unrolled, {"start": (5,), "u": (5, 5), "w": (5, 4)}, f32(3, 4),
        {"start": "shift", "u": "out in", "w": "out in"},
    ),
    "zero state, unrolled": (
        zero_state_unrolled, {"decay": (5,), "u": (5, 5), "w": (4, 5)}, f32(3, 2, 4),
        {"decay": "scale", "u": "in out", "w": "in out"},
    ),
    "learned cell": (
        lstm_like, {"cell": (5,), "u": (5, 5), "w": (4, 5)}, f32(3, 2, 4),
        {"cell": "shift", "u": "in out", "w": "in out"},
    ),
    "learned queries": (
        learned_queries, {"queries": (3, 4), "w": (4, 6)}, f32(2, 7, 6),
        {"queries": "shift shift", "w": "in out"},
    ),
    "class token": (class_token, {"token": (4,)}, f32(2, 5, 4), {"token": "shift"}),
    "masked token": (masked_token, {"token": (4,)}, f32(2, 5, 4), {"token": "shift"}),
    "positions": (
        lambda p, x: x + p["positions"][None, :5], {"positions": (9, 4)}, f32(2, 5, 4),
        {"positions": "shift shift"},
    ),
    "projected positions": (
        projected_positions, {"positions": (5, 3), "w": (3, 4)}, f32(2, 5, 4),
        {"positions": "shift shift", "w": "in out"},
    ),
    "features of positions": (
        fourier_features, {"w": (3, 4)}, f32(2, 5, 4), {"w": "in out"},
    ),
    "branches": (
        chosen, {"a": (4, 5), "b": (4, 5), "c": (5,)}, X,
        {"a": "in out", "b": "in out", "c": "shift"},
    ),
    "weights of branches": (
        chosen_weights, {"a": (4, 5), "b": (4, 5)}, X, {"a": "in out", "b": "in out"},
    ),
    "unused": (lambda p, x: x, {"b": (3,), "w": (4, 5)}, X, {"b": "shift", "w": "in out"}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_first_meeting_decides(name):
    fn, shapes, x, expected = CASES[name]
    assert roles_of(fn, {n: f32(*shape) for n, shape in shapes.items()}, x) == expected


def test_networks_without_inputs_read_constants():
    shapes = {"w1": f32(2, 4), "b1": f32(4), "w2": f32(4, 3)}
    assert roles_of(no_inputs, shapes) == {"w1": "in out", "b1": "shift", "w2": "in out"}


def test_unknown_operations_leave_positions():
    def fn(p, x):
        return x + jnp.fft.fft(p["w"]).real

    assert roles_of(fn, {"w": f32(2, 4)}, X) == {"w": "in out"}


def test_reshapes_that_mix_axes_or_leave_nothing_keep_positions():
    def fn(p, x):
        mixed = p["a"].reshape(4, 3)
        return x @ jnp.concatenate([p["w"], mixed, p["v"][:0].reshape(4, 0)], 1)

    shapes = {"a": f32(6, 2), "v": f32(2, 2), "w": f32(4, 5)}
    assert roles_of(fn, shapes, X)["a"] == roles_of(fn, shapes, X)["w"] == "in out"


@pytest.mark.parametrize("name", ["matrix", "convolution", "looked up", "learned state", "patches"])
def test_a_training_step_has_the_roles_of_its_forward_pass(name):
    fn, shapes, x, expected = CASES[name]

    def step(p, x):
        gradient = jax.grad(lambda p: jnp.sum(jnp.sin(fn(p, x))))(p)
        return jax.tree.map(lambda w, g: w - 0.1 * g, p, gradient)

    assert roles_of(step, {n: f32(*shape) for n, shape in shapes.items()}, x) == expected


def test_deep_functions_of_weights_are_followed():
    """Neither the stack of calls nor the number of paths limits how far roles pass back."""

    def fn(p, x):
        w = p["w"]
        for _ in range(1500):
            w = w + 0.1 * w * w
        return x @ w

    assert roles_of(fn, {"w": f32(4, 5)}, X) == {"w": "in out"}


# --- storage --------------------------------------------------------------------------------


def transposed(fn, shapes, seed):
    """The network with each array stored in another order of axes, and these orders."""
    rng = np.random.default_rng(seed)
    orders = {name: tuple(map(int, rng.permutation(len(s)))) for name, s in shapes.items()}

    def stored(params, *inputs):
        back = {n: jnp.transpose(w, np.argsort(orders[n]).tolist()) for n, w in params.items()}
        return fn(back, *inputs)

    new = {name: tuple(shape[i] for i in orders[name]) for name, shape in shapes.items()}
    return stored, new, orders


def assert_roles_are_transposed(fn, shapes, *inputs, seed=0):
    stored, new, orders = transposed(fn, shapes, seed)
    quiet = partial(unf.infer, warn=False)
    roles = quiet(fn, {n: f32(*s) for n, s in shapes.items()}, *inputs).roles
    found = quiet(stored, {n: f32(*s) for n, s in new.items()}, *inputs).roles
    assert found == {name: tuple(roles[name][i] for i in orders[name]) for name in shapes}


@pytest.mark.parametrize("name", [name for name in CASES if name != "unused"])
def test_transposed_storage_transposes_roles(name):
    fn, shapes, x, _ = CASES[name]
    for seed in range(2):
        assert_roles_are_transposed(fn, shapes, x, seed=seed)


@settings(max_examples=60, derandomize=True, **QUIET)
@given(programs())
def test_transposed_storage_transposes_the_roles_of_random_programs(program: Program):
    shapes = dict(program.shapes)
    x = f32(*shapes.pop("p0"))

    def fn(params, x):
        return program({"p0": x, **params})

    assert_roles_are_transposed(fn, shapes, x, seed=len(shapes))


# --- the same network in several libraries --------------------------------------------------


class FlaxCnn(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.GroupNorm(2)(nn.Conv(6, (3, 3))(x)))
        return nn.Dense(2)(x.mean((1, 2)))


class FlaxBlock(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(9, 4)(tokens)
        attention = nn.MultiHeadDotProductAttention(
            2, qkv_features=6, out_features=4, use_bias=False
        )
        x = x + attention(nn.LayerNorm()(x))
        return x + nn.Dense(4)(nn.gelu(nn.Dense(7)(nn.LayerNorm()(x))))


class FlaxRnn(nn.Module):
    @nn.compact
    def __call__(self, x):
        states = nn.RNN(nn.SimpleCell(5), time_major=True)(x)
        return nn.Dense(2, use_bias=False)(states[-1])


@cache
def flax_networks():
    return {
        "mlp": linen(nn.Sequential([nn.Dense(6), nn.relu, nn.Dense(3)]), f32(2, 4)),
        "cnn": linen(FlaxCnn(), f32(2, 5, 5, 4)),
        "block": linen(FlaxBlock(), i32(5)),
        "rnn": linen(FlaxRnn(), f32(4, 2, 3)),
    }


@cache
def equinox_networks():
    key = jax.random.key(0)
    linear = partial(eqx.nn.Linear, dtype=jnp.float32, key=key)
    relu, wide = eqx.nn.Lambda(jax.nn.relu), eqx.nn.Lambda(lambda x: x.mean((1, 2)))
    conv = eqx.nn.Conv2d(4, 6, 3, padding=1, dtype=jnp.float32, key=key)
    modules = (
        eqx.nn.Embedding(9, 4, key=key), eqx.nn.LayerNorm(4), eqx.nn.LayerNorm(4),
        eqx.nn.MultiheadAttention(2, 4, qk_size=3, vo_size=3, key=key), linear(4, 7), linear(7, 4),
    )  # fmt: skip

    def apply_block(modules, tokens):
        embed, norm1, norm2, attention, up, down = modules
        x = jax.vmap(embed)(tokens)
        y = jax.vmap(norm1)(x)
        x = x + attention(y, y, y)
        return x + jax.vmap(lambda z: down(jax.nn.gelu(up(norm2(z)))))(x)

    def apply_rnn(modules, x):
        read, recur, out = modules

        def one(x):
            start = jnp.zeros(5, x.dtype)
            return out(lax.scan(lambda h, y: (jnp.tanh(read(y) + recur(h)), None), start, x)[0])

        return jax.vmap(one, in_axes=1)(x)

    recurrent = linear(3, 5), linear(5, 5, use_bias=False), linear(5, 2, use_bias=False)
    return {
        "mlp": equinox(eqx.nn.Sequential([linear(4, 6), relu, linear(6, 3)]), f32(2, 4)),
        "cnn": equinox(
            eqx.nn.Sequential([conv, eqx.nn.GroupNorm(2, 6), relu, wide, linear(6, 2)]),
            f32(2, 4, 5, 5),
        ),
        "block": equinox(modules, i32(5), call=apply_block),
        "rnn": equinox(recurrent, f32(4, 2, 3), call=apply_rnn),
    }


@cache
def haiku_networks():
    def cnn(x):
        x = hk.GroupNorm(2)(hk.Conv2D(6, 3)(x))
        return hk.Linear(2)(jax.nn.relu(x).mean((1, 2)))

    def block(tokens):
        x = hk.Embed(9, 4)(tokens)
        y = hk.LayerNorm(-1, True, True)(x)
        attention = hk.MultiHeadAttention(
            2, 3, model_size=4, w_init=hk.initializers.RandomNormal(), with_bias=False
        )
        x = x + attention(y, y, y)
        return x + hk.Linear(4)(jax.nn.gelu(hk.Linear(7)(hk.LayerNorm(-1, True, True)(x))))

    def rnn(x):
        read, recur = hk.Linear(5), hk.Linear(5, with_bias=False)
        h = jnp.zeros((x.shape[1], 5), x.dtype)
        for y in x:
            h = jnp.tanh(read(y) + recur(h))
        return hk.Linear(2, with_bias=False)(h)

    return {
        "mlp": haiku(lambda x: hk.nets.MLP((6, 3))(x), f32(2, 4)),
        "cnn": haiku(cnn, f32(2, 5, 5, 4)),
        "block": haiku(block, i32(5)),
        "rnn": haiku(rnn, f32(4, 2, 3)),
    }


@pytest.mark.parametrize("library", [flax_networks, equinox_networks, haiku_networks])
@pytest.mark.parametrize("name", PLAIN)
def test_every_library_has_the_same_roles(library, name):
    expected = sizes_by_role(unf.infer(*PLAIN[name]))
    assert sizes_by_role(unf.infer(*library()[name])) == expected
