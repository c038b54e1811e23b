"""What the settings a network was trained with say about its success, without its weights."""

from typing import Any

import numpy as np
from jaxtyping import Float

from ...zoo import Zoo
from .._scores import kendall_tau
from ._batches import Split
from ._methods import PredictError


def settings_tau(zoo: Zoo, split: Split) -> float:
    """Test τ of boosted trees that know what was drawn for each network and no weights.

    A predictor that reads weights and does no better may have found the learning rate, and
    nothing that these networks themselves do.
    """
    settings = np.stack([np.asarray(x, np.float64) for x in zoo.choices.values()], axis=1)
    return trees_tau(settings, zoo.success[:, 0], split)


def trees_tau(
    settings: Float[np.ndarray, "models settings"],
    success: Float[np.ndarray, " models"],
    split: Split,
) -> float:
    """Test τ of boosted trees, fitted to the models that are trained on."""
    trees = boosted_trees()
    trees.fit(settings[split.train], success[split.train])
    return kendall_tau(trees.predict(settings[split.test]), success[split.test].astype(np.float64))


def boosted_trees() -> Any:
    """Trees that are not fitted yet.

    Raises:
        PredictError: if scikit-learn is missing.
    """
    try:
        from sklearn.ensemble import HistGradientBoostingRegressor
    except ImportError as error:
        remedy = "run: pip install 'universal-neural-functionals[zoo]'"
        raise PredictError(f"scikit-learn, for scores of settings, is missing; {remedy}") from error
    return HistGradientBoostingRegressor(random_state=0)
