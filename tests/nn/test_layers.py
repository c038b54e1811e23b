"""Layers beside the equivariant one, and mistakes when calling them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unf
from tests.laws.architectures import ARCHITECTURES, space_of
from unf import SpecError
from unf.basis import make_plan
from unf.nn import (
    AttentionPool,
    DeepSetLinear,
    FourierFeatures,
    InvariantPool,
    MatrixProducts,
    NFNLinear,
    Pointwise,
    PositionalEncoding,
    UNFLinear,
    apply,
    init_coefficients,
    stack_channels,
)
from unf.testing import assert_equivariant, assert_invariant, random_features

KEY = jax.random.key(0)
SPACE = ARCHITECTURES["rnn"]


@pytest.mark.parametrize("name", ["mlp", "attention, nested", "stacked for a scan"])
@pytest.mark.parametrize(
    "layer",
    [
        DeepSetLinear(2, 3, key=KEY),
        DeepSetLinear(2, 3, key=KEY, pool="all", bias=False),
        Pointwise(eqx.nn.Linear(2, 3, key=KEY)),
        Pointwise(eqx.nn.LayerNorm(2)),
        Pointwise(eqx.nn.MLP(2, 2, 4, 1, key=KEY)),
        Pointwise(eqx.nn.Dropout(0.5)),
        Pointwise(jax.nn.gelu),
    ],
    ids=lambda layer: type(getattr(layer, "module", layer)).__name__,
)
def test_shared_layers_are_equivariant(layer, name):
    assert_equivariant(eqx.filter_jit(layer), ARCHITECTURES[name], key=KEY, channels=2)


def test_deep_set_is_equivariant_to_any_permutation_of_a_leaf():
    x = random_features(SPACE, 2, key=KEY)
    order = jax.random.permutation(KEY, 9)

    def shuffle(tree):
        return tree | {"r": tree["r"].reshape(9, -1)[order].reshape(3, 3, -1)}

    layer = DeepSetLinear(2, 3, key=KEY)
    np.testing.assert_allclose(layer(shuffle(x))["r"], shuffle(layer(x))["r"], rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="expected 'leaf' or 'all'"):
        DeepSetLinear(2, 3, key=KEY, pool="some")


@pytest.mark.parametrize(
    "name", ["gru seq2seq", "tied embedding", "fused gates", "mlp", "attention, nested"]
)
def test_products_are_equivariant(name):
    space = ARCHITECTURES[name]
    assert_equivariant(MatrixProducts(space, 2, key=KEY, rank=3), space, key=KEY, channels=2)
    relaxed = space.relax()
    assert_equivariant(MatrixProducts(relaxed, 2, key=KEY), relaxed, key=KEY, channels=2)


def test_products_multiply_matrices():
    """With axes a b and b b, what is added to a is a b; transposes take part by the second half."""
    space = space_of({"a": ("a b", (2, 3)), "b": ("b b", (3, 3)), "c": ("a", (2,))})
    layer = MatrixProducts(space, 1, key=KEY, rank=1)
    choose = {"a b": jnp.array([[1.0], [0.0]]), "b b": jnp.array([[1.0], [0.0]])}
    one = dict.fromkeys(choose, jnp.ones((1, 1)))
    layer = eqx.tree_at(lambda m: (m.left, m.right, m.out), layer, (choose, choose, one))
    x = random_features(space, 1, key=KEY)
    y, (a, b) = layer(x), (x["a"][..., 0], x["b"][..., 0])
    np.testing.assert_allclose(y["a"][..., 0], a + a @ b / np.sqrt(3), rtol=1e-5)
    np.testing.assert_allclose(y["b"][..., 0], b + b @ b / np.sqrt(3), rtol=1e-5)
    np.testing.assert_array_equal(y["c"], x["c"])
    turned = {"a b": choose["a b"][::-1], "b b": choose["b b"][::-1]}
    layer = eqx.tree_at(lambda m: (m.left, m.right), layer, (turned, turned))
    np.testing.assert_allclose(layer(x)["b"][..., 0], b + b.T @ b.T / np.sqrt(3), rtol=1e-5)


def test_products_find_no_path_in_an_mlp():
    space = ARCHITECTURES["mlp"]
    x = random_features(space, 2, key=KEY)
    for a, b in zip(
        jax.tree.leaves(MatrixProducts(space, 2, key=KEY)(x)), jax.tree.leaves(x), strict=True
    ):
        np.testing.assert_array_equal(a, b)


def test_nfn_and_unf_coincide_on_mlps():
    space = ARCHITECTURES["mlp"]
    unf, nfn = (kind(space, 2, 3, key=KEY) for kind in (UNFLinear, NFNLinear))
    x = random_features(space, 2, key=KEY)
    for a, b in zip(jax.tree.leaves(unf(x)), jax.tree.leaves(nfn(x)), strict=True):
        np.testing.assert_array_equal(a, b)
    assert unf.num_parameters == nfn.num_parameters


def test_nfn_fixes_spatial_axes():
    space = ARCHITECTURES["cnn 2d, all permuted"]
    layer = NFNLinear(space, 1, 1, key=KEY, spatial=("kh", "kw"))
    assert_equivariant(layer, space.fix("kh", "kw"), key=KEY)
    with pytest.raises(AssertionError, match="not equivariant"):
        for seed in range(5):  # some element that moves the window
            assert_equivariant(layer, space, key=jax.random.key(seed))


@pytest.mark.parametrize("name", ["mlp", "cnn 2d", "attention, nested", "stacked for a scan"])
@pytest.mark.parametrize("keep_fixed", [False, True])
def test_pooling_is_invariant(name, keep_fixed):
    space = ARCHITECTURES[name]
    pool = InvariantPool(
        space,
        statistics=("mean", "var", "std", "min", "q25", "median", "max"),
        keep_fixed=keep_fixed,
    )
    assert_invariant(pool, space, key=KEY, channels=2)
    assert pool(random_features(space, 2, key=KEY)).shape == (pool.out_size(2),)


def test_pooling_is_the_mean_of_each_leaf():
    x = random_features(SPACE, 2, key=KEY)
    expected = [x[name].reshape(-1, 2).mean(0) for name in ("b", "r", "x")]
    np.testing.assert_allclose(InvariantPool(SPACE)(x), np.concatenate(expected), rtol=1e-6)
    with pytest.raises(ValueError, match="expected some of"):
        InvariantPool(SPACE, statistics=("mode",))


@pytest.mark.parametrize("name", ["mlp", "attention, nested", "stacked for a scan"])
def test_attention_pooling_is_invariant(name):
    pool = AttentionPool(ARCHITECTURES[name], 2, key=KEY, num_heads=3)
    assert_invariant(eqx.filter_jit(pool), ARCHITECTURES[name], key=KEY, channels=2)
    x = random_features(ARCHITECTURES[name], 2, key=KEY)
    assert pool(x).shape == (pool.out_size(2),)


def test_attention_weighs_entries():
    x = random_features(SPACE, 2, key=KEY)
    pool = AttentionPool(SPACE, 2, key=KEY, num_heads=1)
    indifferent = eqx.tree_at(lambda m: m.queries, pool, jnp.zeros_like(pool.queries))
    np.testing.assert_allclose(indifferent(x), InvariantPool(SPACE)(x), rtol=1e-5)
    sharp = eqx.tree_at(
        lambda m: m.queries, pool, jnp.full_like(pool.queries, 0).at[..., 0].set(1e4)
    )
    largest = [leaf[..., 0].max() for leaf in jax.tree.leaves(x)]
    np.testing.assert_allclose(sharp(x).reshape(-1, 2)[:, 0], largest, rtol=1e-5)
    with pytest.raises(ValueError, match="num_heads is 0; expected at least 1"):
        AttentionPool(SPACE, 2, key=KEY, num_heads=0)


@pytest.mark.parametrize("name", ["mlp", "attention, nested", "stacked for a scan"])
def test_fourier_features_are_equivariant(name):
    layer = FourierFeatures(ARCHITECTURES[name], 2, 3, key=KEY)
    assert_equivariant(eqx.filter_jit(layer), ARCHITECTURES[name], key=KEY, channels=2)


def test_fourier_features_are_waves():
    x = random_features(SPACE, 2, key=KEY)
    layer = FourierFeatures(SPACE, 2, 3, key=KEY, scale=2.0)
    for leaf, y, b in zip(*map(jax.tree.leaves, (x, layer(x), layer.frequencies)), strict=True):
        phase = 2 * np.pi * np.asarray(leaf, np.float64) @ np.asarray(b, np.float64)
        expected = np.concatenate([leaf, np.sin(phase), np.cos(phase)], axis=-1)
        np.testing.assert_allclose(y, expected, atol=1e-4)
    with pytest.raises(ValueError, match="num_frequencies is 0; expected at least 1"):
        FourierFeatures(SPACE, 2, 0, key=KEY)


def test_phases_of_many_cycles_keep_their_fraction_in_bfloat16():
    layer = FourierFeatures(SPACE, 2, 3, key=KEY, scale=50.0, dtype=jnp.bfloat16)
    x = random_features(SPACE, 2, key=KEY, dtype=jnp.bfloat16)
    exact = jax.tree.map(lambda a: a.astype(jnp.float32), (layer, x))
    for got, expected in zip(*map(jax.tree.leaves, (layer(x), exact[0](exact[1]))), strict=True):
        assert got.dtype == jnp.bfloat16
        np.testing.assert_allclose(np.float32(got), expected, rtol=2**-8, atol=2**-8)


@pytest.mark.parametrize("learned", [False, True])
def test_frequencies_learn_only_if_learned(learned):
    layer = FourierFeatures(SPACE, 2, 3, key=KEY, learned=learned)
    x = random_features(SPACE, 2, key=KEY)

    def loss(layer):
        return sum(jnp.sum(leaf**3) for leaf in jax.tree.leaves(layer(x)))

    gradients = jax.tree.leaves(eqx.filter_grad(loss)(layer))
    assert all(bool(jnp.any(g != 0)) == learned for g in gradients)


def test_the_pooled_standard_deviation_has_a_finite_slope():
    space = ARCHITECTURES["rank 0"]
    pool = InvariantPool(space, statistics=("std",))
    slope = jax.grad(lambda x: jnp.sum(pool(x)))(random_features(space, 1, key=KEY))
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(slope))


@pytest.mark.parametrize("kind", ["sinusoidal", "learned"])
@pytest.mark.parametrize("mode", ["concat", "add"])
def test_positions_tell_indices_apart(kind, mode):
    space = space_of({"k": ("kh a", (3, 4)), "b": ("a", (4,)), "f": ("(a kh)", (12,))})
    code = PositionalEncoding(space, 2, axes=("kh",), kind=kind, mode=mode, key=KEY)
    assert_equivariant(code, space.fix("kh"), key=KEY, channels=2)
    with pytest.raises(AssertionError, match="not equivariant"):
        assert_equivariant(code, space, key=KEY, channels=2)
    zeros = jax.tree.map(jnp.zeros_like, random_features(space, 2, key=KEY))
    out = code(zeros)
    added = out["k"][..., -2:]
    assert out["k"].shape[-1] == (4 if mode == "concat" else 2)
    rows = np.asarray(added[:, 0])
    np.testing.assert_allclose(added, np.broadcast_to(rows[:, None], (3, 4, 2)))
    np.testing.assert_allclose(out["f"].reshape(4, 3, -1)[..., -2:], jnp.swapaxes(added, 0, 1))
    assert not bool(jnp.any(out["b"]))
    assert len(np.unique(rows, axis=0)) == 3


def test_positions_learn_only_if_learned():
    space = space_of({"w": ("[l] a l.m", (2, 3, 2))})
    x = random_features(space, 1, key=KEY)
    for kind in ("sinusoidal", "learned"):
        code = PositionalEncoding(space, 2, kind=kind, key=KEY)
        gradient = eqx.filter_grad(lambda f: jnp.sum(f(x)["w"]))(code)
        slopes = [bool(jnp.any(table)) for table in jax.tree.leaves(gradient)]
        assert slopes == ([True] if kind == "learned" else [])


def test_positions_mistakes():
    with pytest.raises(SpecError, match="no such axes to encode"):
        PositionalEncoding(SPACE, 2, axes=("zz",))
    with pytest.raises(SpecError, match="without fixed axes"):
        PositionalEncoding(ARCHITECTURES["mlp"], 2)
    with pytest.raises(ValueError, match="needs key="):
        PositionalEncoding(SPACE, 2, kind="learned")
    with pytest.raises(ValueError, match="unknown kind 'cosine'"):
        PositionalEncoding(SPACE, 2, kind="cosine")


def test_dropout():
    x, dropout = {"w": jnp.ones((50, 50, 4))}, Pointwise(eqx.nn.Dropout(0.25))
    dropped = dropout(x, key=KEY)["w"]
    kept = dropped != 0
    assert float(jnp.mean(kept)) == pytest.approx(0.75, abs=0.02)
    np.testing.assert_allclose(dropped[kept], 1 / 0.75)
    assert dropout(x)["w"] is x["w"]


@pytest.mark.parametrize(
    "module",
    [
        eqx.nn.Linear(2, 3, key=KEY),
        eqx.nn.Linear(2, 3, use_bias=False, key=KEY),
        eqx.nn.LayerNorm(2),
        eqx.nn.Sequential([eqx.nn.Linear(2, 3, key=KEY), eqx.nn.Lambda(jnp.tanh)]),
        lambda channels: channels / jnp.linalg.norm(channels),
    ],
    ids=lambda module: type(module).__name__,
)
def test_a_module_is_applied_to_every_entry(module):
    x = random_features(SPACE, 2, key=KEY)
    y = Pointwise(module)(x)
    np.testing.assert_allclose(y["r"][2, 1], module(x["r"][2, 1]), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(y["b"][1], module(x["b"][1]), rtol=1e-5, atol=1e-6)


def test_every_entry_has_its_own_key():
    both = eqx.nn.Sequential([eqx.nn.Dropout(0.5), eqx.nn.Lambda(jnp.sin)])
    y = Pointwise(both)({"a": jnp.ones((20, 5, 2)), "b": jnp.ones((20, 5, 2))}, key=KEY)
    assert len(np.unique(np.asarray(y["a"]).reshape(-1, 10), axis=0)) > 10
    assert not np.array_equal(y["a"], y["b"])


def test_pointwise_mistakes():
    with pytest.raises(ValueError, match=r"expects 3 channels, but the features have 2; stack"):
        Pointwise(eqx.nn.Linear(3, 4, key=KEY))(random_features(SPACE, 2, key=KEY))


def test_coefficients_are_those_of_separate_draws():
    """For a given key the numbers stay, however they are drawn: as in released models."""
    plan = make_plan(SPACE)
    found = init_coefficients(plan, 3, 5, key=KEY)
    traced = jax.jit(lambda key: init_coefficients(plan, 3, 5, key=key))(KEY)
    for key, (name, matrix) in zip(jax.random.split(KEY, len(found)), found.items(), strict=True):
        drawn = jax.random.normal(key, matrix.shape, jnp.float32)
        scale = matrix[0] / drawn[0]
        np.testing.assert_allclose(matrix, drawn * jnp.broadcast_to(scale, drawn.shape), rtol=1e-5)
        np.testing.assert_allclose(matrix, traced[name], rtol=1e-6)
    other = init_coefficients(plan, 3, 5, key=jax.random.key(0, impl="rbg"))
    assert jax.tree.map(jnp.shape, other) == jax.tree.map(jnp.shape, found)
    raw = init_coefficients(plan, 3, 5, key=jax.random.PRNGKey(0))
    assert all(np.array_equal(raw[name], matrix) for name, matrix in found.items())


def test_initial_outputs_have_unit_scale():
    """With unit inputs on small axes, where means do not shrink, outputs are about unit size."""
    space = ARCHITECTURES["rank 0"]
    keys = jax.random.split(KEY, 200)
    x = jax.vmap(lambda k: random_features(space, 4, key=k))(keys)
    y = jax.vmap(lambda k, x: UNFLinear(space, 4, 4, key=k)(x))(keys, x)
    assert float(jnp.std(y["s"])) == pytest.approx(1, abs=0.3)


def test_bias_reaches_every_entry_of_its_leaf():
    layer = UNFLinear(SPACE, 1, 2, key=KEY)
    layer = eqx.tree_at(lambda f: f.bias, layer, jnp.arange(6.0).reshape(3, 2))
    out = layer(jax.tree.map(jnp.zeros_like, random_features(SPACE, 1, key=KEY)))
    for leaf, expected in zip(jax.tree.leaves(out), layer.bias, strict=True):
        np.testing.assert_array_equal(leaf, jnp.broadcast_to(expected, leaf.shape))
    assert UNFLinear(SPACE, 1, 2, key=KEY, bias=False).bias is None


def test_functional_form_is_the_layer():
    layer = UNFLinear(SPACE, 2, 3, key=KEY)
    x = random_features(SPACE, 2, key=KEY)
    plan = make_plan(SPACE)
    same = apply(plan, init_coefficients(plan, 2, 3, key=KEY), x, layer.bias)
    for a, b in zip(jax.tree.leaves(layer(x)), jax.tree.leaves(same), strict=True):
        np.testing.assert_array_equal(a, b)


def test_layers_that_no_machine_can_hold():
    space = space_of({"embed": ("[token] d", (50257, 8))})
    with pytest.raises(SpecError, match=r"coefficients; the fixed axis 'token' is 50257 long"):
        UNFLinear(space, 4, 4, key=KEY)
    assert unf.models.UNF(space, 4, 4, key=KEY).positions.axes == ("token",)


def test_calling_mistakes():
    layer = UNFLinear(SPACE, 2, 3, key=KEY)
    x = random_features(SPACE, 2, key=KEY)
    weights = jax.tree.map(lambda a: a[..., 0], x)
    with pytest.raises(SpecError, match=r"wrong shape[\s\S]*stack_channels"):
        layer(weights)
    with pytest.raises(SpecError, match=r"wrong shape[\s\S]*jax.vmap"):
        layer(jax.tree.map(lambda a: a[None], x))
    with pytest.raises(SpecError, match=r"missing \['b'\]"):
        layer({name: leaf for name, leaf in x.items() if name != "b"})
    with pytest.raises(SpecError, match=r"at 'r': leaves with different numbers of channels"):
        layer(x | {"r": x["r"][..., :1]})
    with pytest.raises(SpecError, match=r"wrong number of channels\n  expected: 2,[\s\S]*got: 5"):
        layer(random_features(SPACE, 5, key=KEY))
    with pytest.raises(SpecError, match=r"coefficients of the wrong shape for core '\(\)'"):
        apply(layer.plan, layer.coefficients | {"()": jnp.zeros((7, 9))}, x)
    with pytest.raises(SpecError, match=r"stack_channels\(params\); then batch with jax.vmap"):
        layer(jax.tree.map(lambda a: a[None], weights))
    with pytest.raises(SpecError, match=r"wrong shape[\s\S]*make a space for these"):
        layer(x | {"b": x["b"][:-1]})
    with pytest.raises(ValueError, match="in_channels is 0; expected at least 1"):
        UNFLinear(SPACE, 0, 3, key=KEY)
    with pytest.raises(SpecError, match="coefficients belong to another plan"):
        apply(layer.plan, {}, x)
    assert jax.tree.map(jnp.shape, stack_channels(weights, weights)) == jax.tree.map(jnp.shape, x)


@pytest.mark.parametrize(
    ("trees", "match"),
    [
        ((), "no trees to stack"),
        (({"a": np.ones(3)}, {"b": np.ones(3)}), r"at 'a': tree 2 cannot[\s\S]*no such leaf"),
        (({"a": np.ones(3)}, {"a": np.ones(4)}), r"shape \(3,\)[\s\S]*got: shape \(4,\)"),
        (({"a": jax.ShapeDtypeStruct((3,), "float32")},), r"at 'a': not a JAX[\s\S]*convert it"),
    ],
)
def test_stacking_mistakes(trees, match):
    with pytest.raises(SpecError, match=match):
        stack_channels(*trees)
