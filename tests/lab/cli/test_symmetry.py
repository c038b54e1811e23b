"""`unf align`, `unf merge` and `unf barrier` on a user's own files."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from unf.lab.cli import main

SOURCE = """
import jax, jax.numpy as jnp, numpy as np
from unf import WeightSpace

x = np.random.default_rng(0).normal(size=(20, 3)).astype("float32")
params = {"w": jax.ShapeDtypeStruct((3, 6), "float32"),
          "v": jax.ShapeDtypeStruct((6, 2), "float32")}

def net(params, x):
    return jnp.tanh(x @ params["w"]) @ params["v"]

def loss(params, x):
    return jnp.mean(net(params, x) ** 2)

def example():
    return net, params, x

def shapes():
    return net, params, jax.ShapeDtypeStruct(x.shape, "float32")

def loss_example():
    return loss, params, x

def space():
    return WeightSpace.from_spec({"w": "[in] n", "v": "n [out]"}, params)
"""
ORDER = np.array([5, 3, 1, 0, 2, 4])


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "users_model.py").write_text(SOURCE)
    rng = np.random.default_rng(1)
    a = {"w": rng.normal(size=(3, 6)), "v": rng.normal(size=(6, 2)), "note": np.arange(3)}
    a = {name: array.astype(np.float32) if name != "note" else array for name, array in a.items()}
    b = a | {"w": a["w"][:, ORDER] + np.float32(1e-3), "v": a["v"][ORDER]}
    np.savez(tmp_path / "a.npz", **a)
    save_file({k: np.ascontiguousarray(v) for k, v in b.items()}, tmp_path / "b.safetensors")
    return tmp_path


@pytest.fixture
def words(folder):
    return [str(folder / "a.npz"), str(folder / "b.safetensors"), "--network"]


@pytest.mark.parametrize("method", ["weights", "activations"])
def test_align(folder, words, capsys, method):
    out = folder / "results" / "aligned.safetensors"
    target = f"{folder}/users_model.py:example"
    assert main(["align", *words, target, "--method", method, "--out", str(out), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["aligned_distance"] < 0.01 < report["distance"]
    assert report["moved"] == {"hidden": 6}
    aligned, a = load_file(out), np.load(folder / "a.npz")
    np.testing.assert_allclose(aligned["w"], a["w"], atol=2e-3)
    np.testing.assert_array_equal(aligned["v"], a["v"])
    np.testing.assert_array_equal(aligned["note"], [0, 1, 2])
    assert main(["align", *words, f"{folder}/users_model.py:space"]) == 0
    assert "n: 6 of 6" in capsys.readouterr().out


def test_merge(folder, words, capsys):
    out, target = folder / "merged.npz", f"{folder}/users_model.py:example"
    more = ["--weights", "3,1", "--out", str(out)]
    assert main(["merge", *words, target, *more]) == 0
    assert f"the mean of 2 networks: {out}" in capsys.readouterr().out
    merged, a = np.load(out), np.load(folder / "a.npz")
    np.testing.assert_allclose(merged["w"], a["w"] + 0.25e-3, atol=1e-6)
    np.testing.assert_array_equal(merged["note"], [0, 1, 2])
    assert main(["merge", *words, target, "--no-align", "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["networks"] == 2
    assert np.abs(np.load(out)["v"] - (a["v"] + a["v"][ORDER]) / 2).max() < 1e-6


def test_barrier(folder, words, capsys):
    out, target = folder / "barrier.svg", f"{folder}/users_model.py:loss_example"
    assert main(["barrier", *words, target, "--points", "5", "--out", str(out), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert len(report["before"]) == len(report["after"]) == 5
    assert report["before"][0] == report["after"][0]
    assert np.ptp(report["after"]) < 0.01 * np.ptp(report["before"])
    assert "<svg" in out.read_text()
    assert main(["barrier", *words, target, "--points", "5", "--quiet"]) == 0
    assert "position  as they are  aligned" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "function", "more", "message"),
    [
        ("align", "shapes", ["--method", "activations"], "inputs without values: return arrays"),
        ("align", "space", ["--method", "activations"], "without a network to run"),
        ("align", "example", ["--out", "x.txt"], "ends in one of .safetensors, .npz, .pt, .pth"),
        ("merge", "example", ["--out", "x.npz", "--weights", "1"], "2 files, but 1 --weights"),
        ("barrier", "example", [], "the loss of a batch is not a number"),
    ],
)
def test_errors(folder, words, capsys, command, function, more, message, monkeypatch):
    monkeypatch.chdir(folder)
    assert main([command, *words, f"users_model.py:{function}", *more]) == 1
    assert message in capsys.readouterr().err


def test_errors_of_options(folder, words, capsys):
    target = f"{folder}/users_model.py:loss_example"
    for option, value in (("--points", "2"), ("--starts", "0")):
        with pytest.raises(SystemExit, match="2"):
            main(["barrier", *words, target, option, value])
        assert f"{option} is {value}; expected at least" in capsys.readouterr().err


def test_numbers_and_short_floats_survive_files(folder, capsys):
    (folder / "scalar.py").write_text(
        "import jax\nfrom unf import WeightSpace\n"
        "s = lambda *shape: jax.ShapeDtypeStruct(shape, 'float32')\n"
        "def space():\n"
        "    return WeightSpace.from_spec({'w': '[2] n', 't': ''}, {'w': s(2, 3), 't': s()})\n"
    )
    short = np.arange(6, dtype=jnp.bfloat16).reshape(2, 3)
    save_file({"w": short, "t": np.asarray(2, jnp.bfloat16)}, folder / "s.safetensors")
    file, out = str(folder / "s.safetensors"), folder / "o.safetensors"
    words = [file, file, "--network", f"{folder}/scalar.py:space", "--out"]
    assert main(["merge", *words, str(out)]) == 0
    assert main(["merge", str(out), *words[1:], str(out)]) == 0
    merged = load_file(out)
    assert merged["t"].shape == () and merged["w"].dtype == jnp.bfloat16
    np.testing.assert_array_equal(merged["w"], short)
    capsys.readouterr()
    assert main(["merge", *words, str(folder / "o.npz")]) == 1
    assert "npz files cannot hold bfloat16" in capsys.readouterr().err


def test_errors_of_files(folder, capsys):
    target = f"{folder}/users_model.py:example"
    np.savez(folder / "other.npz", w=np.zeros((3, 5), np.float32))
    files = [str(folder / name) for name in ("a.npz", "other.npz", "c.bin")]
    assert main(["align", *files[:2], "--network", target]) == 1
    printed = capsys.readouterr().err
    assert "other.npz" in printed and "has shape (3, 5), expected (3, 6)" in printed
    assert main(["align", files[0], files[2], "--network", target]) == 1
    assert "c.bin: expected a name that ends in one of" in capsys.readouterr().err
    assert main(["merge", files[0], "--network", target, "--out", files[0]]) == 1
    assert "expected at least two files, got 1" in capsys.readouterr().err
