"""Weight spaces of modules: names, buffers, tied weights, and what cannot be traced."""

import subprocess
import sys

import pytest
import torch
from torch import nn

import unf
import unf.torch
from tests.torch import networks

X = torch.linspace(-1, 1, 12).reshape(4, 3)


def spec(module, *inputs, **kwargs):
    return unf.torch.infer(module, *inputs, **kwargs).to_spec()


def test_leaves_are_the_state_dicts_entries_and_buffers_follow_their_channels():
    space = unf.torch.infer(networks.mlp(), X)
    hidden = ["0.bias", "1.bias", "1.running_mean", "1.running_var", "1.weight"]
    assert all(space.to_spec()[name] == "hidden" for name in hidden)
    assert space.to_spec()["3.weight"] == "[out] hidden"
    assert list(space.notes.left_out) == ["1.num_batches_tracked"]
    assert "1.num_batches_tracked  left out: torch.int64" in space.explain()
    assert space.explain("1.num_batches_tracked").startswith("1.num_batches_tracked  left out")


def test_tied_weights_are_one_leaf():
    space = unf.torch.infer(networks.Tied(), torch.tensor([1, 2]))
    assert space.to_spec() == {"embed.weight": "[out] embed", "hidden.weight": "embed embed"}
    assert space.notes.left_out == {"out.weight": "the same tensor as 'embed.weight'"}


def test_an_lstms_four_gates_permute_together():
    found = spec(networks.Recurrent(), torch.zeros(1, 5, 3))
    assert found["lstm.weight_ih_l0"].startswith("(4 ")
    assert found["lstm.weight_hh_l0"].split()[-1] == found["out.weight"].split()[-1]


def test_heads_of_attention():
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    space = unf.torch.infer(layer, torch.zeros(2, 5, 4))
    assert space.sizes == {"mlp": 8, "head": 2, "head.key": 2, "head.value": 2}
    assert torch.backends.mha.get_fastpath_enabled()


def test_shapes_are_enough():
    with torch.device("meta"):
        module = networks.mlp()
    assert unf.torch.infer(module, X.to("meta")).sizes == {"hidden": 8}


def test_keyword_arguments_and_other_values_reach_the_module():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x, *, mask=None, double=False):
            x = torch.relu(self.first(x)) * (2 if double else 1)
            return {"y": self.last(x if mask is None else x * mask), "other": None}

    assert spec(Net(), X)["first.bias"] == "first"
    assert spec(Net(), x=X, mask=torch.ones(4), double=True)["first.bias"] == "[in]"


def test_the_module_is_left_as_it_was():
    module = networks.Stateful().train()
    before = {name: x.clone() for name, x in module.state_dict().items()}
    unf.torch.infer(module, X)
    assert module.training and module.norm.training
    assert (module.calls, module.last) == (0, None)
    assert type(module.scale) is torch.Tensor
    after = module.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_in_place_writes_to_new_tensors():
    assert spec(networks.InPlace(), X) == {"layer.bias": "hidden", "layer.weight": "hidden [in]"}


def test_torch_export_is_the_fallback(monkeypatch):
    def fail(module, *_):
        def function(*_):
            raise unf.torch.TraceError(module, error)

        return function

    try:
        raise RuntimeError("no such operation")
    except RuntimeError as caught:
        error = caught
    monkeypatch.setattr("unf.torch._trace.trace_directly", fail)
    for module, x in [(networks.mlp(), X), (networks.Tied(), torch.tensor([1, 2]))]:
        with monkeypatch.context() as context:
            context.undo()
            direct = unf.torch.infer(module, x)
        assert unf.torch.infer(module, x) == direct


@pytest.mark.parametrize(
    ("module", "line"),
    [
        (networks.Branch(), "if y.sum() > 0:"),
        (networks.Routed(), "nonzero()"),
        (networks.Selected(), "return y[y > 0]"),
    ],
    ids=lambda x: type(x).__name__,
)
def test_what_needs_values_is_named(module, line):
    with pytest.raises(unf.torch.TraceError, match="needs the values of tensors") as caught:
        unf.torch.infer(module, X)
    message = str(caught.value)
    assert line in message and f"in {type(module).__name__}.forward" in message
    assert caught.value.where.startswith("networks.py:") and "torch.where" in message


def test_what_overwrites_weights_is_named():
    with pytest.raises(unf.torch.TraceError, match=r"weight\.set_.* cannot be traced"):
        unf.torch.infer(networks.Overwritten(), X)


def test_inputs_that_do_not_fit_are_pytorchs_error():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied") as caught:
        unf.torch.infer(networks.mlp(), torch.zeros(2, 4))
    assert "tensors of shapes [(2, 4)]" in caught.value.__notes__[0]


def test_what_is_no_module():
    with pytest.raises(unf.SpecError, match=r"not a PyTorch module(.|\n)*use unf\.infer"):
        unf.torch.infer(lambda x: x, X)
    with pytest.raises(unf.SpecError, match="the module has no weights"):
        unf.torch.infer(nn.ReLU(), X)


def test_only_unf_torch_imports_pytorch():
    script = (
        "import sys, unf, unf.optim, unf.zoo, unf.viz, unf.lab.cli\n"
        "assert not {'torch', 'torchax', 'unf.torch'} & set(sys.modules)\n"
        "sys.modules['torch'] = None\n"
        "try:\n    import unf.torch\n"
        "except ImportError as error:\n    print(error)\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "pip install 'universal-neural-functionals[torch]'" in result.stdout
