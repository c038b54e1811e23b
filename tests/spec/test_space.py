"""Weight spaces: construction, sizes, mistakes, relaxing and fixing."""

import dataclasses

import equinox as eqx
import flax.linen as linen
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from unf import SpecError, WeightSpace
from unf.spec._tree import format_path


def shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


def test_paper_appendix_a():
    params = {
        "layer1": {"weight": jnp.zeros((64, 32)), "bias": jnp.zeros(64)},
        "layer2": {"weight": jnp.zeros((10, 64)), "bias": jnp.zeros(10)},
    }
    spec = {
        "layer1": {"weight": ("n2", "n1"), "bias": ("n2",)},
        "layer2": {"weight": ("n3", "n2"), "bias": ("n3",)},
    }
    space = WeightSpace.from_spec(spec, params)
    assert space.sizes == {"n2": 64, "n1": 32, "n3": 10}
    assert space.fixed == ()
    assert space.to_spec()["layer2"] == {"weight": "n3 n2", "bias": "n3"}


@pytest.mark.parametrize(
    ("spec", "shapes", "sizes", "expected"),
    [
        ("(a b) a", (6, 2), {}, {"a": 2, "b": 3}),
        ("(a + b) a", (7, 2), {}, {"a": 2, "b": 5}),
        ("(h (k + k + v)) h k", (2 * 9, 2, 3), {}, {"h": 2, "k": 3, "v": 3}),
        ("(a a)", (9,), {}, {"a": 3}),
        ("(a + a + 1)", (9,), {}, {"a": 4}),
        ("(3 a) a", (12, 4), {}, {"a": 4}),
        ("(a b)", (6,), {"a": 2}, {"a": 2, "b": 3}),
        ("(b c) (a b) a", (12, 6, 2), {}, {"b": 3, "c": 4, "a": 2}),
    ],
)
def test_sizes_are_inferred(spec, shapes, sizes, expected):
    assert WeightSpace.from_spec(spec, shape(*shapes), sizes=sizes).sizes == expected


@pytest.mark.parametrize(
    ("spec", "shapes", "sizes", "match"),
    [
        ("a b", (2,), {}, "2 axes, the array 1"),
        ("a a", (2, 3), {}, r"expected: 2 elements \(a = 2 from axis 0 of 'w'\)"),
        ("(a b)", (6,), {}, r"not determined[\s\S]*pass sizes=\{'a': ...\}"),
        ("(a b) a", (7, 2), {}, "no size of 'b' makes it 7 long"),
        ("(a a)", (8,), {}, "no size of 'a' makes it 8 long"),
        ("3 a", (4, 2), {}, "expected: 3 elements"),
        ("a [a]", (2, 2), {}, "'a' is fixed here and permuted at 'w'"),
        ("h.k", (2,), {}, "nested in 'h', but no axis beside it"),
        ("h.k h h", (2, 3, 3), {}, "occurs 2 times in this leaf and never before it"),
        ("a", (2,), {"b": 2}, "sizes= names 'b'"),
        ("a", (2,), {"a": 0}, "the size 0"),
        ("a", (2,), {"a": 3}, "a = 3 from sizes="),
        ("a", (0,), {}, "without elements"),
    ],
)
def test_mistakes_in_sizes(spec, shapes, sizes, match):
    with pytest.raises(SpecError, match=match):
        WeightSpace.from_spec({"w": spec}, {"w": shape(*shapes)}, sizes=sizes)


@pytest.mark.parametrize(
    ("spec", "params", "match"),
    [
        ({"v": "a"}, {"w": shape(2)}, r"has an entry that the parameters do not[\s\S]*to 'w'"),
        ({"w": shape(2)}, {"w": "a"}, r"not an array[\s\S]*comes before the parameters"),
        ({"w": "a"}, {"w": shape(2, 3)}, r"1 axes, the array 2[\s\S]*name every axis"),
        ({"w": "a b"}, {"w": shape(6)}, r"2 axes, the array 1[\s\S]*in parentheses"),
        ({}, {"w": shape(2)}, "at 'w': the specification has no entry"),
        ({"w": {"x": "a"}}, {"w": shape(2)}, "a string or a tuple of names"),
        ({"w": "a"}, {"w": {"x": shape(2)}}, "at 'w/x': the specification has no entry"),
        (["a"], [shape(2), shape(2)], "at '1': the specification has no entry"),
        (["a", "b", "c"], [shape(2), shape(2)], r"has an entry that the[\s\S]*remove it"),
        ({"f": "a"}, {"f": jax.nn.relu}, r"not an array[\s\S]*equinox.partition"),
        ({}, {}, "no arrays"),
    ],
)
def test_mistakes_in_structure(spec, params, match):
    with pytest.raises(SpecError, match=match):
        WeightSpace.from_spec(spec, params)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Affine:
    weight: jax.Array
    bias: jax.Array


