"""`unf spec`, `cost`, `align`, `merge`, and `zoo import` with a PyTorch module."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

from unf.lab.cli import main
from unf.lab.cli._network import load_example
from unf.zoo import Zoo

SOURCE = """
import torch
from torch import nn

def example():
    return nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 3)), torch.zeros(1, 2)
"""


@pytest.fixture
def target(tmp_path):
    (tmp_path / "users_module.py").write_text(SOURCE)
    return f"{tmp_path}/users_module.py:example"


def test_a_module_is_recognized(target, capsys):
    assert main(["spec", target, "--verify"]) == 0
    printed = capsys.readouterr().out
    assert "0.weight  hidden [in]" in printed and "2.weight  [out] hidden" in printed
    assert "ok" in printed
    assert main(["cost", target]) == 0
    assert "parameters" in capsys.readouterr().out


def test_options_for_functions_are_refused(target, capsys):
    assert main(["spec", target, "--inputs", "free"]) == 1
    assert "--inputs free and --outputs free are not for" in capsys.readouterr().err


class Tied(nn.Module):
    """Normalized, with a counter, and two names for one weight."""

    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Linear(3, 5, bias=False), nn.BatchNorm1d(5)
        self.head = nn.Linear(3, 5)
        self.head.weight = self.embed.weight

    def forward(self, x):
        return self.norm(self.embed(x)) + self.head(x)


def tied_example():
    return Tied(), torch.zeros(2, 3)


@pytest.mark.parametrize("suffix", ["pt", "pth"])
def test_state_dicts_are_imported(tmp_path, capsys, suffix):
    (tmp_path / "users_tied.py").write_text(
        "from tests.torch.test_command import tied_example as example\n"
    )
    (tmp_path / "nets").mkdir()
    modules = [Tied() for _ in range(3)]
    for i, module in enumerate(modules):
        state = module.state_dict() if i else module.to(torch.bfloat16).state_dict()
        torch.save(state, tmp_path / "nets" / f"{i}.{suffix}")
    (tmp_path / "scores.csv").write_text("file,accuracy\n0,0.1\n1,0.2\n2,0.3\n")
    words = ["zoo", "import", f"{tmp_path}/nets", "--scores", f"{tmp_path}/scores.csv"]
    words += ["--network", f"{tmp_path}/users_tied.py:example", "--out", f"{tmp_path}/zoo"]
    assert main(words) == 0
    weights = Zoo(tmp_path / "zoo").weights()
    assert set(weights) == {
        "embed.weight", "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var",
        "head.bias",
    }  # fmt: skip
    for i, module in enumerate(modules):
        for name, array in weights.items():
            np.testing.assert_array_equal(array[i], module.state_dict()[name].float().numpy())
    torch.save(modules[0], tmp_path / "nets" / f"0.{suffix}")
    torch.save([1], tmp_path / "nets" / f"1.{suffix}")
    torch.save({"model": modules[2].state_dict()}, tmp_path / "nets" / f"2.{suffix}")
    assert main([*words[:-1], f"{tmp_path}/other"]) == 1
    printed = capsys.readouterr().err
    assert f"0.{suffix}: PyTorch cannot load it with weights_only=True" in printed
    assert f"1.{suffix}: holds a list; save module.state_dict()" in printed
    assert f"2.{suffix}: no array 'embed.weight'" in printed
    assert not (tmp_path / "other").exists()


def test_probes_run_modules(tmp_path):
    """As those of a zoo of state dicts are run with `unf predict train --network`."""
    (tmp_path / "users_probed.py").write_text(
        "from tests.torch.test_command import tied_example as example\n"
    )
    module, x = Tied().eval(), torch.randn(128, 3)
    example = load_example(f"{tmp_path}/users_probed.py:example")
    network = example.runnable(example.infer())
    assert network.input_shape == (3,) and network.start is None
    state = module.state_dict()
    weights = {x.path: jnp.asarray(state[x.path].numpy()) for x in example.infer().leaves}
    found = network.fn(weights, jnp.asarray(x.numpy()))
    np.testing.assert_allclose(found, module(x).detach().numpy(), rtol=1e-5, atol=1e-5)


def test_published_sirens_are_imported(tmp_path):
    """In the layout of DWSNets: a folder for each image, named after its class and number."""
    modules = [
        torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
        for _ in range(3)
    ]
    for i, module in enumerate(modules):
        folder = tmp_path / "inrs" / f"mnist_png_training_{i + 5}_{i}" / "checkpoints"
        folder.mkdir(parents=True)
        torch.save(module.state_dict(), folder / "model_final.pth")
    words = ["zoo", "import", f"{tmp_path}/inrs", "--layout", "dws-siren"]
    assert main([*words, "--out", f"{tmp_path}/zoo", "--quiet"]) == 0
    zoo = Zoo(tmp_path / "zoo")
    assert sorted(zoo.settings["label"]) == [5, 6, 7]
    kernels = zoo.weights()["layer1"]["kernel"]
    for row, label in enumerate(zoo.settings["label"]):
        expected = modules[int(label) - 5][1].weight.detach().numpy().T
        np.testing.assert_array_equal(kernels[row], expected)


class Shared(nn.Module):
    """A language model whose embedding is its output, so that one tensor has two names."""

    def __init__(self):
        super().__init__()
        self.embed, self.up = nn.Embedding(7, 4), nn.Linear(4, 6)
        self.down, self.head = nn.Linear(6, 4), nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens)
        return self.head(x + self.down(torch.tanh(self.up(x))))


def shared_example():
    return Shared(), torch.zeros(1, 3, dtype=torch.long)


def test_modules_are_aligned_and_merged(tmp_path, capsys):
    (tmp_path / "users_shared.py").write_text(
        "from tests.torch.test_command import shared_example as example\n"
    )
    torch.manual_seed(0)  # one order of four neurons in 24 would move none
    modules, tokens = [Shared() for _ in range(2)], torch.arange(7)[None]
    files = [f"{tmp_path}/{name}.pt" for name in "ab"]
    for module, file in zip(modules, files, strict=True):
        torch.save(module.state_dict(), file)
    network = ["--network", f"{tmp_path}/users_shared.py:example"]
    assert main(["align", *files, *network, "--out", f"{tmp_path}/aligned.pt"]) == 0
    assert "after alignment" in capsys.readouterr().out
    aligned = Shared()
    aligned.load_state_dict(torch.load(f"{tmp_path}/aligned.pt", weights_only=True))
    torch.testing.assert_close(aligned(tokens), modules[1](tokens))
    assert not torch.equal(aligned.embed.weight, modules[1].embed.weight)
    torch.save(modules[0].state_dict(), files[1])
    words = ["merge", *files, f"{tmp_path}/aligned.pt", *network, "--weights", "1,1,0"]
    assert main([*words, "--out", f"{tmp_path}/merged.pt"]) == 0
    merged = torch.load(f"{tmp_path}/merged.pt", weights_only=True)
    for name, tensor in modules[0].state_dict().items():
        torch.testing.assert_close(merged[name], tensor)


class Scaled(nn.Module):
    """A scalar weight of zero, beside a counter of zero."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.zeros(()))
        self.layer, self.norm = nn.Linear(3, 4), nn.BatchNorm1d(4)

    def forward(self, x):
        return self.gain * self.norm(self.layer(x))


