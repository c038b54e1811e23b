"""Roles of modules: those of the same networks in JAX, though PyTorch orders axes otherwise."""

import pytest
import torch
from torch import nn

import unf
import unf.torch
from tests.graph.same_networks import PLAIN, sizes_by_role
from tests.torch import networks


@pytest.mark.parametrize("name", PLAIN)
def test_modules_have_the_roles_of_the_same_network_in_jax(name):
    expected = sizes_by_role(unf.infer(*PLAIN[name]))
    assert sizes_by_role(unf.torch.infer(*networks.MODULES[name]())) == expected


def test_the_output_axis_comes_first():
    roles = unf.torch.infer(networks.mlp(), torch.zeros(4, 3)).roles
    assert roles["0.weight"] == roles["3.weight"] == ("out", "in")
    assert roles["1.weight"] == roles["1.running_var"] == ("scale",)
    assert roles["1.bias"] == roles["1.running_mean"] == ("shift",)
    assert unf.torch.infer(networks.Cnn(), torch.zeros(2, 4, 5, 5)).roles["conv.weight"] == (
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
