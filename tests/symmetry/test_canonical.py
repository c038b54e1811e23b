"""Canonical forms are the same for all permuted copies, bit for bit, and are copies themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unf
from tests.laws.architectures import space_of
from tests.laws.test_random_spaces import random_space, random_spaces, specs
from tests.symmetry.draws import assert_same_bits, draw, draw_element
from tests.symmetry.test_align import SPACES, every_space
from unf.symmetry import _canonical
from unf.testing import spaces


def small_integers(space, seed):
    rng = np.random.default_rng(seed)
    return space.unflatten([rng.integers(0, 2, leaf.shape) for leaf in space.leaves])


def constants(space, seed):
    return space.unflatten([np.full(leaf.shape, i + 0.5) for i, leaf in enumerate(space.leaves)])


def zeros(space, seed):
    return space.unflatten([np.zeros(leaf.shape) for leaf in space.leaves])


def signed_zeros(space, seed):
    return jax.tree.map(lambda x: np.copysign(0.0, x - 0.5), small_integers(space, seed))


def copies_of_one_neuron(space, seed):
    """The last neuron of every permutation equals the first."""
    same = {name: np.broadcast_to(np.arange(shape[-1]) % max(1, shape[-1] - 1), shape)
            for name, shape in space.index_shapes.items()}  # fmt: skip
    parts = [
        unf.spec._group.permute_leaf(layout, leaf, same)
        for layout, leaf in zip(space.layouts, jax.tree.leaves(draw(space, seed)), strict=True)
    ]
    return space.unflatten(parts)


def assert_canonical(space, x, seed):
    form = unf.canonicalize(space, x)
    moved = space.permute(x, draw_element(space, seed))
    assert_same_bits(unf.canonicalize(space, moved), form)
    assert_same_bits(unf.canonicalize(space, form), form)
    assert unf.distance(space, x, form) == 0


@every_space
@pytest.mark.parametrize(
    "weights", [draw, small_integers, constants, zeros, signed_zeros, copies_of_one_neuron]
)
def test_forms_of_copies_are_equal(name, weights):
    space = SPACES[name]
    assert_canonical(space, weights(space, 0), 1)


@settings(random_spaces, max_examples=40)
@given(specs, st.integers(0, 2**31), st.sampled_from([draw, small_integers, signed_zeros]))
def test_random_spaces(strings, seed, weights):
    space = random_space(strings)
    x = weights(space, seed)
    form = unf.canonicalize(space, x)
    assert_same_bits(unf.canonicalize(space, space.permute(x, draw_element(space, seed))), form)


def test_different_networks_have_different_forms():
    space = SPACES["attention, nested"]
    a = draw(space, 0)
    b = {**a, "b": np.nextafter(a["b"], np.float32(9))}
    forms = [unf.canonicalize(space, x) for x in (a, b)]
    assert any(np.any(forms[0][path] != forms[1][path]) for path in a)


def test_neurons_are_sorted_by_their_largest_weight():
    space = space_of({"q": ("[d] (h h.k)", (2, 12)), "o": ("(h h.k) [d]", (12, 2))}, h=3)
    form = unf.canonicalize(space, draw(space, 0))
    largest = np.maximum(np.abs(form["q"]).max(0), np.abs(form["o"]).max(1)).reshape(3, 4)
    assert np.all(np.diff(largest, axis=1) < 0)
    assert np.all(np.diff(largest.max(axis=1)) < 0)


def circulant(size):
    return np.array([np.roll(np.arange(size) < 2, i) for i in range(size)]).astype(np.float32)


@pytest.mark.parametrize(
    "entries, x",
    [
        pytest.param({"r": ("h h", (9, 9))}, {"r": circulant(9)}, id="circulant"),
        pytest.param({"w": ("a b", (12, 12))}, {"w": np.eye(12)}, id="identity"),
        pytest.param(
            {"w": ("h h.k h h.k", (3, 3, 3, 3))},
            {"w": np.eye(9, dtype=np.int8).reshape(3, 3, 3, 3)},
            id="identity of heads",
        ),
        pytest.param(
            # Two triangles and a hexagon: refinement does not tell their vertices apart.
            {"r": ("h h", (12, 12))},
            {"r": np.kron(np.diag([1, 1, 0, 0]), 1 - np.eye(3))
             + np.pad(np.roll(np.eye(6), 1, 0) + np.roll(np.eye(6), -1, 0), ((6, 0), (6, 0)))},
            id="triangles and a hexagon",
        ),
    ],
)  # fmt: skip
def test_neurons_that_refinement_does_not_tell_apart(entries, x):
    assert_canonical(space_of(entries), x, 0)


def test_a_search_that_takes_too_long_names_the_neurons(monkeypatch):
    monkeypatch.setattr(_canonical, "_MOST_STEPS", 20)
    space = space_of({"w": ("a b", (12, 12))})
    x = {"w": np.eye(12)}
    with pytest.raises(unf.SpecError, match=r"so symmetric(.|\n)*neurons of 'a' that are not told"):
        unf.canonicalize(space, x)
    moved = space.permute(x, draw_element(space, 0))
    found = unf.align(space, x, moved)
    assert_same_bits(space.permute(moved, {name: np.asarray(i) for name, i in found.items()}), x)


def test_wide_layers_of_zeros_need_no_search():
    space = spaces.transformer(num_blocks=1, width=64, heads=4, vocabulary=5)
    x = zeros(space, 0)
    assert_same_bits(unf.canonicalize(space, x), x)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "bool"])
def test_dtypes(dtype):
    space = SPACES["gru seq2seq"]
    x = jax.tree.map(lambda x: jnp.asarray(3 * x).astype(dtype), draw(space, 0))
    form = unf.canonicalize(space, x)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(form))
    numpy = jax.tree.map(np.asarray, space.permute(x, draw_element(space, 1)))
    assert_same_bits(unf.canonicalize(space, numpy), form)


def test_channels_and_infinities():
    space = SPACES["rnn"]
    x = draw(space, 0, 2)
    x["r"][0, 1] = np.inf
    assert_same_bits(
        unf.canonicalize(space, space.permute(x, draw_element(space, 1))),
        unf.canonicalize(space, x),
    )


def test_bad_weights_are_named():
    space = SPACES["rnn"]
    x = draw(space, 0)
    with pytest.raises(
        unf.SpecError, match=r"at 'b': 1 of 3 values are NaN, so neurons(.|\n)*drop"
    ):
        unf.canonicalize(space, {**x, "b": np.array([1.0, np.nan, 2.0])})
    with pytest.raises(unf.SpecError, match="at 'r': not an array of real numbers"):
        unf.canonicalize(space, {**x, "r": x["r"].astype(np.complex64)})
    with pytest.raises(unf.SpecError, match="at 'b': the array has the wrong shape"):
        unf.canonicalize(space, {**x, "b": np.zeros(4)})
    with pytest.raises(unf.SpecError, match="at 'b': a traced array has no values"):
        jax.jit(lambda x: unf.canonicalize(space, x))(x)
