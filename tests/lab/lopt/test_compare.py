"""Comparisons of optimizers: made, written, read, printed."""

import dataclasses

import jax
import numpy as np
import pytest

from unf.lab.lopt import Comparison, Curves, compare
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


def test_several_meta_trainings_are_one_optimizer():
    """Networks that diverged do not count in their meta-training's mean, and are counted."""
    rows = np.array([[1.0, 1.0], [3.0, 3.0]])
    bad = np.array([[2.0, 4.0], [np.nan, np.nan]])
    both = {"unf/seed-0": Curves(rows, rows), "unf/seed-1": Curves(bad, bad)}
    curves = {**both, "adam": Curves(rows + 5, rows + 5), "seed-0": Curves(rows + 6, rows + 6)}
    found = Comparison("mlp", "digits", 2, [0, 1], curves, {name: {} for name in curves})
    assert found.groups == {
        "unf": ["unf/seed-0", "unf/seed-1"], "adam": ["adam"], "seed-0": ["seed-0"],
    }  # fmt: skip
    np.testing.assert_array_equal(found.grouped().curves["unf"].train, [[2.0, 2.0], [2.0, 4.0]])
    assert found.ranking == ["adam", "seed-0", "unf"]
    assert found.rows()[-1][1:3] == [
        "2.5000 ± 0.5000, 1 of 4 diverged",
        "3.0000 ± 1.0000, 1 of 4 diverged",
    ]
    assert "2 networks, or over up to 2 meta-trainings with 2 networks each" in str(found)
