"""The same on one device and on eight."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = """
import json, sys
import jax, numpy as np
from tests.lab.zoos.tiny import RECIPE, build_tiny
from unf.lab import predict

assert len(jax.devices()) == int(sys.argv[1])
zoo = build_tiny(sys.argv[2] + "/zoo", models=32, chunk=16)
training = predict.Training(epochs=1, batch_size=8)
report = predict.train(
    zoo, "statnn", sys.argv[2] + "/out", training=training, seeds=2, sizes=(16, 8, 8),
    show_progress=False,
)
loss = zoo.scores["loss"].tolist()
print(json.dumps({"loss": loss, "predicted": report.predicted.tolist()}))
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    found = {}
    for devices in (1, 8):
        environment = {
            **os.environ,
            "JAX_NUM_CPU_DEVICES": str(devices),
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[3]), *sys.path]),
        }
        folder = tmp_path_factory.mktemp(f"devices{devices}")
        words = [sys.executable, "-c", SCRIPT, str(devices), str(folder)]
        run = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        found[devices] = json.loads(run.stdout.splitlines()[-1])
    return found


@pytest.mark.nightly
@pytest.mark.parametrize("what", ["loss", "predicted"])
def test_models_and_batches_are_spread_without_changing_the_result(results, what):
    one, eight = (np.array(results[devices][what]) for devices in (1, 8))
    np.testing.assert_allclose(one, eight, rtol=1e-4, atol=1e-6)
