"""The laws of the equivariant layer, over the table of architectures.

Compiling is most of the time, so most laws use one layer for each architecture, `layer_on`, and
one compiled function, `run`.
"""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unf
from tests.laws.architectures import (
    ARCHITECTURES,
    FOURFOLD,
    every_architecture,
    space_of,
    typical_by_day,
)
from tests.laws.bruteforce import count_orbits, explicit_matrix, explicit_terms, layer_matrix
from unf.basis import make_plan
from unf.basis._cost import core_parameters
from unf.nn import UNFLinear, apply, coefficient_shapes
from unf.testing import assert_equivariant, literal_layer, random_features

KEY = jax.random.key(0)
IN, OUT = 2, 3
LITERAL = {"mlp", "cnn 2d", "rnn", "attention, nested", "fused qkv", "stacked for a scan"}


@eqx.filter_jit
def run(layer, x):
    return layer(x)


@cache
def layer_on(name, minimal=False):
    return UNFLinear(ARCHITECTURES[name], IN, OUT, key=KEY, minimal=minimal, dtype=jnp.float64)


def features(space, *batch, seed=0):
    """Drawn by NumPy, which compiles nothing."""
    rng = np.random.default_rng(seed)
    return space.unflatten([rng.normal(size=(*batch, *leaf.shape, IN)) for leaf in space.leaves])


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
    layer = layer_on(name, minimal)
    bias = np.random.default_rng(0).normal(size=layer.bias.shape)
    layer = eqx.tree_at(lambda layer: layer.bias, layer, jnp.asarray(bias))
    x = jax.tree.map(jnp.asarray, features(ARCHITECTURES[name]))
    expected = literal_layer(layer.plan, layer.coefficients, x, layer.bias)  # compiles for minutes
    assert_trees_close(run(layer, x), expected)


@every_architecture
@pytest.mark.parametrize("minimal", [False, True])
def test_equals_explicit_matrices(name, minimal):
    """For random coefficients, and therefore for all: both sides are linear in them."""
    plan = make_plan(ARCHITECTURES[name], minimal=minimal)
    if minimal and plan.cores == make_plan(ARCHITECTURES[name]).cores:
        return  # no term is redundant here
    rng = np.random.default_rng(0)
    shapes = coefficient_shapes(plan, 1, 1)
    coefficients = {core: rng.normal(size=shape) for core, shape in shapes.items()}
    got = jax.jit(lambda c: layer_matrix(plan, c))(coefficients)
    np.testing.assert_allclose(got, explicit_matrix(plan, coefficients), rtol=1e-10, atol=1e-10)


@every_architecture
def test_equivariant(name):
    for seed in range(3):
        assert_equivariant(
            lambda x: run(layer_on(name), x), ARCHITECTURES[name], key=jax.random.key(seed),
            channels=IN, dtype=jnp.float64,
        )  # fmt: skip


@every_architecture
def test_complete_and_independent(name):
    """Minimal terms are a basis of all equivariant maps, whose dimension orbits give.

    Terms between different blocks are independent, since they have no entry in common.
    """
    space = ARCHITECTURES[name]
    plan = make_plan(space, minimal=True)
    parameters = sum(core_parameters(plan, core, 1, 1) for core in plan.cores)
    assert parameters == count_orbits(space, space)
    of_pairs = explicit_terms(plan).values()
    assert parameters == sum(term.rows * term.columns for terms, _ in of_pairs for term in terms)
    for terms, tensors in of_pairs:
        rank = np.linalg.matrix_rank(tensors.reshape(len(terms), -1)) if terms else 0
        assert rank == len(terms)


@every_architecture
def test_linear(name):
    x, y = (features(ARCHITECTURES[name], seed=seed) for seed in range(2))
    combined = run(layer_on(name), jax.tree.map(lambda a, b: 2.0 * a - 3.0 * b, x, y))
    apart = run(layer_on(name), x), run(layer_on(name), y)
    assert_trees_close(combined, jax.tree.map(lambda a, b: 2.0 * np.array(a) - 3.0 * b, *apart))


@typical_by_day(ARCHITECTURES)
def test_transformations(name):
    """jit, vmap and scan give what plain calls give; reverse and forward mode agree."""
    space, layer = ARCHITECTURES[name], layer_on(name)
    batch = features(space, 2)
    if name == "rnn":
        x = jax.tree.map(lambda a: jnp.asarray(a[0]), batch)
        assert_trees_close(layer(x), run(layer, x))

    def loss(coefficients, x):
        outputs = apply(layer.plan, coefficients, x, layer.bias)
        return sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(outputs))

    @jax.jit
    def transformed(batch, arguments, directions):
        scanned = jax.lax.scan(lambda _, x: (None, layer(x)), None, batch)[1]
        slope = jax.jvp(loss, arguments, directions)[1]
        return jax.vmap(layer)(batch), scanned, slope, jax.grad(loss, argnums=(0, 1))(*arguments)

    arguments = jax.tree.map(np.asarray, (layer.coefficients, features(space, seed=1)))
    directions = jax.tree.map(np.cos, arguments)
    batched, scanned, slope, gradient = transformed(batch, arguments, directions)
    for i in range(2):
        one, other, alone = (
            jax.tree.map(lambda a, i=i: np.asarray(a)[i], x) for x in (batched, scanned, batch)
        )
        expected = run(layer, alone)
        assert_trees_close(one, expected)
        assert_trees_close(other, expected)
    products = jax.tree.map(lambda a, b: np.sum(np.asarray(a) * b), gradient, directions)
    assert sum(jax.tree.leaves(products)) == pytest.approx(float(slope), rel=1e-9)
    assert _difference(layer, arguments, directions) == pytest.approx(
        float(slope), rel=1e-5, abs=1e-6
    )


def _difference(layer, arguments, directions, step=1e-6):
    """The slope of the loss by a central difference."""
    values = []
    for s in (step, -step):
        moved = jax.tree.map(lambda a, t, s=s: a + s * t, arguments, directions)
        moved_layer = eqx.tree_at(lambda layer: layer.coefficients, layer, moved[0])
        outputs = jax.tree.leaves(run(moved_layer, moved[1]))
        values.append(sum(float(np.sum(np.sin(leaf))) for leaf in outputs))
    return (values[0] - values[1]) / (2 * step)


@typical_by_day(ARCHITECTURES)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_precisions(name, dtype):
    exact, x = layer_on(name), features(ARCHITECTURES[name])
    layer = jax.tree.map(lambda a: a.astype(dtype), exact)
    got = run(layer, jax.tree.map(lambda a: a.astype(dtype), x))
    expected = run(exact, x)
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
    space, out_space = ARCHITECTURES["mlp"], space_of(out)
    layer = UNFLinear(space, IN, OUT, key=KEY, out_space=out_space, dtype=jnp.float64)
    options = {"key": KEY, "channels": IN, "dtype": jnp.float64}
    assert_equivariant(lambda x: run(layer, x), space, out_space=out_space, **options)
    x = random_features(space, IN, key=KEY, dtype=jnp.float64)
    literal = literal_layer(layer.plan, layer.coefficients, x, layer.bias)
    assert_trees_close(run(layer, x), literal)
    back = UNFLinear(out_space, OUT, IN, key=KEY, out_space=space, dtype=jnp.float64)
    y = literal_layer(back.plan, back.coefficients, literal, back.bias)
    assert_trees_close(run(back, literal), y)


def test_nothing_is_lost_at_one_name_four_times():
    """15 set partitions of four indices on each side: Bell(8) terms."""
    assert unf.count_terms(ARCHITECTURES[FOURFOLD]) == 4140
