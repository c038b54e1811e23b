"""The laws of the equivariant layer, over the table of architectures."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unf
from tests.laws.architectures import ARCHITECTURES
from tests.laws.bruteforce import count_orbits, explicit_matrix, layer_matrix, term_matrices
from unf.basis import make_plan
from unf.basis._cost import core_parameters
from unf.nn import UNFLinear, apply, coefficient_shapes
from unf.testing import assert_equivariant, literal_layer, random_features

KEY = jax.random.key(0)
IN, OUT = 2, 3
FOURFOLD = "one name four times"
LITERAL = {"mlp", "cnn 2d", "rnn", "attention, nested", "fused qkv", "stacked for a scan"}

architectures = pytest.mark.parametrize("name", ARCHITECTURES)
most_architectures = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.nightly] if name == FOURFOLD else [])
        for name in ARCHITECTURES
    ],
)


def random_coefficients(plan, in_channels=IN, out_channels=OUT):
    shapes = coefficient_shapes(plan, in_channels, out_channels)
    keys = jax.random.split(KEY, len(shapes))
    return {n: jax.random.normal(k, s) for k, (n, s) in zip(keys, shapes.items(), strict=True)}


def assert_trees_close(got, expected, tolerance=1e-12):
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * 100)


@pytest.mark.parametrize("minimal", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        # One term after another is slow; explicit matrices, below, cover every architecture.
        pytest.param(name, marks=[] if name in LITERAL else [pytest.mark.nightly])
        for name in ARCHITECTURES
    ],
)
def test_equals_the_literal_layer(name, minimal):
    space = ARCHITECTURES[name]
    plan = make_plan(space, minimal=minimal)
    coefficients = random_coefficients(plan)
    bias = jax.random.normal(KEY, (len(space.leaves), OUT))
    x = random_features(space, IN, key=KEY, dtype=jnp.float64)
    got = jax.jit(lambda c, x: apply(plan, c, x, bias))(coefficients, x)
    expected = literal_layer(plan, coefficients, x, bias)  # eager: compiling it takes minutes
    assert_trees_close(got, expected)


@architectures
@pytest.mark.parametrize("minimal", [False, True])
def test_equals_explicit_matrices(name, minimal):
    plan = make_plan(ARCHITECTURES[name], minimal=minimal)
    coefficients = random_coefficients(plan, 1, 1)
    got = jax.jit(lambda c: layer_matrix(plan, c))(coefficients)
    np.testing.assert_allclose(got, explicit_matrix(plan, coefficients), rtol=1e-10, atol=1e-10)


@architectures
def test_equivariant(name):
    space = ARCHITECTURES[name]
    layer = eqx.filter_jit(UNFLinear(space, IN, OUT, key=KEY, dtype=jnp.float64))
    for seed in range(3):
        key = jax.random.key(seed)
        assert_equivariant(layer, space, key=key, channels=IN, dtype=jnp.float64)


@architectures
def test_complete_and_independent(name):
    """Minimal terms are a basis of all equivariant maps, whose dimension orbits give."""
    space = ARCHITECTURES[name]
    plan = make_plan(space, minimal=True)
    parameters = sum(core_parameters(plan, core, 1, 1) for core in plan.cores)
    assert parameters == count_orbits(space, space)
    matrices = term_matrices(plan)
    assert len(matrices) == parameters
    assert np.linalg.matrix_rank(matrices.reshape(parameters, -1)) == parameters


@architectures
def test_linear(name):
    space = ARCHITECTURES[name]
    layer = UNFLinear(space, IN, OUT, key=KEY, bias=False, dtype=jnp.float64)
    f = eqx.filter_jit(layer)
    x, y = (random_features(space, IN, key=k, dtype=jnp.float64) for k in jax.random.split(KEY))
    combined = f(jax.tree.map(lambda a, b: 2.0 * a - 3.0 * b, x, y))
    assert_trees_close(combined, jax.tree.map(lambda a, b: 2.0 * a - 3.0 * b, f(x), f(y)))


@most_architectures
def test_transformations(name):
    """jit, vmap and scan give what plain calls give; reverse and forward mode agree."""
    space = ARCHITECTURES[name]
    layer = UNFLinear(space, IN, IN, key=KEY, dtype=jnp.float64)
    keys = jax.random.split(KEY, 3)
    x = random_features(space, IN, key=KEY, dtype=jnp.float64)
    f = eqx.filter_jit(layer)
    if name == "rnn":
        assert_trees_close(layer(x), f(x))
    batch = jax.vmap(lambda k: random_features(space, IN, key=k, dtype=jnp.float64))(keys)
    batched = jax.jit(jax.vmap(layer))(batch)
    for i in range(len(keys)):
        one, alone = (jax.tree.map(lambda a, i=i: a[i], tree) for tree in (batched, batch))
        assert_trees_close(one, f(alone))
    scanned, _ = jax.lax.scan(lambda c, _: (layer(c), None), x, length=2)
    assert_trees_close(scanned, f(f(x)))

    def loss(coefficients, x):
        outputs = apply(layer.plan, coefficients, x, layer.bias)
        return sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(outputs))

    arguments = (layer.coefficients, x)
    directions = jax.tree.map(jnp.cos, arguments)
    _, slope = jax.jit(lambda a, t: jax.jvp(loss, a, t))(arguments, directions)
    gradient = jax.jit(jax.grad(loss, argnums=(0, 1)))(*arguments)
    products = jax.tree.map(lambda a, b: jnp.sum(a * b), gradient, directions)
    assert sum(jax.tree.leaves(products)) == pytest.approx(float(slope), rel=1e-9)
    step = 1e-6
    moved = [
        jax.jit(loss)(*jax.tree.map(lambda a, t, s=s: a + s * t, arguments, directions))
        for s in (step, -step)
    ]
    assert float((moved[0] - moved[1]) / (2 * step)) == pytest.approx(
        float(slope), rel=1e-5, abs=1e-6
    )


@most_architectures
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_precisions(name, dtype):
    space = ARCHITECTURES[name]
    exact = UNFLinear(space, IN, OUT, key=KEY, dtype=jnp.float64)
    x = random_features(space, IN, key=KEY, dtype=jnp.float64)
    layer, low = jax.tree.map(lambda a: a.astype(dtype), (exact, x))
    got, expected = jax.jit(lambda f, x: f(x))(layer, low), jax.jit(lambda f, x: f(x))(exact, x)
    scale = max(float(jnp.max(jnp.abs(leaf))) for leaf in jax.tree.leaves(expected))
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert a.dtype == dtype
        np.testing.assert_allclose(
            np.asarray(a, np.float64), b, atol=20 * scale * float(jnp.finfo(dtype).eps)
        )


@pytest.mark.parametrize(
    "out",
    [
        {"score": ("b", (3,))},
        {"pooled": ("", ())},
        {"gram": ("b b", (3, 3))},
        {"by class": ("[class] b", (4, 3))},
    ],
    ids=lambda entries: next(iter(entries)),
)
def test_maps_between_spaces(out):
    """Pooling, per-neuron scores, interactions: equal to the definition, equivariant, complete."""
    from tests.laws.architectures import space_of

    space = ARCHITECTURES["mlp"]
    out_space = space_of(out)
    layer = UNFLinear(space, IN, OUT, key=KEY, out_space=out_space, dtype=jnp.float64)
    assert_equivariant(layer, space, out_space=out_space, key=KEY, channels=IN, dtype=jnp.float64)
    x = random_features(space, IN, key=KEY, dtype=jnp.float64)
    literal = literal_layer(layer.plan, layer.coefficients, x, layer.bias)
    assert_trees_close(layer(x), literal)
    back = UNFLinear(out_space, OUT, IN, key=KEY, out_space=space, dtype=jnp.float64)
    y = literal_layer(back.plan, back.coefficients, literal, back.bias)
    assert_trees_close(back(layer(x)), y)


def test_nothing_is_lost_at_one_name_four_times():
    """15 set partitions of four indices on each side: Bell(8) terms."""
    assert unf.count_terms(ARCHITECTURES[FOURFOLD]) == 4140
