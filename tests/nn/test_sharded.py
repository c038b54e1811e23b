"""Layers on leaves sharded across eight devices: the same numbers, and no leaf is gathered."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, PartitionSpec

from tests.laws.architectures import ARCHITECTURES, space_of
from unf.basis import cost_report
from unf.basis._sharding import shard_axes
from unf.nn import UNFLinear, leaf_shardings, shard
from unf.testing import random_features

HERE = Path(__file__).parent
KEY = jax.random.key(0)


def test_laws_on_eight_devices():
    """All in one test, since each worker would start the eight devices again."""
    environment = {
        **os.environ,
        "JAX_NUM_CPU_DEVICES": "8",
        "JAX_ENABLE_X64": "1",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), *sys.path]),
    }
    words = [sys.executable, str(HERE / "across_devices.py")]
    run = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    results = json.loads(run.stdout.splitlines()[-1])
    assert results.pop("batch") < 1e-12
    assert results.pop("model") < 1e-6  # in 32 bits
    for found in results.pop("optimizers"):
        assert found["difference"] < 1e-10
        assert found["moved"] <= 1 / 4  # means over rows and columns, of all channels
    for name, found in results.items():
        check_gradients(name, found)
        check_report(name, found)


def check_gradients(name, found):
    """However leaves were cut: the same numbers, at most a part moved at once, less memory."""
    alone = found["one device"]
    for cut, row in found["gradients"].items():
        assert row["difference"] < 1e-10, (name, cut)
        moved = [size for kind, size in row["collectives"] if kind != "all-reduce"]
        assert max(moved, default=0) <= found["largest"] / 8, (name, cut)
        reduced = [size for kind, size in row["collectives"] if kind == "all-reduce"]
        assert 0 < max(reduced) < found["largest"], (name, cut)
        assert row["temporary"] < alone["temporary"] / 3, (name, cut)


def check_report(name, found):
    """What a device holds, to the byte; what it exchanges, as far as the compiler agrees."""
    forward, report = found["forward"], found["report"]
    assert forward["arguments"] == report["arguments"], name
    assert forward["outputs"] == report["outputs"] + 8 * found["leaves"], name  # and pointers
    exchanged = sum(size for _, size in forward["collectives"])
    # The compiler moves the blocks of fused gates once more than need be.
    most = 1.75 if name == "fused gates" else 1.01
    assert report["exchanged"] <= exchanged <= most * report["exchanged"], name


@pytest.mark.parametrize(
    ("spec", "shape", "sizes", "axis"),
    [
        ("a b", (8, 16), {}, 1),
        ("a b", (8, 12), {}, 0),  # 8 does not divide 12
        ("a b", (8, 8), {}, 1),  # of equal sizes the last name, so that the next is cut alike
        ("b a", (8, 8), {}, 0),
        ("[i] a", (64, 8), {}, 1),  # fixed axes are channels
        ("d (h h.k)", (16, 64), {"h": 8}, 0),
        ("d (h h.k)", (12, 64), {"h": 8}, 1),
        ("d (h h.k)", (12, 64), {"h": 4}, None),  # parts would hold half a head
        ("d (a + b)", (8, 64), {"a": 32}, 0),
        ("(a + b)", (64,), {"a": 32}, None),
        ("(3 h) [i]", (24, 16), {}, 1),  # stored along i, cut along h once it is reshaped
        ("[i]", (16,), {}, None),
        ("", (), {}, None),
    ],
)
def test_leaves_are_cut_along_their_largest_permutation(spec, shape, sizes, axis):
    assert shard_axes(space_of({"w": (spec, shape)}, **sizes), 8) == (axis,)


def test_nothing_is_cut_for_one_device():
    space = ARCHITECTURES["attention, nested"]
    assert set(shard_axes(space, 1)) == {None}
    assert cost_report(space, 1, 1, devices=1).total.bytes_exchanged == 0


def test_sharding_across_one_device_changes_nothing():
    space, mesh = ARCHITECTURES["fused qkv"], Mesh(jax.devices()[:1], "devices")
    layer, x = UNFLinear(space, 2, 3, key=KEY), random_features(space, 2, key=KEY)
    found = layer(shard(space, x, mesh), mesh=mesh)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(layer(x)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    assert leaf_shardings(space, mesh)["qkv"].spec == PartitionSpec()


def test_report_says_what_a_device_holds_and_exchanges():
    space = space_of({"w": ("a b", (8, 16)), "v": ("b", (16,))})
    text = str(cost_report(space, 2, 2, devices=8))
    assert "exchanged" in text.splitlines()[0]
    assert text.endswith(
        "on each of 8 devices, which holds 144 B in, 144 B out, 160 B coefficients"
    )
    assert "devices" not in str(cost_report(space, 2, 2))


def test_meshes_that_do_not_fit():
    space = ARCHITECTURES["mlp"]
    explicit = jax.make_mesh((1,), ("devices",), axis_types=(AxisType.Explicit,))
    with pytest.raises(ValueError, match="'devices' of the mesh is Explicit, expected Auto"):
        leaf_shardings(space, explicit)
    with pytest.raises(ValueError, match="the mesh has no axis 'rows'"):
        leaf_shardings(space, Mesh(jax.devices()[:1], "devices"), "rows")
