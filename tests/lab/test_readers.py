"""Comparing readers and editors: tables, files, and going on where an earlier call stopped."""

import json

import jax
import numpy as np
import pytest

from unf.lab import edit, readers
from unf.lab.cli import main
from unf.lab.predict import METHODS
from unf.lab.report import render
from unf.lab.zoos import ImplicitZoo, SmallCNNZoo, VariedRNN
from unf.lab.zoos._build import describe
from unf.lab.zoos._recipe import recipe_of
from unf.zoo import Zoo

IMPLICIT = ImplicitZoo(dataset="digits", hidden=3, steps=2)
ROWS = {
    "images": readers.Row("images", IMPLICIT, 150, steps=3, methods=("statnn", "probe")),
    "cnns": readers.Row("CNNs", SmallCNNZoo(channels=2, steps=1), 60, steps=3, methods=("statnn",)),
}


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    out = tmp_path_factory.mktemp("readers")
    return out, readers.run(ROWS, out, seeds=2, show_progress=False)


def test_every_zoo_has_a_table(compared):
    out, result = compared
    record = json.loads((out / "readers.json").read_text())
    by_method = {row["method"]: row for row in record["zoos"]["images"]}
    assert set(by_method) == {"statnn", "probe"} and by_method["probe"]["measure"] == "accuracy"
    assert record["zoos"]["cnns"][0]["measure"] == "τ"
    for name, reports in result.reports.items():
        for report, row in zip(reports, record["zoos"][name], strict=True):
            np.testing.assert_allclose(row["scores"], report.main)
            assert f"{report.parameters:,}" in str(result)
    for picture in ("scores.png", "images/images.png", "images/curves.png", "cnns/predictions.png"):
        assert (out / picture).stat().st_size > 1000


def test_all_methods_take_as_many_steps(compared):
    for report in compared[1].reports["images"]:
        training = report.training
        assert training["batch_size"] == readers.BATCH and training["epochs"] == 2
        assert training["standardize"] == (report.method != "probe")


def test_images_are_moved_for_readers_and_probes_only():
    moved = {name for name in METHODS if ROWS["images"].training(name, 100).augment}
    assert moved == {"reader", "probe", "reader-probe"}
    assert not any(ROWS["cnns"].training(name, 100).augment for name in METHODS)


def test_results_are_kept(compared):
    out, result = compared
    again = readers.run(ROWS, out, seeds=2, show_progress=False)
    for name, reports in result.reports.items():
        for a, b in zip(reports, again.reports[name], strict=True):
            assert a.seconds == b.seconds, "nothing is trained again"


def test_commands_name_what_is_wrong(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "inr", "--small", "--rows", "faces"])
    assert (
        "--rows has 'faces'; expected some of ['digits-1'] with --small" in capsys.readouterr().err
    )
    assert main(["reproduce", "edit", "--small", "--edits", "blur"])
    assert "unknown edit 'blur'; expected some of ['dilate'" in capsys.readouterr().err


def test_edits():
    image = np.zeros((1, 5, 5, 1), np.uint8)
    image[0, 2, 2] = 200
    assert np.sum(edit.dilate(image) == 200) == 9 and not edit.erode(image).any()
    np.testing.assert_array_equal(edit.erode(edit.dilate(image)), image)
    assert edit.erode(np.full((1, 4, 4, 1), 7, np.uint8)).min() == 7, "nothing enters from outside"
    raised = edit.raise_contrast(np.array([0, 100, 127, 128, 155, 255], np.uint8))
    np.testing.assert_array_equal(raised, [0, 86, 127, 128, 169, 255])


def test_editing(tmp_path, monkeypatch):
    setting = edit.Setting(IMPLICIT, 120, 3, methods=("deepset", "unf"))
    options = {"edits": ("contrast",), "seeds": 2, "show_progress": False}
    result = edit.run(setting, tmp_path, **options)
    assert result.errors["contrast"].keys() == {"deepset", "unf"}
    assert len(result.errors["contrast"]["unf"]) == 2
    zoo = Zoo(tmp_path / "zoo")
    task, test = recipe_of(zoo).task, zoo.split().test
    drawn = np.stack([task.draw(jax.tree.map(lambda x, i=i: x[i], zoo.weights())) for i in test])
    wanted = edit.raise_contrast(task.images)[zoo.settings["image"][test].astype(int)] / 255
    errors = np.mean((drawn - wanted) ** 2, axis=(1, 2, 3))
    np.testing.assert_allclose(result.unchanged["contrast"], 100 * errors.mean(), rtol=1e-4)
    targets = edit.raise_contrast(task.images)[zoo.settings["image"].astype(int)] / 255
    errors = (np.mean(targets[zoo.split().train], axis=0) - wanted) ** 2
    np.testing.assert_allclose(result.mean_image["contrast"], 100 * errors.mean(), rtol=1e-6)
    record = json.loads((tmp_path / "edit.json").read_text())
    assert record["errors"] == result.errors and "MSE × 100" in str(result)
    assert (tmp_path / "contrast.png").stat().st_size > 1000
    again = edit.run(setting, tmp_path, zoo_folder=tmp_path / "zoo", **options)
    assert again.about == result.about, "nothing is trained again"
    page = render(tmp_path)
    assert "UNF layers, contrast: squared error" in page and "damaged" not in page
    assert "of the variance of their image" in page
    with pytest.raises(edit.EditError, match="seeds"):
        edit.run(setting, tmp_path, **options | {"seeds": 1})
    monkeypatch.setattr(edit, "LEARNING_RATE", 0.5)
    with pytest.raises(edit.EditError, match=r"learning_rate = 0\.003, not 0\.5"):
        edit.run(setting, tmp_path, **options)


def test_what_varies_in_secret_is_not_stored():
    drawn = VariedRNN().draw(key=jax.random.key(0))
    assert set(VariedRNN.unrecorded) < set(drawn)
    stored = describe(VariedRNN(), models=8, seed=0, chunk=4)["choices"]
    assert stored == ["learning_rate"]
    with pytest.raises(ValueError, match="problems from 9 to 3; expected 0 < min_problems"):
        VariedRNN(min_problems=9, max_problems=3)
    short = VariedRNN(steps=5, min_steps=50).draw(key=jax.random.key(0))
    assert short["steps"] == 5, "no network is said to have trained longer than it has"
