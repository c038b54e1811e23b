"""A zoo of random MLPs in memory, whose success depends on their weights."""

from pathlib import Path

import jax
import numpy as np

from unf.lab import predict
from unf.testing import spaces
from unf.zoo import Zoo

SIZES = (20, 6, 6)
TRAINING = predict.Training(epochs=2, batch_size=5)


class MemoryZoo(Zoo):
    def __init__(self, models=32, width=4):
        rng = np.random.default_rng(0)
        self.path, self.space, self.models = Path("memory"), spaces.mlp(2, width, 1), models
        self.kind, self.config, self.seed = "memory", {"width": width}, 0
        self.stored = self.space.unflatten(
            [rng.normal(size=(models, *x.shape)).astype(np.float32) for x in self.space.leaves]
        )
        signal = sum(x.reshape(models, -1).mean(1) for x in jax.tree.leaves(self.stored))
        noise = rng.normal(size=(2, models)).T
        self.scores = {"success": 1 / (1 + np.exp(-2 * signal[:, None] - 0.1 * noise))}
        self.settings = {"learning_rate": rng.random(models)}
        self.attributes = {}
        self.status = np.ones(models, int)

    def weights(self, rows=None):
        rows = self.trained if rows is None else rows
        return jax.tree.map(lambda x: x[rows], self.stored)


def train(zoo, out, method="statnn", **options):
    given = {"training": TRAINING, "seeds": 2, "sizes": SIZES, "show_progress": False, **options}
    return predict.train(zoo, method, out, **given)
