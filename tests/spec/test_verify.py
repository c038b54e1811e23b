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


# --- precision ------------------------------------------------------------------------------


def in_float32(body):
    """A network that casts to float32 and back, with an influence of `body` of about 1e-6."""

    def network(params, x):
        p, y = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), (params, x))
        return jnp.asarray(jnp.sum(y) + 1e-6 * jnp.sum(body(p, y) * jnp.arange(2.0)), x.dtype)

    return network


def looped(params, h):
    return jax.lax.fori_loop(0, 2, lambda _, h: jnp.tanh(h @ params["u"]) @ params["v"], h)


def scanned(params, h):
    layers = jax.tree.map(lambda a: jnp.stack([a, a]), params)

    def layer(h, p):
        return jnp.tanh(h @ p["u"]) @ p["v"], jnp.float32(0)

    return jax.lax.scan(layer, h, layers)[0]


def branched(params, h):
    return jax.lax.cond(jnp.sum(h) > 9, lambda h: h, lambda h: looped(params, h), h)


def rounded(params, h):
    h = jax.lax.reduce_precision(jnp.tanh(h @ params["u"]), 8, 7)
    return jax.checkpoint(lambda h: jnp.asarray(h, jnp.bfloat16) @ params["v"])(h)


@pytest.mark.parametrize("body", [looped, scanned, branched, rounded])
def test_casts_inside_the_network_are_widened(body):
    """Influences far below float32's rounding tell right from wrong, in either direction."""
    params = {"u": jnp.zeros((2, 5)), "v": jnp.zeros((5, 2))}
    x = jax.random.normal(KEY, (2,))
    right = WeightSpace.from_spec({"u": "[i] h", "v": "h [i]"}, params)
    report = verify(in_float32(body), params, right, x, key=KEY)
    assert report.changes["h"] < 1e-14 and report.dead == () and report.tolerance < 2e-8
    wrong = WeightSpace.from_spec({"u": "[i] h", "v": "g [i]"}, params)
    with pytest.raises(SymmetryError, match=r"'h' changes the outputs by .*e-0[5-8]") as caught:
        verify(in_float32(body), params, wrong, x, key=KEY)
    assert set(caught.value.axes) == {"g", "h"}


def test_rounding_on_purpose_hides_no_influence():
    def network(params, x):
        return jax.lax.reduce_precision(jnp.sum(x) + 1e-6 * looped(params, x), 8, 7)

    params = {"u": jnp.zeros((2, 5)), "v": jnp.zeros((5, 2))}
    space = WeightSpace.from_spec({"u": "[i] h", "v": "h [i]"}, params)
    assert verify(network, params, space, jnp.ones(2), key=KEY).dead == ()


def test_float32_parts_that_end_in_float64():
    def network(params, x):
        hidden = jnp.asarray(x, jnp.float32) @ jnp.asarray(params["u"], jnp.float32)
        return jnp.asarray(jnp.sin(1e3 * hidden), x.dtype) @ params["v"]

    params = {"u": jnp.zeros((30, 50)), "v": jnp.zeros((50, 2))}
    space = WeightSpace.from_spec({"u": "[i] h", "v": "h [o]"}, params)
    x = jax.random.normal(KEY, (4, 30))
    assert verify(network, params, space, x, key=KEY).changes["h"] < 1e-11


def test_the_tolerance_is_of_the_coarsest_operation():
    """A bit cast has no float64 form, so it runs in float32; its rounding is allowed for."""

    def network(params, x):
        bits = jax.lax.bitcast_convert_type(jnp.float32(x @ params["u"]), jnp.int32)
        exponents = jnp.right_shift(bits, 23) & 255
        return (x @ params["u"] * jnp.exp2(exponents - 127.0)) @ params["v"]

    params = {"u": jnp.zeros((3, 4)), "v": jnp.zeros((4, 2))}
    space = WeightSpace.from_spec({"u": "[i] h", "v": "h [o]"}, params)
    report = verify(network, params, space, jax.random.normal(KEY, (5, 3)), key=KEY)
    assert 1e-4 < report.tolerance < 1e-3


def test_random_numbers_and_callbacks_are_evaluated_as_written():
    def network(params, key):
        noise = jax.random.normal(key, (5, 3), jnp.float32)
        jax.debug.callback(lambda x: None, noise)
        return jnp.tanh(noise @ jnp.float32(params["u"])) @ jnp.float32(params["v"])

    params = {"u": jnp.zeros((3, 4)), "v": jnp.zeros((4, 2))}
    space = WeightSpace.from_spec({"u": "[i] h", "v": "h [o]"}, params)
    report = verify(network, params, space, jax.random.key(1), key=KEY)
    assert report.changes["h"] < 1e-14 and report.tolerance < 2e-8


# --- draws ----------------------------------------------------------------------------------


def test_variances_that_start_at_zero_are_drawn_positive():
    def network(params, x):
        hidden = (x @ params["u"] - params["mean"]) * jax.lax.rsqrt(params["var"] + 1e-5)
        return hidden @ params["v"]

    params = {"u": jnp.ones((3, 4)), "mean": jnp.zeros(4), "var": jnp.zeros(4)}
    params |= {"v": jnp.ones((4, 2))}
    spec = {"u": "[i] h", "mean": "h", "var": "h", "v": "h [o]"}
    x = jax.random.normal(KEY, (3,))
    report = verify(network, params, WeightSpace.from_spec(spec, params), x, key=KEY)
    assert report.dead == ()
    wrong = WeightSpace.from_spec(spec | {"var": "g"}, params)
    with pytest.raises(SymmetryError, match="'g' changes the outputs"):
        verify(network, params, wrong, x, key=KEY)


def test_a_leaf_is_drawn_again_until_it_has_influence():
    """The gate is shut in half of all draws, so one draw would accept this half of the time."""

    def network(params, x):
        return x + jax.nn.relu(params["gate"]) * (params["w"] @ jnp.arange(3.0))

    params = {"gate": jnp.zeros(()), "w": jnp.zeros(3)}
    space = WeightSpace.from_spec({"gate": "", "w": "h"}, params)
    for seed in range(6):
        with pytest.raises(SymmetryError, match="'h' changes the outputs"):
            verify(network, params, space, 1.0, key=jax.random.key(seed))


def test_names_on_leaves_without_influence_are_untested():
    def network(params, x):
        return x @ params["w"] + 0 * jnp.sum(params["spare"] ** 2)

    params = {"w": jnp.zeros((3, 2)), "spare": jnp.zeros(4)}
    space = WeightSpace.from_spec({"w": "[i o]", "spare": "h"}, params)
    report = verify(network, params, space, jnp.ones((2, 3)), key=KEY)
    assert report.dead == ("spare",) and report.untested == ("h",)
    assert "h  0.0e+00  untested" in str(report)
