"""Learned optimizers in files."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import unf
from unf.optim import FORMS, init_theta, learned_optimizer, load, origin, save, trained
from unf.optim._theta import KINDS
from unf.testing import spaces

KEY = jax.random.key(0)
SPACE = spaces.paper_cnn(corrected=True)


@pytest.mark.parametrize("kind", KINDS)
def test_round_trip(kind, tmp_path):
    theta = init_theta(
        kind,
        SPACE,
        key=KEY,
        form=FORMS["code"],
        hidden_channels=8,
        spatial=(-1, -3),
        head_bias=False,
    )
    save(tmp_path / "o.safetensors", theta, task="cnn", steps=3)
    again = load(tmp_path / "o.safetensors", space=None if kind == "tied" else SPACE)
    assert jax.tree.structure(again) == jax.tree.structure(theta)
    for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(theta), strict=True):
        np.testing.assert_array_equal(a, b)
    assert origin(tmp_path / "o.safetensors") == {"task": "cnn", "steps": 3}


@pytest.mark.parametrize("kind", KINDS)
def test_round_trip_of_adaptive_ones(kind, tmp_path):
    options = {"form": FORMS["adaptive"], "hidden_channels": 3}
    theta = init_theta(kind, SPACE, key=KEY, **options)
    theta = jax.tree.map(lambda x: x + 1 if eqx.is_array(x) else x, theta)
    save(tmp_path / "o.safetensors", theta)
    again = load(tmp_path / "o.safetensors")
    assert jax.tree.structure(again) == jax.tree.structure(theta)
    jax.tree.map(np.testing.assert_array_equal, jax.tree.leaves(again), jax.tree.leaves(theta))


def test_another_weight_space_is_told_apart(tmp_path):
    save(tmp_path / "unf", init_theta("unf", SPACE, key=KEY))
    with pytest.raises(unf.SpecError, match="another network, which differs in more"):
        load(tmp_path / "unf", space=spaces.paper_mlp())
    save(tmp_path / "deepset", init_theta("deepset", key=KEY))
    assert load(tmp_path / "deepset", space=spaces.paper_mlp()).kind == "deepset"


def test_mistakes(tmp_path):
    with pytest.raises(ValueError, match="no learned optimizer 'nothing': neither a file nor one"):
        load("nothing")
    (tmp_path / "text").write_text("no optimizer")
    with pytest.raises(ValueError, match="not a complete safetensors file"):
        load(tmp_path / "text")
    model = unf.models.StatNN(SPACE, 1, 1, key=KEY, mlp_width=2, mlp_layers=2)
    unf.save_model(tmp_path / "model", model)
    with pytest.raises(ValueError, match="not a learned optimizer, but a model"):
        load(tmp_path / "model")


@pytest.mark.parametrize("name", trained())
def test_those_that_ship_can_be_used(name):
    theta = load(name)
    assert all(bool(np.isfinite(x).all()) for x in jax.tree.leaves(eqx.filter(theta, eqx.is_array)))
    assert name.endswith("any") or origin(name)["task"] in name
    shapes = {"w0": (64, 32), "b0": (32,), "w1": (32, 10), "b1": (10,)}
    params = {leaf: jnp.ones(shape) for leaf, shape in shapes.items()}
    space = spaces.mlp(64, 32, 10) if theta.kind == "tied" else None
    by_name, loaded = (learned_optimizer(it, space=space) for it in (name, theta))
    updates = [tx.update(params, tx.init(params), params)[0] for tx in (by_name, loaded)]
    np.testing.assert_array_equal(updates[0]["w0"], updates[1]["w0"])


@pytest.mark.parametrize("name", [name for name in trained() if name.endswith("-any")])
def test_those_for_any_network_train_one_that_they_never_saw(name):
    """A residual network with weights of unusual scales, and a loss of an unusual scale."""

    def network(params, x):
        h = x @ params["first"] / 100
        h = h + jnp.tanh(h @ params["up"]) @ params["down"]
        return h @ params["last"]

    shapes = {"first": (5, 12), "up": (12, 24), "down": (24, 12), "last": (12, 3)}
    keys = dict(zip(shapes, jax.random.split(KEY, 4), strict=True))
    params = {k: jax.random.normal(keys[k], shape) / 3 for k, shape in shapes.items()}
    params["first"] *= 100
    x = jax.random.normal(jax.random.key(1), (64, 5))
    wanted = jnp.sin(x @ jax.random.normal(jax.random.key(2), (5, 3)))

    def loss(params):
        return 1000 * jnp.mean((network(params, x) - wanted) ** 2)

    optimizer = learned_optimizer(name, space=unf.infer(network, params, x))

    def step(state, _):
        params, inner = state
        value, gradients = jax.value_and_grad(loss)(params)
        updates, inner = optimizer.update(gradients, inner, params)
        return (optax.apply_updates(params, updates), inner), value

    _, losses = jax.lax.scan(step, (params, optimizer.init(params)), length=200)
    assert losses[-1] < 0.1 * losses[0] and bool(jnp.isfinite(losses).all())
