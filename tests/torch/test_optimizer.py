"""Learned optimizers in PyTorch's training loops."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from torch import nn

import unf
import unf.torch
from unf.optim import init_theta, learned_optimizer

X = torch.linspace(-1, 1, 12).reshape(4, 3)
KEY = jax.random.key(0)


def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))


def loss_of(net):
    return (net(X) - 1).square().mean()


def train(net, optimizer, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(net).backward()
        optimizer.step()


@pytest.fixture(scope="module")
def theta():
    return init_theta("unf", unf.torch.infer(make(), X), key=KEY, beta=0.1)


@pytest.mark.parametrize("kind", ["sgdm", "deepset", "unf"])
def test_updates_are_jaxs(kind, theta):
    theta = theta if kind == "unf" else init_theta(kind, key=KEY, beta=0.1)
    net = make()
    train(net, unf.torch.LearnedOptimizer(net.named_parameters(), theta, lr=0.5), 3)

    optimizer, reference = learned_optimizer(theta, scale=0.5), make()
    params = {n: jnp.array(p.detach().numpy()) for n, p in reference.named_parameters()}
    state = optimizer.init(params)
    for _ in range(3):
        reference.load_state_dict({n: torch.tensor(np.array(p)) for n, p in params.items()})
        reference.zero_grad()
        loss_of(reference).backward()
        gradients = {n: jnp.array(p.grad.numpy()) for n, p in reference.named_parameters()}
        updates, state = optimizer.update(gradients, state, params)
        params = optax.apply_updates(params, updates)
    for name, p in net.named_parameters():
        np.testing.assert_allclose(p.detach().numpy(), params[name], rtol=1e-5, atol=1e-6)


def test_it_trains_with_a_name_and_a_schedule():
    net = make()
    before = loss_of(net).item()
    optimizer = unf.torch.LearnedOptimizer(net.parameters(), "deepset-mlp-fashion-mnist")
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    for _ in range(20):
        train(net, optimizer, 1)
        schedule.step()
    assert loss_of(net).item() < 0.5 * before


def test_states_are_saved_and_loaded(theta):
    net = make()
    optimizer = unf.torch.LearnedOptimizer(net.named_parameters(), theta)
    train(net, optimizer, 2)
    other = copy.deepcopy(net)
    resumed = unf.torch.LearnedOptimizer(other.named_parameters(), theta)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train(net, optimizer, 2)
    train(other, resumed, 2)
    torch.testing.assert_close(net.state_dict(), other.state_dict())


def test_groups_are_excluded():
    net = make()
    before = copy.deepcopy(net.state_dict())
    groups = [
        {"params": list(net[0].named_parameters())},
        {"params": [("2.weight", net[2].weight)], "method": "sgd", "lr": 0.1},
        {"params": [("2.bias", net[2].bias)], "method": "none"},
    ]
    optimizer = unf.torch.LearnedOptimizer(groups, init_theta("deepset", key=KEY))
    train(net, optimizer, 1)
    torch.testing.assert_close(net[2].weight.data, before["2.weight"] - 0.1 * net[2].weight.grad)
    assert torch.equal(net[2].bias, before["2.bias"])
    assert not torch.equal(net[0].bias, before["0.bias"])


def test_closures_and_parameters_without_gradients(theta):
    net = make()
    net[0].weight.requires_grad_(False)
    before = net[0].weight.clone()
    optimizer = unf.torch.LearnedOptimizer(net.named_parameters(), theta)

    def closure():
        optimizer.zero_grad()
        loss = loss_of(net)
        loss.backward()
        return loss

    first, second = optimizer.step(closure), optimizer.step(closure)
    assert second < first
    assert torch.equal(net[0].weight, before)


def test_half_precision_accumulates_in_float32():
    net = make().bfloat16()
    optimizer = unf.torch.LearnedOptimizer(net.parameters(), init_theta("sgdm", key=KEY))
    net(X.bfloat16()).sum().backward()
    optimizer.step()
    assert net[0].weight.dtype == torch.bfloat16
    assert optimizer.state[net[0].weight]["nominal"].dtype == torch.float32


def test_mistakes_are_named(theta):
    net = make()
    loss_of(net).backward()
    with pytest.raises(unf.SpecError, match=r"needs the parameters' names(.|\n)*named_parameters"):
        unf.torch.LearnedOptimizer(net.parameters(), theta).step()
    with pytest.raises(unf.SpecError, match=r"at '0\.bias'(.|\n)*made for another network"):
        unf.torch.LearnedOptimizer(net[0].named_parameters(), theta).step()
    with pytest.raises(ValueError, match="no learned optimizer 'adam'"):
        unf.torch.LearnedOptimizer(net.parameters(), "adam")
    with pytest.raises(ValueError, match="a group's method is 'adam'"):
        unf.torch.LearnedOptimizer(net.parameters(), theta, method="adam")
