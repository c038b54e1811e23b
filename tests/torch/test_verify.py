"""Weight spaces are checked by running modules in PyTorch, which leaves no trace."""

import copy

import jax
import pytest
import torch
from torch import nn

import unf
import unf.torch
from tests.torch import networks

X = torch.linspace(-1, 1, 12).reshape(4, 3)
KEY = jax.random.key(0)


@pytest.mark.parametrize(
    ("module", "x"),
    [
        (networks.mlp(), X),
        (networks.Tied(), torch.tensor([1, 2])),
        (networks.Recurrent(), torch.randn(2, 5, 3)),
        (networks.Stateful(), X),
        (nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), torch.randn(2, 5, 4)),
        (nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.Conv2d(4, 1, 1)), None),
    ],
    ids=lambda x: type(x).__name__,
)
def test_what_infer_finds_is_a_symmetry(module, x):
    x = torch.randn(1, 2, 5, 5) if x is None else x
    space = unf.torch.infer(module, x)
    report = unf.torch.verify(module, space, x, key=KEY)
    assert set(report.changes) == set(space.sizes)
    assert max(report.changes.values()) < 1e-10


def test_what_is_no_symmetry_is_named():
    module = networks.mlp()
    wrong = unf.torch.infer(module, X).relax("in")
    with pytest.raises(unf.SymmetryError, match=r"'in' changes the outputs .* in 0\.weight"):
        unf.torch.verify(module, wrong, X, key=KEY)


class Casts(nn.Module):
    """The network of `verify`'s worst case: every activation is cast to float32."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 64), nn.Linear(64, 2)

    def forward(self, x):
        y = torch.softmax(self.first(x), -1, dtype=torch.float32).to(torch.float32)
        return self.last(y.float().to(self.first.weight.dtype))


def test_arithmetic_is_in_float64_whatever_the_module_casts_to():
    space = unf.torch.infer(Casts(), X)
    report = unf.torch.verify(Casts(), space, X, key=KEY)
    assert report.changes["first"] < 1e-14
    half = Casts().to(torch.bfloat16)
    assert unf.torch.verify(half, space, X.bfloat16(), key=KEY).changes["first"] < 1e-14


@pytest.mark.parametrize("fail", [False, True])
def test_the_module_is_left_as_it_was(fail):
    module = networks.Stateful().train()
    space = unf.torch.infer(module, X)
    state = {name: x.clone() for name, x in module.state_dict().items()}
    attributes = [{k: copy.copy(v) for k, v in vars(part).items()} for part in module.modules()]
    pointers = [x.data_ptr() for x in module.parameters()]
    random = torch.get_rng_state()
    if fail:
        with pytest.raises(RuntimeError, match="as asked"):
            unf.torch.verify(module, space, X, key=KEY, fail=True)
    else:
        unf.torch.verify(module, space, X, key=KEY)
    assert all(torch.equal(x, state[name]) for name, x in module.state_dict().items())
    assert pointers == [x.data_ptr() for x in module.parameters()]
    for part, saved in zip(module.modules(), attributes, strict=True):
        assert vars(part).keys() == saved.keys()
        assert part.training is saved["training"]
    assert module.last is None and torch.equal(random, torch.get_rng_state())


def test_a_space_of_another_module_is_refused():
    space = unf.torch.infer(networks.mlp(), X)
    with pytest.raises(unf.SpecError, match="the module has no such weight"):
        unf.torch.verify(networks.Recurrent(), space, X, key=KEY)
    wide = nn.Sequential(nn.Linear(3, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Linear(9, 2))
    with pytest.raises(unf.SpecError, match="wrong shape"):
        unf.torch.verify(wide, space, X, key=KEY)
