"""A module as a JAX function computes what the module does, and can be aligned by activations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

import unf
import unf.torch
from tests.torch import networks

X = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))


class WithLoss(nn.Sequential):
    """A network with its loss inside, so that its weights keep their names."""

    def __init__(self):
        super().__init__(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, x, y):
        return nn.functional.cross_entropy(super().forward(x), y)


def weights_of(module):
    return unf.torch.to_jax(module, X)[1]


@pytest.mark.parametrize(
    ("module", "x"),
    [
        (networks.mlp(), X),
        (networks.Recurrent(), torch.randn(2, 5, 3)),
        (networks.Tied(), torch.tensor([1, 2])),
        (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), torch.randn(2, 4, 8)),
    ],
    ids=["batch norm", "LSTM", "tied", "attention"],
)
@pytest.mark.parametrize("wrap", [lambda fn: fn, jax.jit])
def test_computes_what_the_module_does(module, x, wrap):
    fn, params = unf.torch.to_jax(module, x)
    assert set(params) == {leaf.path for leaf in unf.torch.infer(module, x).leaves}
    with torch.no_grad():
        expected = module.eval()(x).numpy()
    np.testing.assert_allclose(wrap(fn)(params, x.numpy()), expected, atol=1e-5)


def test_weights_of_other_modules_and_other_batch_sizes():
    first, second = networks.mlp(), networks.mlp()
    fn, _ = unf.torch.to_jax(first, X)
    with torch.no_grad():
        expected = second.eval()(X[:2]).numpy()
    np.testing.assert_allclose(fn(weights_of(second), X[:2].numpy()), expected, atol=1e-6)


def test_weights_are_copied_and_the_module_is_left_as_it_was():
    module = networks.Stateful().train()
    fn, params = unf.torch.to_jax(module, X)
    fn(params, X.numpy())
    assert module.training and (module.calls, module.last) == (0, None)
    kept = np.array(params["norm.bias"])
    with torch.no_grad():
        module.norm.bias += 1
    np.testing.assert_array_equal(params["norm.bias"], kept)


def test_several_tensors_and_keywords():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x, *, mask=None, double=False):
            y = self.layer(x) * (2 if double else 1)
            return {"y": y * mask, "sum": y.sum(), "other": None}

    module, mask = Net(), torch.tensor([0.0, 1.0])
    fn, params = unf.torch.to_jax(module, X, mask=mask, double=True)
    found = fn(params, X.numpy(), mask.numpy())
    with torch.no_grad():
        expected = module(X, mask=mask, double=True)
    np.testing.assert_allclose(found[0], expected["y"], atol=1e-6)
    np.testing.assert_allclose(found[1], expected["sum"], rtol=1e-5)


def test_gradients_are_pytorchs():
    module, y = WithLoss(), torch.tensor([0, 1, 0, 1, 1, 0])
    fn, params = unf.torch.to_jax(module, X, y)
    module(X, y).backward()
    found = jax.grad(fn)(params, X.numpy(), y.numpy())
    for name, parameter in module.named_parameters():
        np.testing.assert_allclose(found[name], parameter.grad.numpy(), atol=1e-6)


def test_modules_are_aligned_by_activations_and_connected():
    torch.manual_seed(0)
    first = WithLoss()
    with torch.no_grad():
        first[0].weight *= 5
        first[2].weight *= 5
        y = nn.Sequential.forward(first, X).argmax(-1)  # so that the loss is low at both ends
    space = unf.torch.infer(first, X, y)
    loss, a = unf.torch.to_jax(first, X, y)
    batch = (X.numpy(), y.numpy())
    noise = {name: 1e-3 * np.random.default_rng(0).normal(size=x.shape) for name, x in a.items()}
    near = {name: x + jnp.asarray(noise[name], x.dtype) for name, x in a.items()}
    b = space.permute(near, {"hidden_0": jnp.arange(8)[::-1]})
    found = unf.align(space, a, b, method="activations", fn=loss, inputs=batch)
    np.testing.assert_array_equal(found["hidden_0"], jnp.arange(8)[::-1])
    connected = unf.barrier(loss, space, a, b, [batch], method="activations", num_points=5)
    assert connected.height_after < 1e-3 < connected.height_before


def test_what_cannot_be_traced_is_named():
    with pytest.raises(unf.torch.TraceError, match="needs the values of tensors"):
        unf.torch.to_jax(networks.Branch(), X)
    fn, params = unf.torch.to_jax(networks.mlp(), X)
    with pytest.raises(TypeError, match="expected params and 1 arrays, got params and 0"):
        fn(params)
    with pytest.raises(unf.SpecError, match=r"at '0.bias': the weights are not the module's"):
        fn({name: x for name, x in params.items() if name != "0.bias"}, X.numpy())
    with pytest.raises(unf.SpecError, match=r"at '0.bias': the weights(.|\n)*without channels"):
        fn({name: x[..., None] for name, x in params.items()}, X.numpy())
    with pytest.raises(unf.torch.TraceError, match="cannot be traced") as caught:
        fn(params, X[:, :2].numpy())
    assert "arrays of shapes [(6, 2)], and made with [(6, 3)]" in caught.value.__notes__[0]
    with pytest.raises(unf.SpecError, match=r"at '0.weight': a weight on the meta device"):
        unf.torch.to_jax(nn.Sequential(nn.Linear(3, 2, device="meta")), X)
    with pytest.raises(unf.SpecError, match="not a PyTorch module"):
        unf.torch.to_jax(lambda x: x, X)
