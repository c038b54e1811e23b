"""Layers and models on weight spaces of other sizes: `on(space)`."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unf
from tests.laws.architectures import ARCHITECTURES, space_of, typical_by_day
from unf.models import InvariantDeepSet, InvariantUNF, StatNN, reader
from unf.nn import InvariantPool, MatrixProducts, PositionalEncoding, UNFLinear
from unf.testing import assert_equivariant

KEY = jax.random.key(0)
FREE_OF_DIAGONALS = [
    name
    for name, space in ARCHITECTURES.items()
    if all(len({x.name for x in b.labels}) == len(b.labels) for b in space.blocks)
    and not any(label.parent is not None for block in space.blocks for label in block.labels)
    and "stacked" not in name
]


def features(space, channels=2):
    rng = np.random.default_rng(0)
    return space.unflatten([rng.normal(size=(*leaf.shape, channels)) for leaf in space.leaves])


def copied(space, wide, x):
    """Every permuted index of every block twice, so that a wide network consists of copies."""
    blocks = []
    for block, array in zip(space.blocks, space.fold(space.flatten(x, channels=True)), strict=True):
        for axis in range(len(block.labels)):
            array = np.repeat(array, 2, axis=axis)
        blocks.append(array)
    return wide.unflatten(wide.unfold(blocks))


@typical_by_day(FREE_OF_DIAGONALS)
def test_a_network_of_copies_gives_copies(name):
    """Terms are means and broadcasts, so coefficients mean the same thing at every size."""
    space = ARCHITECTURES[name]
    wide = space.resize({n: 2 * size for n, size in space.sizes.items()})
    layer = UNFLinear(space, 2, 3, key=KEY, dtype=jnp.float64)
    layer = eqx.tree_at(lambda m: m.bias, layer, layer.bias + 1.0)
    x = features(space)
    got = eqx.filter_jit(layer.on(wide))(copied(space, wide, x))
    expected = copied(space, wide, eqx.filter_jit(layer)(x))
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


@pytest.mark.parametrize("name", ["rnn", "attention, nested", "stacked for a scan", "cnn 2d"])
def test_equivariant_at_other_sizes(name):
    space = ARCHITECTURES[name]
    wide = space.resize({n: size + 2 for n, size in space.sizes.items()})
    layer = UNFLinear(space, 2, 1, key=KEY, dtype=jnp.float64).on(wide)
    assert_equivariant(eqx.filter_jit(layer), wide, key=KEY, channels=2)


def test_there_and_back_is_the_same():
    space = ARCHITECTURES["rnn"]
    wide = space.resize({"h": 7})
    model = unf.models.UNF(space, 1, 2, key=KEY, hidden_channels=3, norm=True, products=2)
    again = model.on(wide).on(space)
    assert eqx.tree_equal(again, model)
    assert again.made_by == model.made_by


def test_outputs_follow_the_input():
    space = ARCHITECTURES["rnn"]
    scores = space_of({"score": ("h", (3,))})
    layer = UNFLinear(space, 2, 1, key=KEY, out_space=scores)
    assert layer.on(space.resize({"h": 5})).plan.out_space.sizes == {"h": 5}
    model = unf.models.UNF(space, 2, 1, key=KEY, out_space=scores)
    assert model.on(space.resize({"h": 5}))(features(space.resize({"h": 5})))["score"].shape == (
        5,
        1,
    )


LONG = space_of({"w": ("[x] h", (20, 3)), "v": ("h [y]", (3, 2))})


INVARIANT = {
    "unf": lambda: InvariantUNF(LONG, 1, 2, key=KEY, mlp_width=8, hidden_channels=3),
    "deep set": lambda: InvariantDeepSet(LONG, 1, 2, key=KEY, mlp_width=8, hidden_channels=3),
    "statnn": lambda: StatNN(LONG, 1, 2, key=KEY, mlp_width=8),
    "reader": lambda: reader(LONG, 2, key=KEY, size="small"),
}


@pytest.mark.parametrize("name", INVARIANT)
def test_invariant_models(name, tmp_path):
    model = INVARIANT[name]()
    wide = LONG.resize({"h": 6})
    permuted = unf.testing.assert_invariant
    permuted(eqx.filter_jit(model.on(wide)), wide, key=KEY)
    unf.save_model(tmp_path / "m.safetensors", model.on(wide))
    assert unf.load_model(tmp_path / "m.safetensors").space == wide
    assert unf.load_model(tmp_path / "m.safetensors", space=LONG).space == LONG


def test_readers_tell_the_indices_of_long_fixed_axes_apart():
    x, turn = features(LONG, 1), jnp.arange(20)[::-1]
    model = jax.tree.map(
        lambda p: p + 0.03 if eqx.is_inexact_array(p) else p, INVARIANT["reader"]()
    )
    read = eqx.filter_jit(model)
    assert np.max(np.abs(read(x) - read(x | {"w": x["w"][turn]}))) > 1e-3


def test_long_fixed_axes_may_change_because_models_permute_them():
    model = InvariantUNF(LONG, 1, 2, key=KEY, hidden_channels=3, mlp_width=8)
    longer = LONG.resize({"x": 30})
    assert model.on(longer)(features(longer, 1)).shape == (2,)
    with pytest.raises(unf.SpecError, match=r"at 'w': another network(.|\n)*\[x\] h"):
        model.on(LONG.resize({"x": 9}))


@pytest.mark.nightly
def test_fitted_models_keep_their_constants():
    space = ARCHITECTURES["mlp"]
    rng = np.random.default_rng(0)
    shapes = [(12, *leaf.shape) for leaf in space.leaves]
    weights = space.unflatten([rng.normal(size=s).astype("float32") for s in shapes])
    model = InvariantUNF(space, 1, 1, key=KEY, hidden_channels=2, mlp_width=4)
    fitted = unf.fit(model, weights, rng.normal(size=12), key=KEY, epochs=1, validation=0.25).model
    wide = fitted.on(space.resize({"b": 5}))
    assert wide.space.sizes["b"] == 5 and wide.shift is fitted.shift
    assert np.isfinite(wide(jax.tree.map(jnp.asarray, features(wide.space, 1)))).all()


SPACE = ARCHITECTURES["mlp without biases"]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (space_of({"w0": ("[i] a", (2, 3))}), "at 'w1': another network(.|\n)*got: no more leaves"),
        (
            space_of({"w0": ("[i] a", (2, 3)), "w1": ("b [o]", (3, 2))}),
            "at 'w1': another network(.|\n)*expected: 'w1' with axes \"a \\[o\\]\"",
        ),
        (SPACE.resize({"o": 5}), "the fixed axis 'o'(.|\n)*size 2(.|\n)*size 5"),
    ],
)
def test_other_networks_are_refused(other, message):
    pool = InvariantPool(SPACE)
    layer = UNFLinear(SPACE, 1, 1, key=KEY)
    products = MatrixProducts(SPACE, 1, key=KEY)
    for module in (pool, layer, products):
        with pytest.raises(unf.SpecError, match=message):
            module.on(other)


def test_what_belongs_to_a_size_is_refused():
    layer = UNFLinear(space_of({"w": ("n n", (2, 2))}), 1, 1, key=KEY, minimal=True)
    with pytest.raises(unf.SpecError, match=r"minimal layer has other terms(.|\n)*minimal=False"):
        layer.on(layer.plan.in_space.resize({"n": 4}))
    positions = PositionalEncoding(SPACE, 2, axes=("a",), kind="learned", key=KEY)
    with pytest.raises(unf.SpecError, match="the learned encoding of 'a' has 3 indices"):
        positions.on(SPACE.resize({"a": 4}))
    with pytest.raises(unf.SpecError, match="no axis is named 'q'"):
        SPACE.resize({"q": 4})
    with pytest.raises(unf.SpecError, match="gives 'a' the size 0"):
        SPACE.resize({"a": 0})
