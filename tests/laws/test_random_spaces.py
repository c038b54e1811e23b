"""The laws on weight spaces that nobody thought of."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import unf
from tests.laws.architectures import space_of
from tests.laws.bruteforce import count_orbits, explicit_matrix, layer_matrix
from unf.basis import make_plan
from unf.basis._cost import core_parameters
from unf.nn import coefficient_shapes
from unf.spec._grammar import format_axes, names_in, parse_leaf
from unf.spec._sizes import axis_size

SIZES = {"a": 2, "b": 3, "h": 2, "h.k": 2, "f": 2, "l": 2, "l.m": 2}
ATOMS = ["a", "b", "[f]", "2", "h h.k", "[l] l.m"]

atoms = st.sampled_from(ATOMS)
products = st.lists(atoms, min_size=1, max_size=2).map(lambda parts: f"({' '.join(parts)})")
concatenations = st.lists(
    st.one_of(atoms.filter(lambda a: " " not in a), products), min_size=2, max_size=2
).map(lambda parts: f"({' + '.join(parts)})")
leaves = st.lists(st.one_of(atoms, products, concatenations), max_size=3).map(" ".join)
specs = st.lists(leaves, min_size=1, max_size=3)

random_spaces = settings(
    deadline=None,
    max_examples=12,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def random_space(strings: list[str]) -> unf.WeightSpace:
    entries = {}
    for i, string in enumerate(strings):
        axes = parse_leaf(string)
        shape = tuple(axis_size(axis, SIZES) for axis in axes)
        assume(np.prod(shape, initial=1) <= 24)
        entries[f"x{i}"] = (string, shape)
    used = {str(n.path) for s in strings for a in parse_leaf(s) for n in names_in(a)}
    try:
        return space_of(entries, **{n: s for n, s in SIZES.items() if n in used})
    except unf.SpecError as error:  # two h before an h.k can be ambiguous
        assume("never before it" not in str(error))
        raise


@settings(random_spaces, max_examples=60)
@given(specs)
def test_round_trips(strings):
    space = random_space(strings)
    for string in strings:
        assert parse_leaf(format_axes(parse_leaf(string))) == parse_leaf(string)
    again = unf.WeightSpace.from_spec(space.to_spec(), space.to_shapes(), sizes=space.axis_sizes)
    assert again == space and hash(again) == hash(space)
    assert unf.WeightSpace.from_json(space.to_json()) == space
    assert space.fix().sizes == {}


@random_spaces
@given(specs, st.integers(0, 2**31 - 1))
def test_group_action(strings, seed):
    space = random_space(strings)
    keys = jax.random.split(jax.random.key(seed))
    x = space.unflatten(
        [np.arange(np.prod(leaf.shape, initial=1)).reshape(leaf.shape) for leaf in space.leaves]
    )
    g = space.sample_permutation(keys[0])
    moved = space.permute(x, g)
    back = space.permute(moved, space.invert(g))
    for before, mid, after in zip(*map(jax.tree.leaves, (x, moved, back)), strict=True):
        np.testing.assert_array_equal(before, after)
        np.testing.assert_array_equal(np.sort(np.ravel(mid)), np.ravel(before))


@random_spaces
@given(specs, st.booleans())
def test_layer_equals_its_definition(strings, minimal):
    space = random_space(strings)
    assume(space.num_weights <= 40)
    plan = make_plan(space, minimal=minimal)
    assume(plan.num_terms <= 400)
    rng = np.random.default_rng(0)
    coefficients = {
        name: jnp.asarray(rng.normal(size=shape))
        for name, shape in coefficient_shapes(plan, 1, 1).items()
    }
    got = jax.jit(lambda c: layer_matrix(plan, c))(coefficients)
    np.testing.assert_allclose(got, explicit_matrix(plan, coefficients), rtol=1e-9, atol=1e-9)


def dimension_and_orbits(strings: list[str]) -> tuple[int, int]:
    space = random_space(strings)
    assume(space.num_weights <= 60)
    plan = make_plan(space, minimal=True)
    dimension = sum(core_parameters(plan, core, 1, 1) for core in plan.cores)
    return dimension, count_orbits(space, space)


@settings(random_spaces, max_examples=60)
@given(specs)
def test_dimension_equals_orbits(strings):
    dimension, orbits = dimension_and_orbits(strings)
    assert dimension == orbits


@pytest.mark.nightly
@settings(random_spaces, max_examples=1000)
@given(specs)
def test_dimension_equals_orbits_at_length(strings):
    dimension, orbits = dimension_and_orbits(strings)
    assert dimension == orbits
