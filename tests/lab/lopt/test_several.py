"""Meta-training on several tasks at once."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from unf.lab import report
from unf.lab.lopt import MetaError, MetaTraining, first_theta, meta_train
from unf.lab.lopt._job import _estimator, _problem, describe
from unf.lab.tasks import MLPTask
from unf.optim import load

NARROW = MLPTask(dataset="digits", hidden=(3,), batch_size=4)
DEEP = MLPTask(dataset="digits", hidden=(2, 2), batch_size=5)
OPTIONS = MetaTraining(steps=4, pairs=2, window=2, horizon=4, reparametrize=0.5)


def train(folder, tasks=(NARROW, DEEP), kind="deepset", options=OPTIONS, **more):
    return meta_train(tasks, kind, folder, options, steps_per_call=2, show_progress=False, **more)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    train(folder)
    return folder


@pytest.mark.nightly
def test_stopped_and_resumed_is_the_same(whole, tmp_path):
    def stop(row):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        train(tmp_path, on_metrics=stop)
    train(tmp_path, resume=True)
    for a, b in zip(arrays(tmp_path), arrays(whole), strict=True):
        np.testing.assert_array_equal(a, b)
    assert (tmp_path / "metrics.csv").read_text() == (whole / "metrics.csv").read_text()


def arrays(folder):
    return jax.tree.leaves(load(folder / "optimizer.safetensors"))


def test_results_name_the_tasks(whole):
    config = json.loads((whole / "config.json").read_text())
    assert config["task"] == "mlp,mlp" and config["reparametrize"] == 0.5
    assert [task["hidden"] for task in config["tasks"]] == [[3], [2, 2]]
    assert "Deep Set on mlp,mlp: 4 of 4 meta-steps are done" in report.render(whole)
    with pytest.raises(MetaError, match="the job there has tasks = "):
        train(whole, (NARROW, NARROW), resume=True)


def test_losses_are_relative_to_untrained_networks_and_so_is_the_cut():
    theta = first_theta((NARROW, DEEP), "sgdm", OPTIONS)
    problems = _problem((NARROW, DEEP), OPTIONS)
    estimator = _estimator(problems, (NARROW, DEEP), OPTIONS, key=jax.random.key(7))
    for one, each in zip(estimator.estimators, problems, strict=True):

        def first_loss(key, problem=each):
            state = problem.init(theta, key=key)
            return problem.step(theta, state, problem.draw(key=key))[1]

        losses = jax.jit(jax.vmap(first_loss))(jax.random.split(jax.random.key(1), 20))
        assert abs(losses.mean()) < 0.2, "which is 2.3 for ten classes"
        assert float(one.max_loss) == pytest.approx(np.log(2))


def test_equivariant_optimizers_need_one_weight_space():
    wide = dataclasses.replace(NARROW, batch_size=9)
    theta = first_theta((NARROW, wide), "unf", OPTIONS)
    assert theta.space == NARROW.space.relax()
    for kind in ("unf", "nfn"):
        with pytest.raises(MetaError, match=r"'mlp' and 'mlp' have different .*'deepset', or"):
            first_theta((NARROW, DEEP), kind, OPTIONS)


def test_mistakes(tmp_path):
    with pytest.raises(MetaError, match="there are no tasks"):
        train(tmp_path, ())
    with pytest.raises(MetaError, match=r"have a mean loss of -.*, so that losses cannot be comp"):
        train(tmp_path, (NARROW, Negative(dataset="digits", hidden=(3,), batch_size=4)), "sgdm")
    with pytest.raises(ValueError, match="reparametrize is -1"):
        MetaTraining(reparametrize=-1.0)


@dataclasses.dataclass(frozen=True)
class Negative(MLPTask):
    """A loss below zero, which has no logarithm."""

    def loss(self, params, batch):
        return super().loss(params, batch) - 10


def test_one_task_is_described_as_before_there_were_several():
    """So that meta-trainings of earlier versions can be resumed."""
    options = MetaTraining(steps=4, pairs=2, window=2, horizon=4)
    assert describe(NARROW, "unf", options, 0) == describe([NARROW], "unf", options, 0) == {
        "format": 1, "task": "mlp", "task.dataset": "digits", "task.batch_size": 4,
        "task.hidden": [3], "kind": "unf", "steps": 4, "learning_rate": 0.003,
        "schedule": "cosine", "clip": 1.0, "estimator": "pes", "pairs": 2, "sigma": 0.01,
        "window": 2, "horizon": 4, "objective": "mean", "form": "normalized",
        "head_start": "random", "cut": 2.0, "seed": 0,
    }  # fmt: skip
