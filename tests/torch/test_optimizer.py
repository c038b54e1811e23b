"""Learned optimizers in PyTorch's training loops."""

import copy

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from torch import nn

import unf
import unf.torch
from tests.graph.same_networks import PLAIN
from tests.torch import networks
from unf.optim import FORMS, init_theta, learned_optimizer

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


TWINS = {
    "mlp": {"0.weight": "w1", "0.bias": "b1", "2.weight": "w2", "2.bias": "b2"},
    "block": {
        "embed.weight": "embed", **{f"{n}.weight": n for n in ("q", "k", "v", "o", "up", "down")},
        "up.bias": "b1", "down.bias": "b2",
        **{f"norm{i}.weight": f"scale{i}" for i in "12"},
        **{f"norm{i}.bias": f"shift{i}" for i in "12"},
    },
}  # fmt: skip
"""The names that parameters of modules have in the same networks in JAX."""


@pytest.mark.parametrize("name", TWINS)
def test_a_tied_optimizer_does_what_it_does_in_jax(name):
    """Step by step, on a network in JAX that has other names and stores matrices transposed."""
    theta = init_theta("tied", key=KEY, alpha=0.1, beta=0.5, form=FORMS["adaptive"])
    table = jax.random.normal(KEY, theta.head.table.shape)
    theta = eqx.tree_at(lambda t: t.head.table, theta, table)
    net, x = networks.MODULES[name]()
    x = torch.arange(x.numel(), dtype=x.dtype).reshape(x.shape)
    space = unf.torch.infer(net, x)
    turned = [n for n, roles in space.roles.items() if roles == ("out", "in")]

    def in_jax(tensors):
        arrays = {n: jnp.array(t.detach().numpy()) for n, t in tensors}
        return {TWINS[name][n]: a.T if n in turned else a for n, a in arrays.items()}

    mine = unf.torch.LearnedOptimizer(net.named_parameters(), theta, lr=0.5, space=space)
    jaxs = learned_optimizer(theta, space=unf.infer(*PLAIN[name]), scale=0.5)
    update, params = jax.jit(jaxs.update), in_jax(net.named_parameters())
    state = jaxs.init(params)
    for _ in range(3):
        mine.zero_grad()
        (net(x) - 1).square().mean().backward()
        gradients = in_jax((n, p.grad) for n, p in net.named_parameters())
        updates, state = update(gradients, state, params)
        before, params = params, optax.apply_updates(params, updates)
        mine.step()
        for path, weights in in_jax(net.named_parameters()).items():
            np.testing.assert_allclose(weights, params[path], rtol=1e-5, atol=1e-6)
            assert np.abs(weights - before[path]).max() > 1e-4  # a hundred times the tolerance


def test_what_is_not_learned_is_no_part_of_the_weight_space():
    net, theta = networks.mlp(), init_theta("tied", key=KEY, hidden_channels=4)
    space = unf.torch.infer(net, X)
    groups = [
        {"params": [(n, p) for n, p in net.named_parameters() if n != "3.bias"]},
        {"params": [("3.bias", net[3].bias)], "method": "none"},
    ]
    optimizer = unf.torch.LearnedOptimizer(groups, theta, space=space)
    reference = copy.deepcopy(net)
    known = space.drop("*running_*", "3.bias")
    pairs = [(n, p) for n, p in reference.named_parameters() if n != "3.bias"]
    train(net, optimizer, 2)
    train(reference, unf.torch.LearnedOptimizer(pairs, theta.on(known)), 2)
    torch.testing.assert_close(net.state_dict(), reference.state_dict())
    optimizer.param_groups[1]["method"] = "learned"
    before = net[3].bias.clone()
    train(net, optimizer, 1)
    assert not torch.equal(net[3].bias, before)


@pytest.mark.parametrize("given", [False, True], ids=["by itself", "space="])
def test_an_equivariant_optimizer_adapts_to_other_widths(theta, given):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 20), nn.Tanh(), nn.Linear(20, 2))
    reference, space = copy.deepcopy(net), unf.torch.infer(net, X)
    options = {"space": space} if given else {}
    train(net, unf.torch.LearnedOptimizer(net.named_parameters(), theta, **options), 2)
    train(reference, unf.torch.LearnedOptimizer(reference.named_parameters(), theta.on(space)), 2)
    torch.testing.assert_close(net.state_dict(), reference.state_dict())


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
    tied, space = init_theta("tied", key=KEY, hidden_channels=4), unf.torch.infer(net, X)
    with pytest.raises(unf.SpecError, match=r"needs the weight space(.|\n)*unf\.torch\.infer"):
        unf.torch.LearnedOptimizer(net.named_parameters(), tied)
    with pytest.raises(unf.SpecError, match=r"needs the parameters' names(.|\n)*named_parameters"):
        unf.torch.LearnedOptimizer(net.parameters(), tied, space=space).step()
    with pytest.raises(unf.SpecError, match=r"at 'weight'(.|\n)*no such parameter(.|\n)*0\.weight"):
        unf.torch.LearnedOptimizer(net[0].named_parameters(), tied, space=space).step()
    with pytest.raises(unf.SpecError, match="not a weight space"):
        unf.torch.LearnedOptimizer(net.named_parameters(), tied, space=net)
    with pytest.raises(ValueError, match="no learned optimizer 'adam'"):
        unf.torch.LearnedOptimizer(net.parameters(), "adam")
    with pytest.raises(ValueError, match="a group's method is 'adam'"):
        unf.torch.LearnedOptimizer(net.parameters(), theta, method="adam")
