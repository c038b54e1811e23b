"""Signs of neurons: an action that commutes with permutations, and a choice no flip changes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unf
from tests.laws.architectures import ARCHITECTURES, space_of
from tests.symmetry.draws import assert_same_bits, draw, draw_element

every_space = pytest.mark.parametrize("name", ARCHITECTURES)
ORIENTED = {
    "mlp": (space_of({"w0": ("[i] a", (2, 3)), "b0": ("a", (3,)), "w1": ("a [o]", (3, 2))}), "a"),
    "deep, without biases": (
        space_of({"w0": ("[i] a", (2, 4)), "w1": ("a b", (4, 5)), "w2": ("b c", (5, 3)),
                  "w3": ("c [o]", (3, 2))}),
        "abc",
    ),
    "rnn": (ARCHITECTURES["rnn"], "h"),
    "only one of two": (ARCHITECTURES["mlp"], "b"),
    "nested": (
        space_of({"q": ("[d] (h h.k)", (2, 6)), "o": ("(h h.k) [d]", (6, 2))}, h=3), ["h.k"]
    ),
    "stacked": (
        space_of({"up": ("[layer] [2] layer.m", (2, 2, 3)),
                  "down": ("[layer] layer.m [3]", (2, 3, 3))}),
        ["layer.m"],
    ),
    "products": (
        space_of({"w": ("[i] (a b)", (2, 6)), "v": ("(a + b) [o]", (5, 2))}, a=2, b=3), "ab"
    ),
}  # fmt: skip
every_choice = pytest.mark.parametrize("case", ORIENTED)


def draw_signs(space, seed, names=None):
    rng = np.random.default_rng(seed)
    shapes = space.index_shapes
    return {name: rng.choice([-1.0, 1.0], shapes[name]) for name in names or shapes}


@every_space
def test_flipping_twice_changes_nothing_and_signs_multiply(name):
    space = ARCHITECTURES[name]
    x, a, b = draw(space, 0), draw_signs(space, 1), draw_signs(space, 2)
    assert_same_bits(space.flip(space.flip(x, a), a), x)
    both = {name: a[name] * b[name] for name in a}
    assert_same_bits(space.flip(space.flip(x, a), b), space.flip(x, both))


@every_space
def test_signs_move_with_the_neurons(name):
    space = ARCHITECTURES[name]
    x, signs, element = draw(space, 0), draw_signs(space, 1), draw_element(space, 2)
    moved = {}
    for name, shape in space.index_shapes.items():
        # An array with this name alone shows how its signs move.
        above = [".".join(name.split(".")[:i]) for i in range(1, 1 + name.count("."))]
        axes = [each if each in signs else f"[{each}]" for each in above]
        alone = unf.WeightSpace.from_spec({"m": " ".join([*axes, name])}, {"m": np.zeros(shape)})
        part = {key: element[key] for key in alone.index_shapes}
        moved[name] = alone.permute({"m": signs[name]}, part)["m"]
    before = space.permute(space.flip(x, signs), element)
    assert_same_bits(before, space.flip(space.permute(x, element), moved))


@every_choice
def test_orientation_does_not_depend_on_signs(case):
    space, names = ORIENTED[case]
    names = [unf.spec._grammar.parse_name(name) for name in names]
    x = draw(space, 0)
    oriented = space.orient(x, names)
    assert_same_bits(space.orient(space.flip(x, draw_signs(space, 1, names)), names), oriented)
    assert_same_bits(space.orient(oriented, names), oriented)
    element = draw_element(space, 2)
    moved = space.orient(space.permute(x, element), names)
    assert_same_bits(moved, space.permute(oriented, element))
    for name, leaf in oriented.items():
        np.testing.assert_array_equal(np.abs(leaf), np.abs(x[name]))


def test_the_first_weights_to_be_summed_are_those_that_depend_on_nothing_else():
    space, names = ORIENTED["deep, without biases"]
    x = space.orient(draw(space, 0), list(names))
    assert np.all(x["w0"].sum(0) >= 0) and np.all(x["w3"].sum(1) >= 0)
    assert np.all(x["w1"].sum(0) + x["w2"].sum(1) >= 0)
    space, name = ORIENTED["mlp"]
    x = space.orient(draw(space, 0), [name])
    assert np.all(x["w0"].sum(0) + x["w1"].sum(1) >= 0)  # biases are not asked
    only_biases = space_of({"b": ("a", (3,)), "r": ("a a", (3, 3))})
    assert np.all(only_biases.orient(draw(only_biases, 0), ["a"])["b"] >= 0)


@every_choice
def test_features_jit_and_vmap(case):
    space, names = ORIENTED[case]
    x = draw(space, 0, 1)
    many = jax.tree.map(lambda leaf: jnp.stack([leaf, -leaf]), x)
    found = jax.jit(jax.vmap(lambda one: space.orient(one, list(names))))(many)
    expected = space.orient(x, list(names))
    for path, leaf in expected.items():
        assert isinstance(leaf, np.ndarray)
        np.testing.assert_array_equal(found[path][0], leaf)


def test_mistakes():
    space = ARCHITECTURES["mlp without biases"]
    x = draw(space, 0)
    with pytest.raises(unf.SpecError, match=r"'i' is not a permutation(.|\n)*neurons have no sign"):
        space.orient(x, ["i"])
    with pytest.raises(unf.SpecError, match=r"names of permutations are a sequence(.|\n)*'a'"):
        space.orient(x, "a")
    with pytest.raises(unf.SpecError, match=r"signs of 'a' have the wrong shape(.|\n)*\(2,\)"):
        space.flip(x, {"a": np.ones(2)})
    with pytest.raises(unf.SpecError, match="signs belong to names"):
        space.flip(x, ["a"])
    alone = space_of({"r": ("h h", (3, 3))})
    with pytest.raises(unf.SpecError, match=r"no array tells which sign(.|\n)*leave 'h' out"):
        alone.orient(draw(alone, 0), ["h"])


def network(activation):
    def fn(params, x):
        h = jnp.zeros(4)
        for i in range(3):
            h = activation(x[i] @ params["x"] + h @ params["r"] + params["b"])
        return h @ params["o"]

    return fn


RNN = {"x": jnp.ones((2, 4)), "r": jnp.ones((4, 4)), "b": jnp.zeros(4), "o": jnp.ones((4, 3))}
X = jax.random.normal(jax.random.key(0), (3, 2))


def test_verify_flips_neurons():
    space = unf.infer(network(jnp.tanh), RNN, X)
    (name,) = space.sizes
    options = {"key": jax.random.key(0), "signs": [name]}
    report = unf.verify(network(jnp.tanh), RNN, space, X, **options)
    assert report.broken_signs == () and report.flips[name] < 1e-12
    assert "ok, flipped" in str(report)
    with pytest.raises(unf.SymmetryError, match=rf"'{name}', flipped, changes(.|\n)*signs=;") as e:
        unf.verify(network(jax.nn.relu), RNN, space, X, **options)
    assert e.value.axes == (name,)
    with pytest.raises(unf.SpecError, match="is not a permutation of this space"):
        unf.verify(network(jnp.tanh), RNN, space, X, key=jax.random.key(0), signs=["other"])