def test_containers():
    w, b = jnp.zeros((2, 3)), jnp.zeros(3)
    leaf = {"weight": "a b", "bias": "b"}
    for params, spec in [
        ((w, b), (("a", "b"), ("b",))),
        ([w, [b, ()]], ["a b", ["b", ()]]),
        (Affine(w, b), Affine("a b", "b")),
        (Affine(w, b), leaf),
        ({"layers": [Affine(w, b)]}, {"layers": [leaf]}),
        (w, "a b"),
        ({"s": 1.5, "w": w}, {"s": "", "w": "a b"}),
    ]:
        space = WeightSpace.from_spec(spec, params)
        assert space.sizes == {"a": 2, "b": 3}
        again = WeightSpace.from_spec(space.to_spec(), params)
        assert again == space


def test_libraries():
    """Parameter trees of Equinox, Flax Linen, Flax NNX and Haiku."""
    key, x = jax.random.key(0), jnp.zeros((1, 2))
    equinox = eqx.filter(eqx.nn.MLP(2, 4, 3, depth=1, key=key), eqx.is_array)
    space = WeightSpace.from_spec(
        {"layers": [{"weight": "h [i]", "bias": "h"}, {"weight": "[o] h", "bias": "[o]"}]}, equinox
    )
    assert space.sizes == {"h": 3}

    class Linen(linen.Module):
        @linen.compact
        def __call__(self, x):
            x = linen.Dense(3)(x)
            return linen.Dense(4)(x)

    dense = {
        "Dense_0": {"kernel": "[i] h", "bias": "h"},
        "Dense_1": {"kernel": "h [o]", "bias": "[o]"},
    }
    space = WeightSpace.from_spec({"params": dense}, Linen().init(key, x))
    assert space.sizes == {"h": 3}

    state = nnx.state(nnx.Linear(2, 3, rngs=nnx.Rngs(0)))
    names = [format_path(path) for path, _ in jax.tree_util.tree_flatten_with_path(state)[0]]
    space = WeightSpace.from_spec(
        jax.tree.map(lambda leaf: "[i] h" if jnp.ndim(leaf) == 2 else "h", state), state
    )
    assert space.sizes == {"h": 3} and [leaf.path for leaf in space.leaves] == names

    def hk_network(x):
        x = hk.Linear(3)(x)
        return hk.Linear(4)(x)

    network = hk.without_apply_rng(hk.transform(hk_network))
    space = WeightSpace.from_spec(
        {"linear": {"w": "[i] h", "b": "h"}, "linear_1": {"w": "h [o]", "b": "[o]"}},
        network.init(key, x),
    )
    assert space.sizes == {"h": 3}


def test_equal_spaces_are_equal():
    a = WeightSpace.from_spec({"w": "a b"}, {"w": shape(2, 3)})
    assert a == WeightSpace.from_spec({"w": ("a", "b")}, {"w": jnp.zeros((2, 3))})
    assert len({a, WeightSpace.from_spec({"w": "a b"}, {"w": shape(2, 3)})}) == 1
    assert a != WeightSpace.from_spec({"w": "a c"}, {"w": shape(2, 3)})
    assert a != WeightSpace.from_spec({"w": "a b"}, {"w": shape(2, 4)})
    assert a != WeightSpace.from_spec(["a b"], [shape(2, 3)])


def test_relax_and_fix():
    space = WeightSpace.from_spec({"k": "[kh 3] [i] a"}, {"k": shape(2, 3, 4, 5)})
    assert space.relax("kh").sizes == {"kh": 2, "a": 5}
    relaxed = space.relax()
    assert sorted(relaxed.sizes.values()) == [2, 3, 4, 5] and relaxed.fixed == ()
    assert relaxed.fix("kh").fixed == ("kh",)
    assert space.relax("kh", "i").fix("kh", "i") == space
    assert space.fix().sizes == {}
    with pytest.raises(SpecError, match="no axis is named 'zz'"):
        space.relax("zz")
    with pytest.raises(SpecError, match="no axis is named 'zz'"):
        space.fix("zz")


