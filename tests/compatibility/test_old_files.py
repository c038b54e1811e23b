"""Models, optimizers and zoos written at commit 32f5ff4 (format 1) load and compute the same."""

import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unf

FILES = Path(__file__).parent / "format1"
OUTPUTS = json.loads((FILES / "outputs.json").read_text())
SHAPES = {"w0": (3, 4), "b0": (4,), "w1": (4, 2), "b1": (2,)}


def features():
    rng = np.random.default_rng(0)
    return {
        name: jnp.asarray(rng.normal(size=(*shape, 1)), jnp.float32)
        for name, shape in SHAPES.items()
    }


def assert_same(tree, expected):
    leaves = jax.tree.leaves(tree)
    for leaf, values in zip(leaves, expected, strict=True):
        np.testing.assert_allclose(np.asarray(leaf).ravel(), values, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in OUTPUTS if not name.startswith("optimizer")])
def test_models(name):
    assert_same(unf.load_model(FILES / f"{name}.safetensors")(features()), OUTPUTS[name])


@pytest.mark.parametrize("name", [name for name in OUTPUTS if name.startswith("optimizer")])
def test_optimizers(name):
    optimizer = unf.optim.learned_optimizer(unf.optim.load(FILES / f"{name}.safetensors"))
    params = {name: leaf[..., 0] for name, leaf in features().items()}
    gradients = jax.tree.map(lambda leaf: 0.1 * leaf + 0.01, params)
    updates, _ = optimizer.update(gradients, optimizer.init(params), params)
    assert_same(updates, OUTPUTS[name])
    assert unf.optim.origin(FILES / f"{name}.safetensors") == {"task": "none", "steps": 3}


def test_zoos(tmp_path):
    shutil.unpack_archive(FILES / "zoo.zip", tmp_path)
    zoo, expected = unf.zoo.Zoo(tmp_path / "zoo"), json.loads((FILES / "zoo.json").read_text())
    np.testing.assert_allclose(zoo.scores["success"], expected["success"])
    weights = jax.tree.leaves(zoo.weights([0, 1, 2]))
    for leaf, array in zip(zoo.space.leaves, weights, strict=True):
        np.testing.assert_allclose(
            np.asarray(array, np.float64).sum(), expected["sum"][leaf.path], rtol=1e-4
        )
