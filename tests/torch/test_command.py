"""`unf spec` and `unf cost` on a PyTorch module."""

import pytest

from unf.lab.cli import main

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
