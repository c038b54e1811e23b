"""Training predictors: what they may depend on, and which epoch is kept."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kendalltau

from tests.lab.predict.memory import SIZES, TRAINING, train
from unf.lab import predict
from unf.lab.predict._examples import load_examples
from unf.lab.predict._methods import Problem, invariance_gap
from unf.lab.tasks._task import Runnable
from unf.models import Fitted, load_model


def answer(params, x):
    return jnp.tanh(x @ params["w0"] + params["b0"][None]) @ params["w1"]


@pytest.mark.parametrize("method", list(predict.METHODS))
def test_predictions_do_not_depend_on_the_order_of_neurons(zoo, method):
    """Up to the rounding of float32."""
    make, key = predict.METHODS[method], jax.random.key(0)
    problem = Problem(zoo.space, 1, Runnable(answer, (2,)))
    made = make.make(problem, key) if make.make else make.make_tied([zoo.space], 1, key)
    model = Fitted(made, loss="bce")
    weights = zoo.weights(zoo.trained[:8])
    assert invariance_gap([model], zoo.space, weights, seed=0) < 1e-6
    model = model.on(zoo.space) if model.space is None else model
    if method not in ("deepset", "statnn"):  # these ignore any order within a tensor
        leaves = jax.tree.leaves(weights)
        moved = zoo.space.unflatten([leaves[0][..., ::-1], *leaves[1:]])
        change = model.predict(weights) - model.predict(moved)
        assert np.abs(change).max() > 1e-6, "reordering a single tensor must be noticed"


def test_the_epoch_with_the_best_validation_tau_is_kept(zoo, trained):
    out, report = trained
    weights, true = load_examples(zoo, zoo.split(SIZES).valid)
    for i in range(2):
        row = load_model(out / f"model-{i}.safetensors").predict(weights)
        tau = np.nan_to_num(kendalltau(row, true).statistic)
        assert np.isclose(tau, report.valid_scores[:, i].max(), atol=1e-6)


@pytest.mark.nightly
def test_clipped_gradients_change_the_training(zoo, trained, tmp_path):
    """Adam's first step does not depend on the gradient's norm, later ones do."""
    clipped = train(zoo, tmp_path, training=dataclasses.replace(TRAINING, clip=1e-3))
    assert not np.allclose(clipped.losses[-1], trained[1].losses[-1], rtol=1e-5)


def test_predictors_that_diverge_are_not_reported(zoo, tmp_path):
    wild = dataclasses.replace(TRAINING, epochs=1, learning_rate=float("inf"))
    with pytest.raises(predict.PredictError, match=r"models \[0, 1\] diverged in every epoch"):
        train(zoo, tmp_path, training=wild)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs is 0 and batch_size 10; expected at least 1"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0"),
    ],
)
def test_invalid_settings(options, message):
    with pytest.raises(ValueError, match=message):
        predict.Training(**options)
