"""Values within a network move with its weights, as their axes say."""

import jax
import numpy as np
import pytest

from tests.graph.networks import NETWORKS
from tests.graph.networks._case import fill, inferred
from unf.graph._activations import Activations
from unf.spec._blocks import Layout
from unf.spec._group import permute_block

QUICK = ("grouped_queries", "gpt_tied", "group_norm", "indexed_layers", "batch_norm")
NIGHTLY = pytest.mark.nightly
ONLY_WEIGHTS = ("lora",)
"""Networks whose permuted axes belong to products of weights, which no input enters."""


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=NIGHTLY) for name in NETWORKS]
)
def test_values_permute_as_their_axes_say(name):
    fn, params, inputs, space = inferred(name)
    params, inputs = fill(params), fill(inputs, seed=1)
    activations = Activations(fn, params, *inputs)
    assert activations.space == space
    assert bool(activations.found) == bool(space.sizes and name not in ONLY_WEIGHTS)
    element = {k: np.asarray(v) for k, v in space.sample_permutation(jax.random.key(0)).items()}
    moved = space.permute(params, element)
    values = activations.compute(activations.found, (params, moved), *inputs)
    for activation, before, after in zip(activations.found, *values, strict=True):
        layout = Layout(0, activation.axes, space.axis_sizes)
        parts = layout.split(before)
        pairs = zip(layout.blocks, parts, strict=True)
        expected = layout.join([permute_block(block, part, element) for block, part in pairs])
        scale = np.abs(before).max()
        np.testing.assert_allclose(after, expected, rtol=0, atol=1e-4 * max(scale, 1e-3))
