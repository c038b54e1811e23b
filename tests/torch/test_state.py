"""State dicts become features and come back."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import unf
import unf.torch
from tests.torch import networks

X = torch.linspace(-1, 1, 12).reshape(4, 3)


def test_features_are_those_of_the_space():
    module = networks.mlp()
    features = unf.torch.features(module.state_dict())
    space = unf.torch.infer(module, X)
    assert space.flatten(features, channels=True)
    assert features["0.weight"].shape == (8, 3, 1)
    assert unf.torch.features(networks.Tied().state_dict()).keys() == {
        "embed.weight",
        "hidden.weight",
    }


def test_memory_is_shared_with_one_state_dict():
    module = networks.mlp()
    features = unf.torch.features(module.state_dict())
    assert features["0.weight"].unsafe_buffer_pointer() == module[0].weight.data_ptr()
    again = unf.torch.to_state_dict(features, like=module)
    assert again["0.weight"].data_ptr() == module[0].weight.data_ptr()


def test_several_networks_have_a_batch_axis():
    modules = [networks.mlp() for _ in range(3)]
    features = unf.torch.features(module.state_dict() for module in modules)
    assert features["0.weight"].shape == (3, 8, 3, 1)
    again = unf.torch.to_state_dict(features, like=modules[0])
    for module, state in zip(modules, again, strict=True):
        assert state.keys() == module.state_dict().keys()
        assert all(torch.equal(state[name], x) for name, x in module.state_dict().items())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtypes_survive(dtype):
    module = networks.mlp().to(dtype)
    features = unf.torch.features(module.state_dict())
    assert features["0.weight"].dtype.name == str(dtype).removeprefix("torch.")
    for arrays in (features, {n: np.asarray(x) for n, x in features.items()}):
        again = unf.torch.to_state_dict(arrays, like=module)
        assert all(torch.equal(again[name], x) for name, x in module.state_dict().items())


def test_permuted_weights_compute_the_same():
    module = networks.mlp().eval()
    module[1].running_var.uniform_(1, 2)
    space = unf.torch.infer(module, X)
    features = unf.torch.features(module.state_dict())
    permuted = space.permute(features, space.sample_permutation(jax.random.key(0)))
    other = networks.mlp().eval()
    other.load_state_dict(unf.torch.to_state_dict(permuted, like=module))
    assert not torch.equal(module[0].weight, other[0].weight)
    torch.testing.assert_close(module(X), other(X))


def test_tied_weights_stay_tied_and_weights_need_no_channels():
    module = networks.Tied()
    features = unf.torch.features(module.state_dict())
    state = unf.torch.to_state_dict({n: 2 * x[..., 0] for n, x in features.items()}, like=module)
    assert state["out.weight"] is state["embed.weight"]
    torch.testing.assert_close(state["out.weight"], 2 * module.out.weight)


def test_mistakes_are_named():
    module = networks.mlp()
    features = unf.torch.features(module.state_dict())
    with pytest.raises(unf.SpecError, match="no state dicts"):
        unf.torch.features([])
    with pytest.raises(unf.SpecError, match=r"not a state dict(.|\n)*module\.state_dict"):
        unf.torch.features([module])
    with pytest.raises(unf.SpecError, match="state dict 2 is of another network"):
        unf.torch.features([module.state_dict(), networks.Tied().state_dict()])
    with pytest.raises(unf.SpecError, match=r"at '0\.bias'(.|\n)*no such leaf"):
        unf.torch.to_state_dict({"1.bias": features["1.bias"]}, like=module)
    wrong = {n: jnp.concatenate([x, x], -1) for n, x in features.items()}
    with pytest.raises(unf.SpecError, match="with one channel"):
        unf.torch.to_state_dict(wrong, like=module)
