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


def total(weights, axis):
    return np.sum(weights * np.abs(weights), axis)


def test_the_first_weights_to_be_summed_are_those_that_depend_on_nothing_else():
    space, names = ORIENTED["deep, without biases"]
    x = space.orient(draw(space, 0), list(names))
    assert np.all(total(x["w0"], 0) >= 0) and np.all(total(x["w3"], 1) >= 0)
    assert np.all(total(x["w1"], 0) + total(x["w2"], 1) >= 0)
    space, name = ORIENTED["mlp"]
    for bias in (-100.0, 100.0):  # is not asked
        x = space.orient({**draw(space, 0), "b0": np.full(3, bias)}, [name])
        assert np.all(total(x["w0"], 0) + total(x["w1"], 1) >= 0)
    only_biases = space_of({"b": ("a", (3,)), "r": ("a a", (3, 3))})
    assert np.all(only_biases.orient(draw(only_biases, 0), ["a"])["b"] >= 0)


def test_weights_that_sum_to_zero_are_oriented_alike_in_every_order():
    space = space_of({"w": ("[2] i h", (2, 5, 4)), "b": ("h", (4,))})
    x = draw(space, 0)
    x["w"] -= x["w"].mean((0, 1))
    oriented = space.orient(x, ["h"])
    for seed in range(20):
        element = draw_element(space, seed)
        moved = space.permute(x, element)
        assert_same_bits(space.orient(moved, ["h"]), space.permute(oriented, element))


def test_each_index_of_a_stack_waits_for_what_it_meets():
    space = space_of(
        {"a": ("[i] a", (2, 4)), "b": ("[i] b", (2, 4)),
         "up": ("[layer] layer{a | b} layer.m", (2, 4, 3))}
    )  # fmt: skip
    x = draw(space, 0)
    for names in (["a", "layer.m"], ["b", "layer.m"], ["a", "b", "layer.m"], ["layer.m"]):
        flipped = space.flip(x, draw_signs(space, 1, names))
        assert_same_bits(space.orient(flipped, names), space.orient(x, names))


def test_masks_and_counts_have_no_signs():
    space = space_of({"w": ("[i] h", (3, 4)), "mask": ("[i] h", (3, 4)), "count": ("h", (4,))})
    rng = np.random.default_rng(0)
    x = {"w": rng.normal(size=(3, 4)), "mask": rng.random((3, 4)) < 0.9,
         "count": rng.integers(0, 9, 4).astype(np.uint8)}  # fmt: skip
    flipped = space.flip(x, {"h": -np.ones(4)})
    np.testing.assert_array_equal(flipped["w"], -x["w"])
    for name in ("mask", "count"):
        assert flipped[name].dtype == x[name].dtype
        np.testing.assert_array_equal(flipped[name], x[name])
    assert_same_bits(space.orient(flipped, ["h"]), space.orient(x, ["h"]))


def test_numpy_beside_traced_values():
    space, name = ORIENTED["mlp"]
    x = draw(space, 0)
    signs = np.array([1.0, -1.0, 1.0])
    found = jax.jit(lambda signs: space.flip(x, {name: signs}))(signs)
    np.testing.assert_array_equal(found["w0"], space.flip(x, {name: signs})["w0"])
    for path in x:
        slope = jax.grad(lambda v, p=path: space.orient({**x, p: v}, [name])["w0"].sum())(x[path])
        assert slope.shape == x[path].shape


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
    for bad in (np.array([1.0, 0.5, -1.0]), np.zeros(3), np.array([True, False, True])):
        with pytest.raises(unf.SpecError, match=r"signs of 'a' are not signs(.|\n)*1 or -1 each"):
            space.flip(x, {"a": bad})
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
    with pytest.raises(unf.SymmetryError, match=rf"'{name}', flipped, changes(.|\n)*signs=:") as e:
        unf.verify(network(jax.nn.relu), RNN, space, X, **options)
    assert e.value.axes == (name,)
    with pytest.raises(unf.SpecError, match="is not a permutation of this space"):
        unf.verify(network(jnp.tanh), RNN, space, X, key=jax.random.key(0), signs=["other"])


def test_outputs_that_are_not_finite_are_no_agreement():
    """A variance that is negated has no root, and NaN compares with nothing."""

    def normalized(params, x):
        hidden = (x @ params["w"] - params["mean"][None]) * jax.lax.rsqrt(params["var"])[None]
        return jnp.tanh(hidden) @ params["v"]

    params = {"w": jnp.zeros((2, 4)), "mean": jnp.zeros(4), "var": jnp.ones(4),
              "v": jnp.zeros((4, 3))}  # fmt: skip
    space = unf.infer(normalized, params, X)
    with pytest.raises(unf.SymmetryError, match=r"flipped,(.|\n)*a scale, a variance, a mask"):
        unf.verify(normalized, params, space, X, key=jax.random.key(0), signs=list(space.sizes))


def test_flips_of_what_has_no_influence_are_untested():
    params = {"w": jnp.ones((2, 4)), "v": jnp.ones((2, 3))}

    def fn(params, x):
        return x @ params["v"] + 0 * jnp.tanh(x @ params["w"]).sum()

    space = unf.WeightSpace.from_spec({"w": "[i] h", "v": "[i] [o]"}, params)
    report = unf.verify(fn, params, space, X, key=jax.random.key(0), signs=["h"])
    assert "untested, flipped" in str(report)
