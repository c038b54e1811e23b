"""The table of networks: the expected group, nothing more and nothing less."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unf
from tests.graph.compare import canonical, expected_space, relative_change, single_axes
from tests.graph.networks import NETWORKS, fill, inferred

DESCRIBED = [name for name, network in NETWORKS.items() if network.expected]


@pytest.mark.parametrize("name", DESCRIBED)
def test_finds_the_expected_group(name):
    network = NETWORKS[name]
    _, params, _, space = inferred(name)
    assert canonical(space) == canonical(expected_space(space, network, params))


@pytest.mark.parametrize("name", NETWORKS)
def test_group_is_exact(name):
    """Its permutations leave the function alone; any axis of one leaf moved alone does not.

    The second only where the table says what is expected: deep networks on small images have
    windows of which only the middle sees anything.
    """
    network = NETWORKS[name]
    fn, params, inputs, space = inferred(name)
    values = [fill(x, seed=i) for i, x in enumerate(inputs)]
    assert not unf.verify(fn, fill(params), space, *values, key=jax.random.key(0)).broken
    if not network.expected:
        return
    run = jax.jit(fn)
    left = dict(single_axes(space))
    for seed in range(6):  # several draws: rectifiers may all be off, branches not taken
        drawn = fill((params, *inputs), seed=seed)
        weights, *values = drawn if network.narrow else jax.tree.map(widen, drawn)
        for place, single in list(left.items()):
            order = np.arange(single.sizes["moved"])
            order[[0, -1]] = order[[-1, 0]]
            change = relative_change(run, single, order, weights, *values)
            if change > (1e-4 if network.narrow else 1e-9):
                del left[place]
    unmoved = [place for place in left if place.split(" ")[0] not in network.dead]
    assert sorted(unmoved) == sorted(network.hidden)


def test_names_are_stable_between_runs():
    fn, params, inputs, space = inferred("gpt_tied")
    assert unf.infer(fn, params, *inputs) == space


def widen(x):
    return x.astype(np.float64) if jnp.issubdtype(x.dtype, jnp.floating) else x
