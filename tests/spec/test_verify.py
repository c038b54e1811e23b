"""verify accepts true symmetries and names false ones."""

import jax
import jax.numpy as jnp
import pytest

import unf
from unf import SymmetryError, WeightSpace, verify

KEY = jax.random.key(0)


def mlp(params, x):
    hidden = jax.nn.relu(x @ params["w0"] + params["b0"][None])
    return hidden @ params["w1"] * params["scale"][None]


PARAMS = {
    "w0": jnp.zeros((3, 4)),
    "b0": jnp.zeros(4),
    "w1": jnp.zeros((4, 2)),
    "scale": jnp.ones(2),
}
TRUE = {"w0": "[i] h", "b0": "h", "w1": "h [o]", "scale": "[o]"}


def test_accepts_a_true_symmetry():
    space = WeightSpace.from_spec(TRUE, PARAMS)
    report = verify(mlp, PARAMS, space, jnp.ones((5, 3)), key=KEY)
    assert report.broken == () and set(report.changes) == {"h"}
    assert "h  " in str(report)


@pytest.mark.parametrize(
    ("change", "axes"),
    [({"w0": "i h"}, ("i",)), ({"b0": "k"}, ("h", "k")), ({"scale": "p"}, ("p",))],
)
def test_names_the_axes_at_fault(change, axes):
    space = WeightSpace.from_spec(TRUE | change, PARAMS)
    x = jax.random.normal(KEY, (5, 3))
    with pytest.raises(SymmetryError, match="not symmetries of this network") as caught:
        verify(mlp, PARAMS, space, x, key=KEY)
    assert set(caught.value.axes) == set(axes)


def test_zeros_hide_errors_unless_randomized():
    space = WeightSpace.from_spec(TRUE | {"w0": "i h"}, PARAMS)
    assert verify(mlp, PARAMS, space, jnp.ones((5, 3)), key=KEY, randomize=False).broken == ()


def test_heads_are_nested():
    def attention(params, x):
        heads = (x @ params["v"]).reshape(-1, 2, 3)
        return jax.nn.softmax(heads.sum(-1))[..., None] * heads.reshape(-1, 2, 3)

    def network(params, x):
        return attention(params, x).reshape(-1, 6) @ params["o"]

    params = {"v": jnp.zeros((4, 6)), "o": jnp.zeros((6, 4))}
    x = jax.random.normal(KEY, (5, 4))
    nested = {"v": "[d] (h h.v)", "o": "(h h.v) [d]"}
    space = WeightSpace.from_spec(nested, params, sizes={"h": 2})
    assert verify(network, params, space, x, key=KEY).broken == ()
    mixed = WeightSpace.from_spec({"v": "[d] v", "o": "v [d]"}, params)
    with pytest.raises(SymmetryError, match="'v' changes the outputs"):
        verify(network, params, mixed, x, key=KEY)


def test_a_permuted_window_is_refused():
    def conv(params, x):
        return jnp.tanh(jax.lax.conv(x, params["k"], (1, 1), "SAME"))

    params = {"k": jnp.zeros((2, 1, 3, 3))}
    x = jax.random.normal(KEY, (1, 1, 6, 6))
    space = WeightSpace.from_spec({"k": "[o i] kh [kw]"}, params)
    with pytest.raises(SymmetryError, match="'kh' changes the outputs") as caught:
        verify(conv, params, space, x, key=KEY)
    assert caught.value.axes == ("kh",)


def test_outputs_must_be_finite():
    space = WeightSpace.from_spec({"w": "a"}, {"w": jnp.ones(3)})
    with pytest.raises(ValueError, match="outputs are not finite"):
        verify(lambda p: p["w"] / 0.0, {"w": jnp.ones(3)}, space, key=KEY)


def test_wrong_params_are_refused():
    space = WeightSpace.from_spec({"w": "a"}, {"w": jnp.ones(3)})
    with pytest.raises(unf.SpecError, match="wrong shape"):
        verify(lambda p: p["w"], {"w": jnp.ones(4)}, space, key=KEY)


def test_shapes_have_no_values_to_permute():
    shapes = {"w": jax.ShapeDtypeStruct((2, 3), "float32")}
    space = WeightSpace.from_spec({"w": "a b"}, shapes)
    with pytest.raises(unf.SpecError, match=r"at 'w': a shape without values[\s\S]*zeros"):
        verify(lambda p: p["w"], shapes, space, key=jax.random.key(0))
