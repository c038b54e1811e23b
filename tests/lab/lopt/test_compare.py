"""Comparisons of optimizers: made, written, read, printed."""

import dataclasses

import jax
import numpy as np
import pytest

from unf.lab.lopt import Comparison, compare
from unf.lab.tasks import MLPTask
from unf.optim import init_theta

TASK = MLPTask(dataset="digits", hidden=(4,), batch_size=8)
THETA = init_theta("sgdm", key=jax.random.key(0), alpha=0.05)


@pytest.fixture(scope="module")
def comparison():
    return compare(
        TASK, {"sgdm": THETA}, horizon=20, seeds=range(3), baselines=["adam"], show_progress=False
    )


def test_comparisons_round_trip(comparison):
    again = Comparison.from_json(comparison.to_json())
    assert str(again) == str(comparison)
    for name, curves in comparison.curves.items():
        np.testing.assert_allclose(again.curves[name].train, curves.train, atol=1e-6)
    assert "Adam, tuned" in str(comparison) and "learning_rate" in str(comparison)
    with pytest.raises(ValueError, match="not a comparison of optimizers"):
        Comparison.from_json("{}")


def test_networks_that_diverged_are_counted(comparison):
    train = comparison.curves["sgdm"].train.copy()
    train[1, -1] = np.nan
    curves = {"sgdm": comparison.curves["sgdm"]._replace(train=train)}
    text = str(dataclasses.replace(comparison, curves=curves))
    assert ", 1 of 3 diverged" in text and "nan" not in text