def test_relaxing_a_stacked_axis_gives_a_wreath_product():
    space = WeightSpace.from_spec({"w": "[layer] d layer.m"}, {"w": shape(2, 3, 4)})
    assert len(space.blocks) == 2 and len(space.relax("layer").blocks) == 1
    g = space.relax("layer").sample_permutation(jax.random.key(0))
    assert {name: i.shape for name, i in g.items()} == {"layer": (2,), "d": (3,), "layer.m": (2, 4)}


def test_permute_moves_what_the_names_say():
    space = WeightSpace.from_spec(
        {"w": "[2] (a + (b a))", "n": "h h.k"},
        {"w": shape(2, 8), "n": shape(2, 3)},
        sizes={"a": 2},
    )
    w, n = np.arange(16.0).reshape(2, 8), np.arange(6.0).reshape(2, 3)
    a, b, h, k = [1, 0], [2, 0, 1], [1, 0], [[0, 2, 1], [1, 2, 0]]
    got = space.permute({"w": w, "n": n}, {"a": a, "b": b, "h": h, "h.k": np.array(k)})
    product = w[:, 2:].reshape(2, 3, 2)[:, b][:, :, a].reshape(2, 6)
    np.testing.assert_array_equal(got["w"], np.concatenate([w[:, :2][:, a], product], axis=1))
    expected = [[n[h[i], k[i][j]] for j in range(3)] for i in range(2)]
    np.testing.assert_array_equal(got["n"], expected)
    channels = space.permute({"w": w[..., None], "n": n[..., None]}, {"a": a, "b": b})
    np.testing.assert_array_equal(channels["w"][..., 0], got["w"])


def test_permute_mistakes():
    space = WeightSpace.from_spec({"w": "a [b]"}, {"w": shape(2, 3)})
    w = {"w": jnp.zeros((2, 3))}
    with pytest.raises(SpecError, match="'c' is not a permutation of this space"):
        space.permute(w, {"c": [0, 1]})
    with pytest.raises(SpecError, match=r"'b' is not a permutation[\s\S]*relax"):
        space.permute(w, {"b": [0, 1, 2]})
    with pytest.raises(SpecError, match=r"expected: shape \(2,\)"):
        space.permute(w, {"a": [0, 1, 2]})
    with pytest.raises(SpecError, match="at 'w': the array has the wrong shape"):
        space.permute({"w": jnp.zeros((3, 2))}, {"a": [0, 1]})
    with pytest.raises(SpecError, match=r"structure differs[\s\S]*missing \['w'\]"):
        space.permute({"v": jnp.zeros((2, 3))}, {"a": [0, 1]})


def test_json_makes_no_objects_of_other_classes():
    space = WeightSpace.from_spec(Affine("a b", "b"), Affine(shape(2, 3), shape(3)))
    with pytest.raises(SpecError, match=r"of the class 'Affine'[\s\S]*remedy: pass the weight"):
        WeightSpace.from_json(space.to_json())
    for text in (
        "",
        "[]",
        "{}",
        '{"format": 1, "tree": {"dict": 3}, "sizes": {}}',
        '{"format": 2}',
    ):
        with pytest.raises(SpecError, match="description"):
            WeightSpace.from_json(text)


SHAPES = {"q": shape(4, 6), "o": shape(6, 4), "b": shape(4)}
ATTENTION = WeightSpace.from_spec(
    {"q": "d (h h.k)", "o": "(h h.k) d", "b": "d"}, SHAPES, sizes={"h": 2}
)


def test_renaming_keeps_the_group():
    space = ATTENTION.rename({"h": "head", "h.k": "key"})
    assert space.to_spec() == {"q": "d (head head.key)", "o": "(head head.key) d", "b": "d"}
    assert space.sizes == {"d": 4, "head": 2, "head.key": 3}
    assert space.rename({"head.key": "k", "head": "h"}) == ATTENTION
    assert ATTENTION.rename({"h": "d", "d": "h"}).sizes == {"h": 4, "d": 2, "d.k": 3}
    numbers = WeightSpace.from_spec({"w": (0, 1)}, {"w": shape(2, 3)})
    assert numbers.rename({0: "a", 1: "b"}).to_spec() == {"w": "a b"}


@pytest.mark.parametrize(
    ("names", "match"),
    [
        ({"m": "n"}, "no axis is named 'm'"),
        ({"d": "h"}, "two axes would be named 'h'"),
        ({"h.k": "h.key"}, "the new name of 'h.k' has a dot"),
        ({"d": "a b"}, "not the name of an axis"),
    ],
)
def test_names_that_cannot_be_given(names, match):
    with pytest.raises(SpecError, match=match):
        ATTENTION.rename(names)


