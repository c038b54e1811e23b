"""What the order of neurons costs a predictor that is not equivariant, and what helps."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import unf
from unf.lab._scores import summary
from unf.lab.zoos import TwoMoonsZoo
from unf.lab.zoos._train import train_in_parts
from unf.models._scores import kendall_tau

NETWORKS, TRAINING, SEEDS, EPOCHS = 2000, 1600, 5, 120
CASES = ("as stored", "permuted at random", "canonical", "aligned", "UNF")


class Flat(eqx.Module):
    """An MLP on all weights of a network, one after another."""

    mlp: eqx.nn.MLP
    space: unf.WeightSpace = eqx.field(static=True)

    def __init__(self, space: unf.WeightSpace, *, key: Any):
        self.space, self.mlp = space, eqx.nn.MLP(space.num_weights, 1, 256, 2, key=key)

    def __call__(self, x: Any) -> Any:
        """The prediction for features with one channel."""
        return self.mlp(jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(x)]))


def run() -> list[dict[str, Any]]:
    """Kendall's τ of each way on 400 test networks, for each seed."""
    recipe = TwoMoonsZoo(width=16, steps=300)
    space, keys = recipe.task.space, jax.random.split(jax.random.key(0), NETWORKS)
    trained, _ = train_in_parts(
        recipe, keys, recipe.batch_sizes[0], at_once=NETWORKS, on_model_steps=lambda *_: None
    )
    weights, accuracies = jax.device_get((trained.params, trained.success[:, 0]))
    networks = [jax.tree.map(lambda x, i=i: x[i], weights) for i in range(NETWORKS)]
    best = networks[int(np.argmax(accuracies[:TRAINING]))]

    def arranged(case: str, params: Any) -> Any:
        if case == "canonical":
            return unf.canonicalize(space, params)
        element = unf.align(space, best, params)
        return space.permute(params, {name: np.asarray(x) for name, x in element.items()})

    rows = []
    for case in CASES:
        data = weights
        if case in ("canonical", "aligned"):
            data = jax.tree.map(lambda *x: np.stack(x), *(arranged(case, x) for x in networks))
        train, test = (
            jax.tree.map(lambda x, part=part: x[part], data)
            for part in (slice(TRAINING), slice(TRAINING, None))
        )
        models = [
            unf.models.InvariantUNF(space, 1, 1, mlp_width=128, key=key)
            if case == "UNF"
            else Flat(space, key=key)
            for key in jax.random.split(jax.random.key(1), SEEDS)
        ]
        fitted = unf.fit(
            models,
            train,
            accuracies[:TRAINING],
            key=jax.random.key(2),
            loss="bce",
            epochs=EPOCHS,
            augment="permute" if case == "permuted at random" else None,
            patience=None,
        )
        taus = [
            kendall_tau(np.asarray(m.predict(test)), accuracies[TRAINING:]) for m in fitted.model
        ]
        rows.append({"case": case, "tau": taus})
        print(report(rows[-1:]).splitlines()[-1], flush=True)
    return rows


def report(rows: list[dict[str, Any]]) -> str:
    """A table of τ, mean ± standard error."""
    lines = ["| order of neurons | τ |", "|---|---|"]
    return "\n".join([*lines, *(f"| {r['case']} | {summary(np.array(r['tau']))} |" for r in rows)])
