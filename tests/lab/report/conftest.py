"""One tiny run of each kind, made once."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest
import zarr

from tests.lab.zoos.tiny import RECIPE, build_tiny
from unf._persistence import Checkpoints
from unf.lab import predict, report
from unf.lab._folder import provenance
from unf.lab.lopt import Comparison, Curves, MetaTraining
from unf.lab.lopt._evaluate import part_ends
from unf.lab.lopt._job import columns, describe
from unf.lab.tasks import MLPTask
from unf.models import Fitted, StatNN, save_model
from unf.optim import FORMS, init_theta, save
from unf.zoo import Zoo

HORIZON = 250


@pytest.fixture(scope="session")
def zoo_folder(tmp_path_factory):
    """Untrained networks with success rates that were made up; one of them diverged."""
    folder = tmp_path_factory.mktemp("zoo") / "zoo"
    build_tiny(folder, dataclasses.replace(RECIPE, steps=0), models=32, chunk=16)
    group = zarr.open_group(folder, mode="r+")
    rng = np.random.default_rng(0)
    group["success"][:] = np.clip(rng.normal(0.5, 0.2, (32, 2)), 0, 1).astype(np.float32)
    group["status"][5] = 2
    return folder


@pytest.fixture(scope="session")
def predictor_folder(zoo_folder, tmp_path_factory):
    """As `unf.lab.predict.train` leaves it, but nothing was trained."""
    folder, zoo = tmp_path_factory.mktemp("predictor") / "statnn", Zoo(zoo_folder)
    folder.mkdir()
    rng = np.random.default_rng(1)
    training = dataclasses.asdict(predict.Training(epochs=2, batch_size=5))
    losses, taus, true = rng.random((2, 2)), rng.random((2, 2)), rng.random(5)
    shared = {"method": "statnn", "training": training, "seeds": [0, 1], "zoo": zoo.origin}
    result = predict.Report(
        **shared, split={"train": 20, "valid": 6, "test": 5}, include_diverged=False,
        tau=rng.random(2), r2=rng.random(2), retest=0.97, settings=0.5, valid_scores=taus,
        losses=losses, predicted=rng.random((2, 5)), true=true, tested=np.arange(5),
        invariance=1e-8, parameters=99, seconds=1.5,
    )  # fmt: skip
    (folder / "result.json").write_text(result.to_json())
    fitted = Fitted(StatNN(zoo.space, 1, 1, key=jax.random.key(0)), loss="bce")
    save_model(folder / "model-0.safetensors", fitted)
    job = {"what": "checkpoint of a predictor training", **shared, "split": [20, 6, 5]}
    notes = {"losses": losses.astype(str).tolist(), "taus": taus.astype(str).tolist()}
    Checkpoints(folder / "checkpoints", job).save(2, {"x": np.zeros(1)}, notes)
    return folder


@pytest.fixture(scope="session")
def meta_folder(tmp_path_factory):
    """As `unf.lab.lopt.meta_train` leaves it, but nothing was trained."""
    folder = tmp_path_factory.mktemp("meta") / "mlp-unf"
    folder.mkdir()
    task = MLPTask(dataset="digits", hidden=(3,), batch_size=4)
    config = describe(task, "unf", MetaTraining(steps=6, pairs=2, window=2, horizon=4), seed=0)
    (folder / "config.json").write_text(json.dumps(config))
    rows = [[2, 2.3, 1.5, 0, 0.1, 0.9, 1e-3], [4, 2.2, 1.6, 1, 0.11, 0.91, 9e-4]]
    rows.append([6, 2.1234, 1.4, 0, 0.12, 0.92, 8e-4])
    lines = [",".join(map(str, row)) for row in [columns(FORMS["paper"]), *rows]]
    (folder / "metrics.csv").write_text("\n".join(lines) + "\n")
    theta = init_theta("unf", task.space.relax(), key=jax.random.key(0))
    save(folder / "optimizer.safetensors", theta, **config, **provenance())
    return folder


@pytest.fixture(scope="session")
def comparison():
    """Two optimizers on three networks, of which one diverges with the second."""
    rng = np.random.default_rng(0)
    points = len(part_ends(HORIZON))
    losses = [2 * np.exp(-np.linspace(0, s, points)) + rng.random((3, points)) / 9 for s in (2, 1)]
    losses[1][2, 5:] = np.nan
    curves = {name: Curves(x, x + 0.1) for name, x in zip(("unf", "adam"), losses, strict=True)}
    notes = {"unf": {"meta-steps": 100}, "adam": {"learning_rate": 0.01}}
    return Comparison("mlp", "digits", HORIZON, [0, 1, 2], curves, notes)


@pytest.fixture(scope="session")
def comparison_file(comparison, tmp_path_factory):
    file = tmp_path_factory.mktemp("comparison") / "mlp.json"
    file.write_text(comparison.to_json())
    return file


@pytest.fixture(scope="session")
def several(zoo_folder, predictor_folder, meta_folder, comparison_file, tmp_path_factory):
    """All of them in one folder, as `unf reproduce` leaves them."""
    folder = tmp_path_factory.mktemp("all") / "several"
    shutil.copytree(zoo_folder, folder / "zoo")
    shutil.copytree(predictor_folder, folder / "statnn")
    shutil.copytree(predictor_folder, folder / "deepset")
    shutil.copytree(meta_folder, folder / "mlp" / "unf")
    shutil.copy(comparison_file, folder)
    table = [{"method": "statnn", "tau": [0.5, 0.7], "r2": [0.1, 0.2], "retest": 0.9}]
    (folder / "table1.json").write_text(json.dumps(table))
    return folder


@pytest.fixture(scope="session")
def page(several, tmp_path_factory):
    """The page of all of them."""
    return report.write(several, tmp_path_factory.mktemp("page") / "report.html")
