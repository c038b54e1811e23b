"""Mistakes that beginners make in the quick start lead to messages with the remedy.

They run in one process as users have it, without the type checks of the tests.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

START = """
import json, jax, jax.numpy as jnp, numpy as np, optax, unf
key = jax.random.key(0)
params = {"w0": jnp.ones((4, 16)), "b0": jnp.ones(16), "w1": jnp.ones((16, 2))}
spec = {"w0": "[in] hidden", "b0": "hidden", "w1": "hidden [out]"}
network = lambda p, x: jnp.tanh(x @ p["w0"] + p["b0"]) @ p["w1"]
x = jnp.ones((3, 4))
space = unf.WeightSpace.from_spec(spec, params)
features = unf.nn.stack_channels(params)
layer = unf.nn.UNFLinear(space, 1, 8, key=key)
model = unf.models.InvariantUNF(space, 1, 2, key=key, num_layers=1, mlp_width=4)
theta = unf.optim.init_theta("unf", space, key=key)
other = {"w0": jnp.ones((4, 8)), "b0": jnp.ones(8), "w1": jnp.ones((8, 2))}
"""
MISTAKES = {
    # The specification
    'unf.WeightSpace.from_spec({"w0": "[in] hidden"}, params)': "structure",
    'unf.verify(network, params, unf.WeightSpace.from_spec({**spec, "b0": "hiden"}, params), x,'
    " key=key)": "hiden",
    'unf.WeightSpace.from_spec({**spec, "w1": "out hidden"}, params)': "hidden = 16 from axis 0",
    'unf.WeightSpace.from_spec({**spec, "b0": "hidden hidden"}, params)': "2 axes, the array 1",
    "unf.WeightSpace.from_spec(params, spec)": "a specification comes before the parameters",
    # Finding and checking it
    "unf.infer(params, network, x)": "the network is the first argument",
    "unf.infer(network, params)": "unf.infer called fn(params, *inputs) with 0 inputs",
    "unf.infer(network, params, jnp.ones((3, 5)))": "of shapes [(3, 5)]; does the network take",
    "unf.verify(network, space, params, x, key=key)": "not a weight space",
    "unf.verify(network, params, spec, x, key=key)": "unf.WeightSpace.from_spec(spec, params)",
    "space.permute(params, key)": "space.sample_permutation(key) draws",
    # Layers
    "unf.nn.UNFLinear(spec, 1, 8, key=key)": "unf.WeightSpace.from_spec(spec, params)",
    "unf.nn.UNFLinear(1, 8, space, key=key)": "before any numbers of channels",
    "unf.count_terms(spec)": "unf.WeightSpace.from_spec(spec, params)",
    "unf.nn.UNFLinear(space, 1, 8)": "missing 1 required keyword-only argument: 'key'",
    "layer(params)": "stack_channels",
    "layer(unf.nn.stack_channels(params, params))": "wrong number of channels",
    "layer(unf.nn.stack_channels(other))": "weights of the network the space was made for",
    "layer(jax.tree.map(lambda leaf: jnp.stack([leaf] * 5), features))": "vmap",
    'layer({"w0": features["w0"]})': "structure",
    "unf.nn.stack_channels()": "call stack_channels(params)",
    "unf.nn.stack_channels(params, other)": "shape",
    "unf.nn.DeepSetLinear(2, 3, key=key)(features)": "expects 2 channels",
    # Models
    'unf.models.InvariantUNF(space, 1, 2, key=key, statistics="mode")': "expected some of",
    "model(params)": "stack_channels",
    'unf.save_model("nowhere/model.safetensors", model)': "there is no folder nowhere",
    'unf.load_model("nowhere.safetensors")': "nowhere.safetensors",
    # Learned optimizers
    "unf.optim.learned_optimizer(params)": "unf.optim.trained()",
    'unf.optim.load("adam")': "unf-mlp-fashion-mnist",
    'unf.optim.learned_optimizer(theta).init({"w0": other["w0"]})': "unf.optim.init_theta",
    "t = unf.optim.learned_optimizer(theta); t.update(params, t.init(params))": "params",
    'unf.optim.init_theta("unf", spec, key=key)': "unf.WeightSpace.from_spec(spec, params)",
}
END = """
found = {}
for code in json.loads(input()):
    try:
        exec(code)
        found[code] = None
    except Exception as error:
        notes = getattr(error, "__notes__", ())
        found[code] = "\\n".join([f"{type(error).__name__}: {error}", *notes])
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def messages(tmp_path_factory):
    run = subprocess.run(
        [sys.executable, "-c", START + END],
        input=json.dumps(list(MISTAKES)) + "\n",
        env={
            **os.environ,
            "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
            "JAX_COMPILATION_CACHE_DIR": str(Path(__file__).parents[1] / ".jax_cache"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        },
        cwd=tmp_path_factory.mktemp("beginner"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize("code", MISTAKES)
def test_mistakes_lead_to_the_remedy(messages, code):
    assert messages[code] is not None, "it should have failed"
    assert MISTAKES[code] in messages[code]
