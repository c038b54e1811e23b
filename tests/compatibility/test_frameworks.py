"""Parameters of every framework: one network, written in each of them, through the whole library.

Flax Linen, Flax NNX, Haiku, Equinox and plain JAX; Optax; Orbax; safetensors, also as PyTorch
writes it.
"""

from typing import Any, NamedTuple

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file

import unf

KEY = jax.random.key(0)
X = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
HIDDEN, OUT = 6, 3


class Network(NamedTuple):
    apply: Any
    params: Any


def plain():
    first, second = jax.random.split(KEY)
    params = {
        "w0": jax.random.normal(first, (4, HIDDEN), jnp.float32),
        "b0": jnp.zeros(HIDDEN, jnp.float32),
        "w1": jax.random.normal(second, (HIDDEN, OUT), jnp.float32),
        "b1": jnp.zeros(OUT, jnp.float32),
    }
    return Network(
        lambda p, x: jnp.tanh(x @ p["w0"] + p["b0"][None]) @ p["w1"] + p["b1"][None], params
    )


def linen():
    network = nn.Sequential([nn.Dense(HIDDEN), jnp.tanh, nn.Dense(OUT)])
    return Network(network.apply, network.init(KEY, X))


def nnx_network():
    layers = [nnx.Linear(4, HIDDEN, rngs=nnx.Rngs(0)), nnx.Linear(HIDDEN, OUT, rngs=nnx.Rngs(1))]
    graph, params = nnx.split(nnx.Sequential(layers[0], jnp.tanh, layers[1]))
    return Network(lambda p, x: nnx.merge(graph, p)(x), params)


def haiku():
    def forward(x):
        return hk.Linear(OUT)(jnp.tanh(hk.Linear(HIDDEN)(x)))

    network = hk.without_apply_rng(hk.transform(forward))
    return Network(network.apply, network.init(KEY, X))


def equinox():
    network = eqx.nn.MLP(4, OUT, HIDDEN, 1, activation=jnp.tanh, dtype=jnp.float32, key=KEY)
    params, static = eqx.partition(network, eqx.is_array)
    return Network(lambda p, x: jax.vmap(eqx.combine(p, static))(x), params)


FRAMEWORKS = {
    "plain": plain, "linen": linen, "nnx": nnx_network, "haiku": haiku, "equinox": equinox,
}  # fmt: skip


@pytest.fixture(scope="module", params=FRAMEWORKS)
def network(request):
    with jax.numpy_rank_promotion("allow"):
        return FRAMEWORKS[request.param]()


@pytest.fixture(scope="module")
def space(network):
    with jax.numpy_rank_promotion("allow"):
        return unf.infer(network.apply, network.params, X)


@pytest.fixture(autouse=True)
def as_they_promote():
    with jax.numpy_rank_promotion("allow"):
        yield


def same(a, b, tolerance=0.0):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, atol=tolerance)


def test_the_hidden_neurons_are_found(network, space):
    assert list(space.sizes.values()) == [HIDDEN]
    assert not unf.verify(network.apply, network.params, space, X, key=KEY).broken
    permuted = space.permute(network.params, space.sample_permutation(jax.random.key(1)))
    np.testing.assert_allclose(
        network.apply(network.params, X), network.apply(permuted, X), atol=1e-5
    )
    assert any(np.any(a != b) for a, b in zip(*map(jax.tree.leaves, (permuted, network.params)),
                                              strict=True))  # fmt: skip


def test_features_have_the_parameters_structure(network, space):
    layer = unf.nn.UNFLinear(space, 1, 2, key=KEY)
    features = layer(unf.nn.stack_channels(network.params))
    assert jax.tree.structure(features) == jax.tree.structure(network.params)
    for leaf, feature in zip(*map(jax.tree.leaves, (network.params, features)), strict=True):
        assert feature.shape == (*leaf.shape, 2)
    unf.testing.assert_equivariant(layer, space, key=KEY)


def test_a_specification_by_hand_is_the_one_found(network, space):
    roles = space.unflatten(list(space.roles.values()))
    assert unf.WeightSpace.from_spec(space.to_spec(), network.params, roles=roles) == space


@pytest.mark.parametrize("kind", ["unf", "deepset"])
def test_a_learned_optimizer_in_a_chain(network, space, kind):
    """A step is a function of weights and gradients that permutes as they do."""
    theta = unf.optim.init_theta(kind, space, key=KEY)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), unf.optim.learned_optimizer(theta))

    @jax.jit
    def step(params):
        loss = lambda p: jnp.mean((network.apply(p, X) - 1) ** 2)  # noqa: E731
        updates, _ = optimizer.update(jax.grad(loss)(params), optimizer.init(params), params)
        return optax.apply_updates(params, updates)

    permutation = space.sample_permutation(jax.random.key(1))
    stepped = step(network.params)
    assert jax.tree.structure(stepped) == jax.tree.structure(network.params)
    expected = space.permute(stepped, permutation)
    same(step(space.permute(network.params, permutation)), expected, tolerance=1e-5)


def test_orbax_keeps_weights_and_models(network, space, tmp_path):
    """Weights of the network, a model that reads them, and a learned optimizer's state."""
    model = unf.models.InvariantUNF(space, 1, 2, key=KEY, num_layers=1, mlp_width=8)
    arrays, static = eqx.partition(model, eqx.is_array)
    theta = unf.optim.init_theta("unf", space, key=KEY)
    state = unf.optim.learned_optimizer(theta).init(network.params)
    trees = {"weights": network.params, "model": arrays, "state": state}
    for name, tree in trees.items():
        leaves = {str(i): leaf for i, leaf in enumerate(jax.tree.leaves(tree))}
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(tmp_path / name, leaves)
            checkpointer.wait_until_finished()
            restored = checkpointer.restore(tmp_path / name, leaves)
        found = jax.tree.unflatten(jax.tree.structure(tree), [restored[k] for k in leaves])
        same(found, tree)
        if name == "model":
            again = eqx.combine(found, static)
            x = unf.nn.stack_channels(network.params)
            np.testing.assert_array_equal(again(x), model(x))


def test_weights_that_another_library_wrote(tmp_path):
    """PyTorch's names and layout: `0.weight` is (out, in), so the specification is turned too."""
    rng = np.random.default_rng(0)
    shapes = {"0.weight": (HIDDEN, 4), "0.bias": (HIDDEN,), "2.weight": (OUT, HIDDEN),
              "2.bias": (OUT,)}  # fmt: skip
    written = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    save_file(written, tmp_path / "model.safetensors")
    params = load_file(tmp_path / "model.safetensors")

    def forward(p, x):
        hidden = jnp.tanh(x @ p["0.weight"].T + p["0.bias"])
        return hidden @ p["2.weight"].T + p["2.bias"]

    space = unf.infer(forward, params, X)
    assert list(space.sizes.values()) == [HIDDEN]
    model = unf.models.InvariantUNF(space, 1, 1, key=KEY, num_layers=1, mlp_width=8)
    unf.save_model(tmp_path / "predictor.safetensors", model)
    loaded = unf.load_model(tmp_path / "predictor.safetensors", space=space)
    x = unf.nn.stack_channels(params)
    np.testing.assert_array_equal(loaded(x), model(x))
