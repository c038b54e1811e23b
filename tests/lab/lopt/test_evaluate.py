"""Evaluating learned optimizers, the table of their sizes, and the commands."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from unf.lab import figure2, table2
from unf.lab.cli import main
from unf.lab.data import DataError
from unf.lab.lopt import (
    GRIDS,
    Comparison,
    MetaTraining,
    Pace,
    at_edge,
    compare,
    evaluate,
    join,
    make_task,
    part_ends,
    tune,
)
from unf.lab.tasks import MLPTask
from unf.optim import init_theta, learned_optimizer, save

TASK = MLPTask(dataset="digits", hidden=(4,), batch_size=8)
THETA = init_theta("sgdm", key=jax.random.key(0), alpha=0.05)
TINY = MetaTraining(steps=2, pairs=2, window=2, horizon=4)


@pytest.fixture(scope="module")
def comparison():
    return compare(
        TASK, {"sgdm": THETA}, horizon=20, seeds=range(3), baselines=["adam"], show_progress=False
    )


def test_table_2_is_the_papers():
    rows = table2.run()
    assert {row.task: (row.unf, row.deepset, row.nfn) for row in rows} == table2.PAPER
    assert [row.true_terms for row in rows] == [32, 86, 165, 2382]
    assert "Every cell is the paper's." in table2.as_text(rows)
    wrong = [dataclasses.replace(rows[0], unf=1), *rows[1:]]
    assert "| 1 (paper 3783) |" in table2.as_text(wrong)


def test_a_meta_learned_sgd_is_evaluated_like_the_hand_made_one():
    """The same networks, data and updates give the same curves."""
    data = TASK.data()
    learned = evaluate(TASK, data, learned_optimizer, THETA, seeds=[3, 4], horizon=10)
    options = {"learning_rate": 0.05, "momentum": 0.9}
    by_hand = evaluate(TASK, data, GRIDS["sgdm-tuned"][0], options, seeds=[3, 4], horizon=10)
    np.testing.assert_allclose(learned.train, by_hand.train, rtol=1e-4)
    np.testing.assert_allclose(learned.heldout, by_hand.heldout, rtol=1e-4)
    assert (learned.train[0] != learned.train[1]).any()


def test_tuning_finds_the_best_of_the_grid(monkeypatch):
    """Of three learning rates one hardly moves, one diverges."""
    grid = {"learning_rate": np.array([1e-9, 1e-2, 1e9], np.float32)}
    monkeypatch.setitem(GRIDS, "adam", (GRIDS["adam"][0], grid))
    assert tune(TASK, TASK.data(), "adam", horizon=40) == {"learning_rate": np.float32(1e-2)}
    assert at_edge("adam", {"learning_rate": 1e-2}) == []
    assert at_edge("adam", {"learning_rate": 1e9}) == ["learning_rate"]
    grid = {"learning_rate": np.array([np.nan], np.float32)}
    monkeypatch.setitem(GRIDS, "adam", (GRIDS["adam"][0], grid))
    with pytest.raises(ValueError, match="adam: training diverges at every point"):
        tune(TASK, TASK.data(), "adam", horizon=4)


@pytest.mark.parametrize("horizon", [7, 100, 150, 199])
def test_every_step_of_the_horizon_is_made(horizon):
    """SGD with a learning rate of zero but for the last step: only the last part tells."""
    assert part_ends(horizon)[-1] == horizon and len(part_ends(horizon)) <= 100
    late = {"from": float(horizon - 1)}

    def make(options):
        return optax.sgd(lambda step: jnp.where(step >= options["from"], 10.0, 0.0))

    run = {"seeds": [0], "horizon": horizon}
    curves = evaluate(TASK, TASK.data(), make, late, **run)
    never = evaluate(TASK, TASK.data(), make, {"from": 1e9}, **run)
    assert curves.train.shape == (1, len(part_ends(horizon)))
    np.testing.assert_allclose(curves.heldout[:, :-1], never.heldout[:, :-1], rtol=1e-6)
    assert curves.heldout[0, -1] != pytest.approx(never.heldout[0, -1], rel=1e-3)


def test_comparisons_round_trip(comparison):
    again = Comparison.from_json(comparison.to_json())
    assert str(again) == str(comparison)
    for name, curves in comparison.curves.items():
        np.testing.assert_allclose(again.curves[name].train, curves.train, atol=1e-6)
    assert "Adam, tuned" in str(comparison) and "learning_rate" in str(comparison)
    with pytest.raises(ValueError, match="not a comparison of optimizers"):
        Comparison.from_json("{}")


def test_tasks_fall_back_to_built_in_data_and_say_so(monkeypatch):
    monkeypatch.delenv("UNF_DATA", raising=False)
    task, about = make_task("mlp")
    assert task.dataset == "digits" and "in place of the paper's (fashion-mnist" in about
    monkeypatch.setenv("UNF_DATA", "/nowhere")
    with pytest.raises(DataError, match="fashion-mnist"):
        make_task("mlp")
    with pytest.raises(ValueError, match="unknown task 'gan'"):
        make_task("gan")
    with pytest.raises(ValueError, match="'mlp' has no option vocabulary"):
        make_task("mlp", vocabulary=100)


@pytest.mark.nightly
def test_figure_2_from_nothing(tmp_path, monkeypatch):
    monkeypatch.delenv("UNF_DATA", raising=False)
    monkeypatch.setitem(figure2.KINDS, "mlp", ("sgdm",))
    said = []
    run = {"tasks": ("mlp",), "options": TINY, "seeds": 2, "announce": said.append}
    result = figure2.run(tmp_path, **run, show_progress=False)
    assert (tmp_path / "figure2.png").exists() and "digits" in said[0]
    assert set(result.comparisons[0].curves) == {"sgdm", "adam", "sgdm-tuned"}
    assert result.comparisons[0].notes["sgdm"]["meta-steps"] == TINY.steps
    files = [tmp_path / "mlp" / "sgdm" / "metrics.csv", tmp_path / "mlp.json"]
    before = [(file.read_bytes(), file.stat().st_mtime) for file in files]
    figure2.run(tmp_path, **run, show_progress=False)
    assert [(file.read_bytes(), file.stat().st_mtime) for file in files] == before
    figure2.run(tmp_path, **(run | {"seeds": 3}), show_progress=False)
    assert json.loads(files[1].read_text())["seeds"] == [0, 1, 2]
    with pytest.raises(ValueError, match=r"tasks \['gan'\]"):
        figure2.run(tmp_path, tasks=("gan",))


def test_commands(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("UNF_DATA", raising=False)
    train = [
        "lopt",
        "train",
        "--task",
        "mlp",
        "--optimizer",
        "sgdm",
        "--quiet",
        "--batch-size",
        "4",
    ]
    tiny = ["--steps", "2", "--pairs", "2", "--window", "2", "--horizon", "4", "--tensorboard"]
    out = str(tmp_path / "sgdm")
    assert main([*train, *tiny, "--out", out]) == 0
    assert "with the one it ended with" in capsys.readouterr().out
    assert list((tmp_path / "sgdm" / "tensorboard").iterdir())
    assert main([*train, *tiny, "--out", out]) == 1
    assert "there is a meta-training already" in capsys.readouterr().err
    assert main([*train, *tiny, "--out", out, "--resume"]) == 0
    test = ["lopt", "eval", "--task", "mlp", "--horizon", "4", "--seeds", "2", "--quiet"]
    file = tmp_path / "mlp.json"
    assert main([*test, out, "--baselines", "none", "--out", str(file)]) == 0
    assert json.loads(file.read_text())["notes"] == {"sgdm": {"meta-steps": 2}}
    assert main(["lopt", "plot", str(file), "--out", str(tmp_path / "f.png")]) == 0
    assert (tmp_path / "f.png").exists()
    capsys.readouterr()
    assert main(["lopt", "train", "--task", "mlp", "--optimizer", "unf", "--vocabulary", "9"]) == 1
    assert "'mlp' has no option vocabulary" in capsys.readouterr().err
    assert main([*test, out, "--seeds", "0"]) == 1
    assert "--seeds is 0" in capsys.readouterr().err
    assert main(["reproduce", "figure2", "--tasks", "gan"]) == 1
    assert "expected some of ['mlp'" in capsys.readouterr().err
    assert main(["reproduce", "figure2", "--steps", "mlp=many"]) == 1
    assert "--steps is 'mlp=many'" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="0"):
        main(["lopt", "train", "--help"])
    assert "(default: 50000)" in capsys.readouterr().out
    assert main([*test, "nothing"]) == 1
    assert "no learned optimizer 'nothing'" in capsys.readouterr().err
    assert main([*test, "--baselines", "lion"]) == 1
    assert "unknown baselines ['lion']" in capsys.readouterr().err
    assert main(["lopt", "plot", str(tmp_path / "sgdm" / "config.json")]) == 1
    assert "not a comparison" in capsys.readouterr().err


def test_an_optimizer_of_another_task_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("UNF_DATA", raising=False)
    save(tmp_path / "unf", init_theta("unf", TASK.space.relax(), key=jax.random.key(0)))
    assert main(["lopt", "eval", "--task", "mlp", str(tmp_path / "unf")]) == 1
    assert "made for another weight space" in capsys.readouterr().err


def test_reproduce_table_2(capsys, monkeypatch):
    rows = [table2.Row(task, 0, *sizes, 0, 0) for task, sizes in table2.PAPER.items()]
    monkeypatch.setattr(table2, "run", lambda: rows)  # made by the test above
    assert main(["reproduce", "table2"]) == 0
    assert "| CNN on CIFAR-10 | 7,369 | 2,788 | 41,603 |" in capsys.readouterr().out


def test_pace_is_a_median_over_calls(monkeypatch):
    """Compilation is in the first call, a checkpoint in the fourth."""
    clock = iter([60.0, 61.0, 62.0, 72.0, 73.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    pace = Pace(MetaTraining(pairs=3, window=5))
    assert pace.rate is None
    for step in (10, 20, 30, 40, 44):
        pace({"step": step})
    assert pace.rate == pytest.approx((10 + 4) / 2 * 2 * 3 * 5)


def test_comparisons_of_one_task_are_joined(comparison):
    other = dataclasses.replace(
        comparison, curves={"unf": comparison.curves["adam"]}, notes={"unf": {}}
    )
    (joined,) = join([comparison, other])
    assert set(joined.curves) == {"sgdm", "adam", "unf"} == set(joined.notes)
    with pytest.raises(ValueError, match=r"both have \['adam', 'sgdm'\]"):
        join([comparison, comparison])
    with pytest.raises(ValueError, match="with horizon 20, 30"):
        join([comparison, dataclasses.replace(other, horizon=30)])


def test_networks_that_diverged_are_counted(comparison):
    train = comparison.curves["sgdm"].train.copy()
    train[1, -1] = np.nan
    curves = {"sgdm": comparison.curves["sgdm"]._replace(train=train)}
    text = str(dataclasses.replace(comparison, curves=curves))
    assert ", 1 of 3 diverged" in text and "nan" not in text