def test_dropping_leaves():
    params = {"net": [{"w": shape(3), "mean": shape(3)}, {"mean": shape(2)}], "out": shape(3)}
    spec = {"net": [{"w": "a", "mean": "a"}, {"mean": "b"}], "out": "a"}
    space = WeightSpace.from_spec(spec, params)
    assert space.drop("net/0/mean", "out").to_spec() == {"net": [{"w": "a"}, {"mean": "b"}]}
    without = space.drop("*/mean")
    assert without.to_spec() == {"net": [{"w": "a"}, None], "out": "a"} and "b" not in without.sizes
    assert space.drop("net/").to_spec() == {"out": "a"}
    module = eqx.nn.Linear(2, 3, key=jax.random.key(0))
    linear = WeightSpace.from_spec({"weight": "a b", "bias": "a"}, module)
    assert linear.drop("bias").to_spec().bias is None
    with pytest.raises(SpecError, match=r"at 'nets': no such leaf\n  expected: paths such as"):
        space.drop("nets")
    with pytest.raises(SpecError, match="no leaf would remain"):
        space.drop("net", "out")


def test_permuting_what_is_nested_in_a_fixed_axis():
    """Each index of the fixed axis has its own row, and each name its nearest axis before it."""
    swap = {"l.c": np.array([[0, 1], [1, 0]])}
    stacked = WeightSpace.from_spec({"w": "[l] l.c"}, {"w": shape(2, 2)})
    found = stacked.permute({"w": jnp.array([[1, 2], [3, 4]])}, swap)["w"]
    np.testing.assert_array_equal(found, [[1, 2], [4, 3]])
    both = WeightSpace.from_spec({"w": "([l] l.c) ([l] l.c)"}, {"w": shape(4, 4)}, sizes={"l": 2})
    w, order = jnp.arange(16).reshape(4, 4), np.array([0, 1, 3, 2])
    np.testing.assert_array_equal(both.permute({"w": w}, swap)["w"], w[order][:, order])
    with pytest.raises(SpecError, match="which occurs 2 times in this leaf and never before it"):
        WeightSpace.from_spec({"w": "l.c [l] [l]"}, {"w": shape(2, 2, 2)})


KV = {"kv": "[kv] h kv{[key] | h.value}", "o": "h h.value [out]"}
KEYS_AND_VALUES = WeightSpace.from_spec(KV, {"kv": shape(2, 3, 4), "o": shape(3, 4, 5)})


def test_an_axis_that_differs_by_index():
    space = KEYS_AND_VALUES
    assert space.sizes == {"h": 3, "h.value": 4} and space.fixed == ("kv", "key", "out")
    assert space.to_spec() == KV and WeightSpace.from_json(space.to_json()) == space
    kv = jnp.arange(24).reshape(2, 3, 4)
    order = np.array([[1, 0, 2, 3], [0, 1, 2, 3], [3, 2, 1, 0]])
    found = space.permute({"kv": kv, "o": jnp.zeros((3, 4, 5))}, {"h.value": order})["kv"]
    np.testing.assert_array_equal(found[0], kv[0])
    np.testing.assert_array_equal(found[1], np.take_along_axis(np.asarray(kv[1]), order, axis=1))


def test_changing_what_differs_by_index():
    space = KEYS_AND_VALUES
    assert space.rename({"kv": "kind"}).to_spec()["kv"] == "[kind] h kind{[key] | h.value}"
    assert space.fix("h.value").to_spec()["kv"] == "[kv] h kv{[key] | [h.value]}"
    assert space.relax().to_spec()["kv"] == "[kv] h kv{key | h.value}"
    with pytest.raises(SpecError, match=r"of 'kv', not fixed here\n  expected: \[kv\] before it"):
        space.relax("kv")


@pytest.mark.parametrize(
    ("spec", "match"),
    [
        ("[l] a l{b}", r'"l\{b\}" has 1 axes between braces\n  expected: one for each of the 2'),
        ("[l] a l{b | c | d}", "has 3 axes between braces"),
        ("l{a | b} l c", "differs between the indices of 'l', not fixed here"),
        ("l{a | b} [l] [l]", "of 'l', which occurs 2 times, never before it"),
        ("[l] a l{b | 3}", 'axis 2, "3", does not fit its array'),
        ("[l] a l{b | a.c | d}", "has 3 axes between braces"),
        ("[l] a l{b | b.c}", "nested in 'b', but no axis beside it has that name"),
    ],
)
def test_braces_that_do_not_fit(spec, match):
    with pytest.raises(SpecError, match=match):
        WeightSpace.from_spec(spec, shape(2, 2, 2))