def scaled_example():
    return Scaled(), torch.zeros(2, 3)


def test_counters_are_kept(tmp_path):
    (tmp_path / "users_scaled.py").write_text(
        "from tests.torch.test_command import scaled_example as example\n"
    )
    files = [f"{tmp_path}/{name}.pt" for name in "ab"]
    for gain, file in enumerate(files):
        module = Scaled()
        module.gain.data += gain
        torch.save(module.state_dict(), file)
    network = ["--network", f"{tmp_path}/users_scaled.py:example"]
    assert main(["merge", *files, *network, "--out", f"{tmp_path}/merged.pt"]) == 0
    merged = torch.load(f"{tmp_path}/merged.pt", weights_only=True)
    assert float(merged["gain"]) == 0.5
    assert merged["norm.num_batches_tracked"].dtype == torch.int64


class WithLoss(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2))

    def forward(self, x, y):
        return nn.functional.cross_entropy(super().forward(x), y)


def loss_example():
    return WithLoss(), torch.randn(20, 3), torch.arange(20) % 2


def shapes_example():
    return WithLoss(), torch.zeros(20, 3, device="meta"), torch.arange(20) % 2


def test_losses_between_modules(tmp_path, capsys):
    (tmp_path / "users_loss.py").write_text(
        "from tests.torch.test_command import loss_example, shapes_example\n"
    )
    files = [f"{tmp_path}/{name}.pt" for name in "ab"]
    for file in files:
        torch.save(WithLoss().state_dict(), file)
    words = ["barrier", *files, "--method", "activations", "--points", "3", "--json"]
    assert main([*words, "--network", f"{tmp_path}/users_loss.py:loss_example"]) == 0
    assert len(json.loads(capsys.readouterr().out)["after"]) == 3
    assert main([*words, "--network", f"{tmp_path}/users_loss.py:shapes_example"]) == 1
    assert "returned inputs without values: return arrays" in capsys.readouterr().err
