"""Models of this library as PyTorch modules, with the gradients of JAX."""

import copy

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import unf
import unf.torch
from tests.torch import networks

X = torch.linspace(-1, 1, 12).reshape(4, 3)
KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def space():
    return unf.torch.infer(networks.mlp(), X)


def as_tensors(tree):
    return {name: torch.from_numpy(np.array(x)).requires_grad_() for name, x in tree.items()}


def draw(space, *batch):
    rng = np.random.default_rng(0)
    shapes = {leaf.path: (*batch, *leaf.shape, 1) for leaf in space.leaves}
    return {name: jnp.asarray(rng.normal(size=s), jnp.float32) for name, s in shapes.items()}


@pytest.mark.parametrize("batch", [False, True])
def test_values_and_gradients_are_jaxs(space, batch):
    sizes = {"mlp_width": 8, "mlp_layers": 2, "hidden_channels": 2, "num_layers": 1}
    model = unf.models.InvariantUNF(space, 1, 2, key=KEY, **sizes)
    x = draw(space, 3) if batch else draw(space)

    def loss(model, x):
        return jnp.sum((jax.vmap(model) if batch else model)(x) ** 2)

    wanted, (of_model, of_x) = eqx.filter_value_and_grad(lambda both: loss(*both))((model, x))
    functional, inputs = unf.torch.Functional(model, batch=batch), as_tensors(x)
    found = functional(inputs).square().sum()
    found.backward()
    np.testing.assert_allclose(found.item(), wanted, rtol=1e-5)
    for parameter, gradient in zip(functional.parameters(), jax.tree.leaves(of_model), strict=True):
        np.testing.assert_allclose(parameter.grad, gradient, rtol=1e-4, atol=1e-6)
    for name, gradient in of_x.items():
        np.testing.assert_allclose(inputs[name].grad, gradient, rtol=1e-4, atol=1e-6)


def test_fitted_models_predict_the_same(space):
    model = unf.models.StatNN(space, 1, 1, key=KEY, mlp_width=8, mlp_layers=2)
    weights = draw(space, 20)
    fitted = unf.fit(model, weights, np.arange(20.0), key=KEY, epochs=1).model
    functional = unf.torch.Functional(fitted, batch=True)
    wanted = jax.vmap(fitted)(weights)
    np.testing.assert_allclose(functional(as_tensors(weights)).detach(), wanted, rtol=1e-5)
    constants = {name: x.clone() for name, x in functional.named_buffers()}
    assert {name.partition("/")[0] for name in constants} == {
        "shift", "scale", "out_shift", "out_scale"
    }  # fmt: skip
    assert all(name.startswith("model/") for name, _ in functional.named_parameters())
    arrays = (jax.tree.leaves(eqx.filter(x, eqx.is_array)) for x in (functional.model, fitted))
    for x, y in zip(*arrays, strict=True):
        np.testing.assert_array_equal(x, y)


def test_copies_have_parameters_of_their_own(space):
    functional = unf.torch.Functional(unf.nn.UNFLinear(space, 1, 1, key=KEY))
    x = as_tensors(draw(space))
    before = functional(x)["0.bias"].detach().clone()
    best = copy.deepcopy(functional)
    with torch.no_grad():
        for parameter in functional.parameters():
            parameter.add_(1.0)
    torch.testing.assert_close(best(x)["0.bias"], before)
    assert not torch.allclose(functional(x)["0.bias"], before)
    averaged = torch.optim.swa_utils.AveragedModel(best)
    torch.testing.assert_close(averaged(x)["0.bias"], before)


def test_pytorchs_optimizers_train_it(space):
    functional = unf.torch.Functional(unf.nn.UNFLinear(space, 1, 1, key=KEY))
    optimizer = torch.optim.Adam(functional.parameters(), lr=0.01)
    x = as_tensors(draw(space))
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = sum((y - 1).square().mean() for y in functional(x).values())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
    with torch.no_grad():
        found = functional(x)
    wanted = functional.model({name: jnp.asarray(y.detach()) for name, y in x.items()})
    for name, y in found.items():
        assert not y.requires_grad
        np.testing.assert_allclose(y, wanted[name], rtol=1e-5, atol=1e-6)


def test_state_dicts_and_other_inputs(space):
    model = unf.models.UNF(space, 1, 1, key=KEY, num_layers=2, dropout=0.5)
    functional = unf.torch.Functional(model)
    other = unf.torch.Functional(unf.models.UNF(space, 1, 1, key=jax.random.key(1), num_layers=2))
    assert "layers/0/bias" in functional.state_dict()
    other.load_state_dict(functional.state_dict())
    x = as_tensors(draw(space))
    torch.testing.assert_close(functional(x), other(x))
    assert not torch.equal(functional(x, key=KEY)["0.bias"], functional(x)["0.bias"])


def test_integers_and_structures():
    class Lookup(eqx.Module):
        table: jax.Array

        def __call__(self, i, *, scale=1.0):
            return {"row": scale * self.table[i], "index": i}

    functional = unf.torch.Functional(Lookup(jnp.arange(6.0).reshape(3, 2)))
    found = functional(torch.tensor(1), scale=2.0)
    assert found["index"].item() == 1 and not found["index"].requires_grad
    found["row"].sum().backward()
    assert functional.table.grad.tolist() == [[0, 0], [2, 2], [0, 0]]


def test_second_derivatives_are_refused(space):
    functional = unf.torch.Functional(unf.nn.UNFLinear(space, 1, 1, key=KEY))
    y = functional(as_tensors(draw(space)))["0.bias"].square().sum()
    (gradient,) = torch.autograd.grad(y, [functional.bias], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()
