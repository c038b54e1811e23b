"""A first job: tell from a network's weights alone how accurate it will be.

`unf demo` trains small networks on two moons, each with its own learning
rate, initial scale, number of examples and wrong labels. `InvariantUNF` and `StatNN` learn to
predict their accuracy from the weights, and are scored on networks that neither has seen.
"""

import jax
import numpy as np

from ...spec import WeightSpace
from ..predict import invariance_gap
from ._networks import SPEC, TEST_POINTS, Config, train_networks, true_accuracies, two_moons
from ._predictors import make_splits, score_predictors
from ._show import Result, draw, table

__all__ = ["TEST_POINTS", "Config", "Result", "run", "two_moons"]


def run(config: Config) -> Result:
    """Do the whole job: prints as it goes, and writes the picture.

    Raises:
        ValueError: if there are too few networks to split and rank.
    """
    if config.networks < 20:
        raise ValueError(f"networks is {config.networks}; expected at least 20")
    zoo, truth = jax.random.split(jax.random.key(config.seed))
    params = train_networks(config, key=zoo)
    accuracies = true_accuracies(params, key=truth)
    low, middle, high = np.quantile(accuracies, [0.05, 0.5, 0.95])
    print(f"their accuracy: median {middle:.2f}, nine in ten between {low:.2f} and {high:.2f}")
    space = WeightSpace.from_spec(SPEC, jax.tree.map(lambda x: x[0], params))
    splits = make_splits(params, accuracies)
    scores, models = score_predictors(space, splits, config)
    print(table(scores, len(splits[2].success)))
    gap = invariance_gap(models, space, splits[2].weights, seed=config.seed)
    print(f"reordering hidden neurons changes UNF's predictions by at most {gap:.0e}")
    result = Result(params, accuracies, scores, gap, config.out / "demo.png")
    draw(result, key=truth)
    print(f"picture: {result.picture}")
    return result
