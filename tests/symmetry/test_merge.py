"""Alignment by activations, means of aligned networks, statistics, and barriers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unf
from tests.symmetry.draws import assert_same_bits, draw, draw_element
from unf.testing import spaces


def attention(params, tokens):
    x = jnp.asarray(params["embed"])[tokens]
    q, k, v = ((x @ params[name]).reshape(*x.shape[:2], 3, 2) for name in "qkv")
    weights = jax.nn.softmax(jnp.einsum("bthk,bshk->bhts", q, k))
    heads = jnp.einsum("bhts,bshk->bthk", weights, v)
    x = x + heads.reshape(x.shape) @ params["o"]
    return (x + jax.nn.relu(x @ params["up"]) @ params["down"]) @ params["out"]


SHAPES = {
    "embed": (20, 6), "q": (6, 6), "k": (6, 6), "v": (6, 6), "o": (6, 6),
    "up": (6, 9), "down": (9, 6), "out": (6, 4),
}  # fmt: skip
TOKENS = np.random.default_rng(0).integers(0, 20, (30, 5))


def some_params(seed, shapes=SHAPES):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.fixture(scope="module")
def space():
    return unf.infer(attention, some_params(0), TOKENS)


def nearby(params, seed, size):
    return {
        name: x + size * y
        for (name, x), y in zip(params.items(), some_params(seed).values(), strict=True)
    }


def test_activations_undo_a_permutation_of_a_perturbed_copy(space):
    assert space.to_spec()["o"] == "(head head.value) stream"
    a = some_params(0)
    b = nearby(a, 1, np.float32(0.05))
    moved = space.permute(b, draw_element(space, 2))
    found = unf.align(space, a, moved, method="activations", fn=attention, inputs=TOKENS)
    assert_same_bits(space.permute(moved, found), b)


def test_activations_match_neurons_whose_weights_were_rescaled():
    """ReLU(c x) / c is ReLU(x), so that only what neurons compute tells how to match them."""

    def relu_mlp(params, x):
        return jax.nn.relu(x @ params["w"]) @ params["v"]

    a = some_params(0, {"w": (5, 12), "v": (12, 3)})
    x = np.random.default_rng(0).normal(size=(200, 5)).astype(np.float32)
    space = unf.infer(relu_mlp, a, x)
    scales = np.geomspace(0.01, 100, 12).astype(np.float32)
    b = {"w": a["w"] * scales, "v": a["v"] / scales[:, None]}
    moved = space.permute(b, draw_element(space, 1))
    found = unf.align(space, a, moved, method="activations", fn=relu_mlp, inputs=x)
    assert_same_bits(space.permute(moved, found), b)
    merged = unf.merge(space, [a, moved], method="activations", fn=relu_mlp, batches=[x])
    np.testing.assert_allclose(merged["w"], (a["w"] + b["w"]) / 2, rtol=1e-6)


def test_names_may_differ_and_axes_be_fixed(space):
    given = space.rename({"stream": "width"}).fix("head", "mlp")
    a = some_params(0)
    b = nearby(a, 1, np.float32(0.05))
    moved = given.permute(b, draw_element(given, 2))
    found = unf.align(given, a, moved, method="activations", fn=attention, inputs=(TOKENS,))
    assert found.keys() == {"width", "head.key", "head.value"}
    assert_same_bits(given.permute(moved, found), b)


def test_states_of_a_loop_and_parameters_that_no_value_depends_on():
    def recurrent(params, x):
        def step(h, u):
            return jnp.tanh(u @ params["w"] + h @ params["r"]), None

        return jax.lax.scan(step, jnp.zeros((x.shape[1], 8), x.dtype), x)[0] @ params["o"]

    a = some_params(0, {"w": (3, 8), "r": (8, 8), "o": (8, 2), "unused": (2, 5)})
    x = np.random.default_rng(0).normal(size=(4, 30, 3)).astype(np.float32)
    space = unf.infer(recurrent, a, x)
    assert sorted(space.sizes.values()) == [2, 5, 8]  # the unused array permutes freely
    b = {name: value + np.float32(1e-3) * value**2 for name, value in a.items()}
    moved = space.permute(b, draw_element(space, 1))
    found = unf.align(space, a, moved, method="activations", fn=recurrent, inputs=x)
    assert_same_bits(space.permute(moved, found), b)


def test_errors_of_alignment_by_activations(space):
    a = some_params(0)
    with pytest.raises(ValueError, match='expected "weights" or "activations", got \'both\''):
        unf.align(space, a, a, method="both")
    with pytest.raises(ValueError, match=r"pass fn=.* and inputs="):
        unf.align(space, a, a, method="activations", fn=attention)
    with pytest.raises(ValueError, match='belong to method="activations"'):
        unf.align(space, a, a, fn=attention, inputs=TOKENS)
    other = unf.WeightSpace.from_spec(dict(space.to_spec(), o="all stream"), a, sizes={"head": 3})
    with pytest.raises(unf.SpecError, match=r"(?s)not that of the network.*head.*unf\.infer"):
        unf.align(other, a, nearby(a, 1, 1), method="activations", fn=attention, inputs=TOKENS)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_merging_permuted_copies_gives_the_network_back(count):
    space = spaces.transformer(num_blocks=1, width=8, heads=2, vocabulary=3)
    a = draw(space, 0)
    copies = [a, *(space.permute(a, draw_element(space, seed)) for seed in range(1, count))]
    shares = np.arange(1, count + 1)
    assert_same_bits(unf.merge(space, copies, shares), jax.tree.map(jnp.asarray, a))


def test_the_mean_of_several_is_nearer_than_that_of_networks_aligned_to_the_first():
    space = spaces.mlp(3, 10, 10, 2)
    networks = [draw(space, seed) for seed in range(4)]
    first = [networks[0]]
    first += [space.permute(x, unf.align(space, networks[0], x)) for x in networks[1:]]

    def norm(params):
        return sum(float(np.sum(np.square(x))) for x in jax.tree.leaves(params))

    # Aligned networks have a mean with a larger norm, since the mean square distance to it is less.
    norms = [
        norm(unf.merge(space, networks, align=False)),
        norm(unf.merge(space, first, align=False)),
        norm(unf.merge(space, networks)),
    ]
    assert norms[0] < norms[1] < norms[2]


def test_weights_and_arrays_that_are_not_averaged():
    space = unf.WeightSpace.from_spec(
        {"w": "[x] n", "count": ""}, {"w": np.zeros((1, 2)), "count": np.zeros((), int)}
    )
    a = {"w": np.array([[1.0, 2.0]]), "count": np.array(3)}
    b = {"w": np.array([[6.0, 5.0]]), "count": np.array(4)}
    merged = unf.merge(space, [a, b], weights=[3, 1])
    np.testing.assert_array_equal(merged["w"], [[2.0, 3.0]])
    assert merged["count"] == 3
    plain = unf.merge(space, [a, b], weights=[3, 1], align=False)
    np.testing.assert_array_equal(plain["w"], [[2.25, 2.75]])
    assert_same_bits(unf.merge(space, [a]), jax.tree.map(jnp.asarray, a))


def test_errors_of_merging():
    space = spaces.mlp(3, 4, 2)
    a = draw(space, 0)
    with pytest.raises(ValueError, match="at least one, got none"):
        unf.merge(space, [])
    with pytest.raises(ValueError, match="expected 2 numbers, none negative"):
        unf.merge(space, [a, a], weights=[1, -1])
    with pytest.raises(ValueError, match="fn= and batches= belong together"):
        unf.merge(space, [a, a], fn=lambda params, x: x)
    with pytest.raises(unf.SpecError, match="not finite"):
        unf.merge(space, [a, jax.tree.map(lambda x: x * np.inf, a)])


def normalized(params, x, train=True):
    """A network with batch norm: its outputs, and new statistics with momentum 0.9."""
    h = x @ params["w"]
    mean, var = (h.mean(0), h.var(0)) if train else params["batch_stats"].values()
    out = jax.nn.relu((h - mean[None]) / jnp.sqrt(var + 1e-5)[None]) @ params["v"]
    old = params["batch_stats"]
    new = {"mean": 0.9 * old["mean"] + 0.1 * h.mean(0), "var": 0.9 * old["var"] + 0.1 * h.var(0)}
    return out, {"batch_stats": new}


def normalized_params(seed):
    params = some_params(seed, {"w": (3, 6), "v": (6, 2)})
    stats = {"mean": np.full(6, 7.0, np.float32), "var": np.full(6, 9.0, np.float32)}
    return params | {"batch_stats": stats}


def test_statistics_are_means_over_batches_whatever_they_were():
    params = normalized_params(0)
    batches = np.random.default_rng(0).normal(size=(3, 40, 3)).astype(np.float32)
    found = unf.reset_statistics(normalized, params, batches)
    h = np.stack([x @ params["w"] for x in batches])
    np.testing.assert_allclose(found["batch_stats"]["mean"], h.mean(1).mean(0), atol=1e-5)
    np.testing.assert_allclose(found["batch_stats"]["var"], h.var(1).mean(0), rtol=1e-4)
    assert_same_bits(found["w"], params["w"])
    space = unf.infer(normalized, params, batches[0])
    assert space.to_spec()["batch_stats"]["mean"] == space.to_spec()["v"].split()[0]
    other = space.permute(params, draw_element(space, 1))
    merged = unf.merge(space, [params, other], fn=normalized, batches=batches)
    assert_same_bits(merged, found)
    large = unf.reset_statistics(normalized, params, list(1e4 * batches))
    expected = 1e8 * np.asarray(found["batch_stats"]["var"])
    np.testing.assert_allclose(large["batch_stats"]["var"], expected, rtol=1e-3)


def test_errors_of_statistics():
    params, x = normalized_params(0), np.ones((4, 3), np.float32)
    with pytest.raises(ValueError, match="at least one, got none"):
        unf.reset_statistics(normalized, params, [])
    with pytest.raises(ValueError, match="returns no new statistics"):
        unf.reset_statistics(lambda params, x: normalized(params, x)[0], params, [x])
    with pytest.raises(ValueError, match="run the network in training mode"):
        keep = lambda params, x: (x, {"batch_stats": params["batch_stats"]})  # noqa: E731
        unf.reset_statistics(keep, params, [x])


def test_a_barrier_vanishes_after_alignment_with_a_copy(space):
    def loss(params, tokens):
        return jnp.mean((attention(params, tokens) - attention(a, tokens)) ** 2)

    a = some_params(0)
    b = space.permute(a, draw_element(space, 1))
    found = unf.barrier(loss, space, a, b, [TOKENS[:15], TOKENS[15:]], num_points=5)
    np.testing.assert_allclose(found.positions, [0, 0.25, 0.5, 0.75, 1])
    assert found.before[0] == found.after[0] == 0
    assert found.height_before > 0.1 and found.height_after < 1e-9
    assert str(found).startswith("Barrier(")
    given = unf.barrier(loss, space, a, b, [TOKENS], num_points=3, permutation=found.permutation)
    assert given.height_after < 1e-9
    with pytest.raises(unf.SpecError, match="not a number"):
        unf.barrier(lambda *args: (loss(*args), 1), space, a, b, [TOKENS])
    scaled = unf.barrier(loss, space, a, b, [TOKENS], num_points=3, statistics=lambda params: a)
    assert scaled.height_before == 0


def test_errors_of_barriers(space):
    a = some_params(0)
    with pytest.raises(ValueError, match="at least one batch"):
        unf.barrier(attention, space, a, a, [])
    with pytest.raises(ValueError, match="num_points: expected at least 3, got 2"):
        unf.barrier(attention, space, a, a, [TOKENS], num_points=2)
    with pytest.raises(unf.SpecError, match=r"(?s)not a number.*shapes \(30, 5, 4\)"):
        unf.barrier(attention, space, a, a, [TOKENS])


def test_losses_that_cannot_be_hashed():
    """As modules with arrays."""

    class Loss:
        __hash__ = None

        def __call__(self, params, x):
            return jnp.mean(jnp.tanh(x @ params["w"]) @ params["v"])

    params = {"w": jnp.ones((3, 4)), "v": jnp.ones((4, 1))}
    space = unf.WeightSpace.from_spec({"w": "[i] h", "v": "h [o]"}, params)
    batch = (jnp.ones((2, 3)),)
    for method in ("weights", "activations"):
        found = unf.barrier(Loss(), space, params, params, [batch], method=method, num_points=3)
        assert found.height_after == 0
