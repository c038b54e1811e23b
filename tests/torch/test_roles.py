"""Roles of modules: those of the same networks in JAX, though PyTorch orders axes otherwise."""

import pytest
import torch
from torch import nn

import unf
import unf.torch
from tests.graph.same_networks import PLAIN, sizes_by_role
from tests.torch import networks


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 6, 3, padding=1), nn.GroupNorm(2, 6)
        self.out = nn.Linear(6, 2)

    def forward(self, x):
        return self.out(torch.relu(self.norm(self.conv(x))).mean((2, 3)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm1, self.norm2 = nn.Embedding(9, 4), nn.LayerNorm(4), nn.LayerNorm(4)
        self.q, self.k, self.v = (nn.Linear(4, 6, bias=False) for _ in range(3))
        self.o = nn.Linear(6, 4, bias=False)
        self.up, self.down = nn.Linear(4, 7), nn.Linear(7, 4)

    def forward(self, tokens):
        x = self.embed(tokens)
        y = self.norm1(x)
        heads = [part(y).view(-1, 2, 3).transpose(0, 1) for part in (self.q, self.k, self.v)]
        mixed = nn.functional.scaled_dot_product_attention(*heads)
        x = x + self.o(mixed.transpose(0, 1).reshape(-1, 6))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Rnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.read, self.recur = nn.Linear(3, 5), nn.Linear(5, 5, bias=False)
        self.out = nn.Linear(5, 2, bias=False)

    def forward(self, x):
        h = torch.zeros(x.shape[1], 5)
        for y in x:
            h = torch.tanh(self.read(y) + self.recur(h))
        return self.out(h)


MODULES = {
    "mlp": lambda: (nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), torch.zeros(2, 4)),
    "cnn": lambda: (Cnn(), torch.zeros(2, 4, 5, 5)),
    "block": lambda: (Block(), torch.zeros(5, dtype=torch.int32)),
    "rnn": lambda: (Rnn(), torch.zeros(4, 2, 3)),
}


@pytest.mark.parametrize("name", PLAIN)
def test_modules_have_the_roles_of_the_same_network_in_jax(name):
    expected = sizes_by_role(unf.infer(*PLAIN[name]))
    assert sizes_by_role(unf.torch.infer(*MODULES[name]())) == expected


def test_the_output_axis_comes_first():
    roles = unf.torch.infer(networks.mlp(), torch.zeros(4, 3)).roles
    assert roles["0.weight"] == roles["3.weight"] == ("out", "in")
    assert roles["1.weight"] == roles["1.running_var"] == ("scale",)
    assert roles["1.bias"] == roles["1.running_mean"] == ("shift",)
    assert unf.torch.infer(Cnn(), torch.zeros(2, 4, 5, 5)).roles["conv.weight"] == (
        "out", "in", "window", "window",
    )  # fmt: skip


def test_fused_weights_of_recurrence_and_attention():
    roles = unf.torch.infer(networks.Recurrent(), torch.zeros(1, 5, 3)).roles
    assert {roles[f"lstm.weight_{name}_l0"] for name in ("ih", "hh")} == {("out", "in")}
    assert {roles[f"lstm.bias_{name}_l0"] for name in ("ih", "hh")} == {("shift",)}
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    found = unf.torch.infer(layer, torch.zeros(2, 5, 4)).roles
    assert found["self_attn.in_proj_weight"] == found["linear1.weight"] == ("out", "in")


def test_tied_embeddings_are_looked_up_first():
    roles = unf.torch.infer(networks.Tied(), torch.tensor([1, 2])).roles
    assert roles == {"embed.weight": ("index", "out"), "hidden.weight": ("out", "in")}
