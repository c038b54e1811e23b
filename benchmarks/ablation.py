"""How much the network f contributes: shipped optimizers with f, and with all of its gains at 1."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from unf.lab.lopt import compare
from unf.lab.lopt._evaluate import describe_losses
from unf.lab.lopt._options import make_task
from unf.optim import load

CASES = [
    ("mlp", "deepset-mlp-fashion-mnist"),
    ("mlp", "unf-mlp-fashion-mnist"),
    ("cnn", "tied-cnn-cifar10"),
    ("rnn", "tied-rnn-lm1b"),
    ("transformer", "tied-transformer-lm1b"),
]


def run(task: str, name: str) -> dict[str, Any]:
    """Training losses of five networks, with and without f."""
    theta = load(name)
    silent = jax.tree.map(lambda x: jnp.zeros_like(x) if eqx.is_array(x) else x, theta.head)
    without = eqx.tree_at(lambda t: t.head, theta, silent)
    found = compare(make_task(task)[0], {"with f": theta, "gain 1": without}, baselines=())
    losses = {variant: curves.last.tolist() for variant, curves in found.curves.items()}
    return {"task": task, "optimizer": name, "losses": losses}


def report(rows: list[dict[str, Any]]) -> str:
    """A table of the losses over the last tenth of training, mean ± standard error."""
    lines = ["| task | optimizer | with f | gain 1 |", "|---|---|---|---|"]
    for row in rows:
        cells = [describe_losses(np.array(x)) for x in row["losses"].values()]
        lines.append(f"| {row['task']} | {row['optimizer']} | {' | '.join(cells)} |")
    return "\n".join(lines)
