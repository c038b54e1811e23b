"""`unf spec` and `unf cost` on a user's own file."""

import json
import re

import pytest

from unf.lab.cli import main

SOURCE = """
import jax, jax.numpy as jnp

def net(params, x):
    return jnp.tanh(x @ params["w1"]) @ params["w2"]

def example():
    params = {"w1": jax.ShapeDtypeStruct((4, 6), "float32"),
              "w2": jax.ShapeDtypeStruct((6, 3), "float32")}
    return net, params, jax.ShapeDtypeStruct((2, 4), "float32")

def normed():
    params = {"w": jax.ShapeDtypeStruct((4, 6), "float32"),
              "var": jax.ShapeDtypeStruct((6,), "float32")}
    return lambda p, x: jnp.sum(x @ p["w"] * jax.lax.rsqrt(p["var"])[None], 1), params, \\
        jax.ShapeDtypeStruct((2, 4), "float32")

def failing():
    raise ValueError("an error of the user's own")

def nothing():
    return 3
"""


@pytest.fixture
def module(tmp_path):
    path = tmp_path / "users_model.py"
    path.write_text(SOURCE)
    return str(path)


def test_prints_the_specification(module, capsys):
    assert main(["spec", f"{module}:example"]) == 0
    printed = capsys.readouterr().out
    assert "w1  [in] hidden" in printed and "w2  hidden [out]" in printed
    assert "terms in an equivariant linear layer" in printed


def test_explains(module, capsys):
    assert main(["spec", "--explain", f"{module}:example"]) == 0
    everything = capsys.readouterr().out
    assert main(["spec", f"{module}:example", "--leaf", "w1"]) == 0
    one = capsys.readouterr().out
    assert "users_model.py:5" in one and len(one) < len(everything)


def test_verifies(module, capsys):
    assert main(["spec", f"{module}:example", "--verify"]) == 0
    assert "ok" in capsys.readouterr().out


def test_verifies_shapes_of_variances(module, capsys):
    assert main(["spec", f"{module}:normed", "--verify"]) == 0
    assert "ok" in capsys.readouterr().out


def test_errors_of_the_users_own_keep_their_traceback(module):
    with pytest.raises(ValueError, match="an error of the user's own"):
        main(["spec", f"{module}:failing"])


def test_prints_json(module, capsys):
    assert main(["spec", f"{module}:example", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["leaves"] == {
        "w1": "[in] hidden",
        "w2": "hidden [out]",
    }


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("users_model", "write package.module:function"),
        ("no_such_module:f", "no module 'no_such_module'"),
        ("{}x.py:f", "there is no file"),
        ("{}:missing", "has no function 'missing'; it has net, example, normed, failing, nothing"),
        ("{}:net", "returns (fn, params, *inputs)"),
        ("{}:nothing", "returned int"),
    ],
)
def test_mistakes(module, capsys, target, message):
    assert main(["spec", target.format(module)]) == 1
    assert message in capsys.readouterr().err


def test_costs_what_the_report_says(module, capsys):
    assert main(["cost", f"{module}:example", "--json", "--channels", "4,8"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert main(["spec", f"{module}:example"]) == 0
    terms = int(re.search(r"([\d,]+) terms", capsys.readouterr().out)[1].replace(",", ""))
    assert rows["total"]["terms"] == terms
    assert main(["cost", f"{module}:example", "--devices", "2"]) == 0
    assert "on each of 2 devices" in capsys.readouterr().out


def test_verifies_signs(module, capsys):
    assert main(["spec", f"{module}:example", "--verify", "--signs", "hidden"]) == 0
    assert "ok, flipped" in capsys.readouterr().out
    assert main(["spec", f"{module}:example", "--verify", "--signs", "in"]) == 1
    assert "'in' is not a permutation of this space" in capsys.readouterr().out
