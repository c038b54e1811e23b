"""Pages of runs: whole, safe, and with the figures of the files."""

import csv
import dataclasses
import json
import random
import shutil

import jax
import numpy as np
import pytest
import zarr

from tests.lab.report.pages import check
from tests.laws.architectures import space_of
from unf.lab import report
from unf.lab.lopt import Curves
from unf.lab.report import ReportError
from unf.models import Fitted, InvariantUNF, save_model
from unf.optim import init_theta, save
from unf.zoo import Zoo

HOSTILE = "\"><script>alert(1)</script><img src=x onerror=alert(2)>&amp;'$\\frac{$\x00\x1b\ud800é"
KEY = jax.random.key(0)


def altered(source, target, change):
    """A copy of a JSON file with something changed in it."""
    record = json.loads(source.read_text())
    change(record)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(record))
    return target


def copied(folder, target):
    shutil.copytree(folder, target)
    return target


def test_a_zoo_has_the_figures_of_its_arrays(zoo_folder):
    zoo, html = Zoo(zoo_folder), report.render(zoo_folder)
    page, success = check(html), zoo.scores["success"][zoo.trained, 0]
    assert f"with a median of {np.median(success):.1%}" in page.text
    assert "32 of 32 networks are trained, of which 1 diverged" in page.text
    for level in (0, 0.25, 0.95, 1):
        assert f"{np.quantile(success, level):.4g}" in page.words
    assert "decoder/hn/kernel" in page.words, "the weight space is drawn"
    assert "How well the networks work" in page.words and page.tags.count("figure") == 4
    assert report.render(zoo_folder) == html, "the same bytes again"


def test_a_predictor_has_the_scores_of_its_result(predictor_folder):
    page = check(report.render(predictor_folder))
    result = json.loads((predictor_folder / "result.json").read_text())
    for name in ("tau", "r2", "best_valid_score"):
        assert {f"{x:.4f}" for x in result[name]} <= set(page.words)
    assert f"{result['tau_mean']:.4f} ± {result['tau_standard_error']:.4f}" in page.text
    assert f"device {result['device']}" in page.text
    assert "test networks are too few to tell apart τ" in page.text
    assert page.tags.count("figure") == 4


def test_a_meta_training_has_the_figures_of_its_metrics(meta_folder):
    page = check(report.render(meta_folder))
    with (meta_folder / "metrics.csv").open() as file:
        losses = [float(row["loss"]) for row in csv.DictReader(file)]
    assert "6 of 6 meta-steps are done" in page.text and "Unfinished" not in page.text
    assert f"had a loss of {losses[0]:.4f}" in page.text
    assert f"have {losses[-1]:.4f} over the last" in page.text
    assert '"task.hidden": [' in page.text, "the configuration"
    assert "Runs that exploded" in page.words


def test_a_comparison_ranks_optimizers_and_counts_the_lost(comparison, comparison_file):
    page = check(report.render(comparison_file))
    last = comparison.curves["unf"].last
    error = last.std(ddof=1) / 3**0.5
    assert f"UNF ends with the lowest training loss, {last.mean():.4f} ± {error:.4f}" in page.text
    assert "1 of 3 diverged" in page.text
    assert "1 of 3 diverge with Adam, tuned." in page.text


def test_one_page_for_several_runs(page):
    page = check(page.read_text())
    assert "6 runs" in page.text and page.tags.count("section") == 6
    for name in ("zoo", "statnn", "mlp/unf", "mlp.json", "table1.json"):
        assert name in page.words
    assert "0.6000 ± 0.1000" in page.text, "the table"
    assert "Left out" not in page.text, "nothing of ours is disowned"


@pytest.mark.nightly
def test_only_predictors_of_the_same_zoo_are_compared(predictor_folder, tmp_path):
    file = predictor_folder / "result.json"
    for name, change in {
        "a": {}, "b": {"method": "unf"}, "c": {"zoo": {"recipe": "other", "seed": 1}},
        "d": {"zoo": {"recipe": "other", "seed": 1}}, "e": {"tested": [4, 3, 2, 1, 0]},
    }.items():  # fmt: skip
        altered(file, tmp_path / name / "result.json", lambda record, c=change: record.update(c))
    page = check(report.render(tmp_path))
    assert page.text.count("Test scores") == 5 + 2, "e was tested on others and is alone"
    assert "Zoo: recipe other, seed 1; 5 test networks." in page.text
    assert "can only be compared between predictors of the same zoo" in page.text
    shutil.rmtree(tmp_path / "c"), shutil.rmtree(tmp_path / "e"), shutil.rmtree(tmp_path / "d")
    assert "can only be compared" not in check(report.render(tmp_path)).text


def test_a_damaged_run_among_others_is_named(predictor_folder, comparison_file, tmp_path):
    shutil.copy(comparison_file, tmp_path)
    (copied(predictor_folder, tmp_path / "statnn") / "result.json").write_text("{")
    page = check(report.render(tmp_path))
    assert page.tags.count("section") == 1
    assert "Left out:" in page.text and "statnn/result.json: damaged" in page.text


def test_links_are_not_followed(comparison_file, tmp_path):
    (tmp_path / "run").mkdir()
    shutil.copy(comparison_file, tmp_path / "run")
    (tmp_path / "run" / "again").symlink_to(tmp_path)
    assert check(report.render(tmp_path)).tags.count("section") == 1


def test_an_unfinished_and_an_empty_zoo(zoo_folder, tmp_path):
    folder = copied(zoo_folder, tmp_path / "zoo")
    (folder / "status" / "c" / "1").unlink()
    page = check(report.render(folder))
    assert "16 of 32 networks are trained" in page.text
    assert "16 networks are missing" in page.text
    (folder / "status" / "c" / "0").unlink()
    assert "32 networks are missing" in check(report.render(folder)).text


def test_a_zoo_without_a_finite_measurement(zoo_folder, tmp_path):
    folder = copied(zoo_folder, tmp_path / "zoo")
    group = zarr.open_group(folder, mode="r+")
    group["success"][:], group["loss"][:] = np.nan, np.inf
    assert "31 values are not finite and left out." in check(report.render(folder)).text


def test_a_stopped_predictor(predictor_folder, tmp_path):
    folder = copied(predictor_folder, tmp_path / "statnn")
    (folder / "result.json").unlink()
    (folder / "config.toml").write_text('command = "predict train"\n')
    page = check(report.render(folder))
    assert "The training of StatNN was stopped." in page.text
    command = f"unf predict train --config {folder / 'config.toml'} --resume"
    assert command in page.words


def test_metrics_that_are_not_numbers(meta_folder, tmp_path):
    folder = copied(meta_folder, tmp_path / "meta")
    head = (folder / "metrics.csv").read_text().splitlines()[0]
    lines = [",".join([str(step), *["nan"] * head.count(",")]) for step in (1, 2)]
    (folder / "metrics.csv").write_text("\n".join([head, *lines]))
    page = check(report.render(folder))
    assert "2 of 6 meta-steps are done." in page.text and "Unfinished" in page.text


@pytest.mark.parametrize("name", ["meta", "predictor"])
def test_a_damaged_model_is_a_warning(name, meta_folder, predictor_folder, tmp_path):
    folder, file = {
        "meta": (meta_folder, "optimizer.safetensors"),
        "predictor": (predictor_folder, "model-0.safetensors"),
    }[name]
    folder = copied(folder, tmp_path / name)
    (folder / file).write_bytes((folder / file).read_bytes()[:-3])
    page = check(report.render(folder))
    assert f"{file} cannot be used" in page.text and page.tags.count("figure") >= 4


def test_curves_that_all_diverge(comparison, tmp_path):
    lost = Curves(*(np.full_like(x, np.nan) for x in comparison.curves["unf"]))
    file = tmp_path / "lost.json"
    file.write_text(
        dataclasses.replace(comparison, curves={"unf": lost}, notes={"unf": {}}).to_json()
    )
    assert "All networks diverge" in check(report.render(file)).text


@pytest.mark.nightly
def test_names_in_files_stay_text(zoo_folder, predictor_folder, meta_folder, comparison, tmp_path):
    curves = {HOSTILE: comparison.curves["unf"]}
    notes = {HOSTILE: {HOSTILE: HOSTILE}}
    whole = dataclasses.replace(
        comparison, task=HOSTILE, dataset=HOSTILE, curves=curves, notes=notes
    )
    (tmp_path / "a.json").write_text(whole.to_json())
    origin = {"method": HOSTILE, "device": HOSTILE, "zoo": {HOSTILE: HOSTILE}}
    result = predictor_folder / "result.json"
    for name in "be":
        altered(result, tmp_path / name / "result.json", lambda record: record.update(origin))
    config = copied(meta_folder, tmp_path / "c") / "config.json"
    words = {"kind": HOSTILE, "task": HOSTILE, HOSTILE: [HOSTILE]}
    altered(config, config, lambda record: record.update(words))
    options = '# </code></pre><script>alert(3)</script>\ncommand = "x; rm -rf /"'
    (tmp_path / "c" / "config.toml").write_text(options)
    copied(zoo_folder, tmp_path / "d")

    def rename(record):
        record["attributes"] |= {"recipe": HOSTILE, "config": {HOSTILE: HOSTILE}}

    altered(zoo_folder / "zarr.json", tmp_path / "d" / "zarr.json", rename)
    html = report.render(tmp_path)
    page = check(html)
    assert page.tags.count("section") == 5 and "Left out" not in page.text
    assert page.text.count("<script>alert(1)</script>") > 20
    assert options in page.words
    assert "unf 'x;' rm -rf / --config" in page.text, "quoted for the shell"
    html.encode()


def test_options_beside_a_run_are_shown_as_they_are(meta_folder, comparison_file, tmp_path):
    copied(meta_folder, tmp_path / "meta")
    shutil.copy(comparison_file, tmp_path / "mlp.json")
    for file in (tmp_path / "meta" / "config.toml", tmp_path / "mlp.json.config.toml"):
        file.write_text('command = "lopt x"\n[training]\nsteps = 3\n')
    for path in (tmp_path / "meta", tmp_path / "mlp.json"):
        page = check(report.render(path))
        assert 'command = "lopt x"\n[training]\nsteps = 3\n' in page.words
        assert "unf lopt x --config" in page.text and "--out ANOTHER" in page.text


def test_writing(comparison_file, tmp_path):
    shutil.copy(comparison_file, tmp_path / "mlp.json")
    assert report.write(tmp_path / "mlp.json") == tmp_path / "mlp.html"
    assert report.write(tmp_path) == tmp_path / "report.html"
    other = report.write(tmp_path / "mlp.json", tmp_path / "new" / "page.html")
    assert other.read_text() == (tmp_path / "mlp.html").read_text()
    assert [file.name for file in other.parent.iterdir()] == ["page.html"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (None, "", "nothing to report; expected a zoo, a predictor's training"),
        ("x.json", "{}", "nothing to report; expected a zoo"),
        ("x.json", "[1]", "nothing to report"),
        ("x.json", "{", "x.json: damaged"),
        ("x.json", "[" * 99999, "x.json: damaged"),
        ("x.json", '{"curves": 3, "horizon": 1}', "x.json: damaged .*not a comparison"),
        ("result.json", '{"method": "unf"}', "result.json: damaged .*; restore it, or run"),
        ("table1.json", '[{"method": 3}]', "table1.json: damaged"),
        ("zarr.json", "{}", "zarr.json"),
        ("config.json", '{"learning_rate": 1}', "nothing to report"),
    ],
)
def test_what_cannot_be_reported(tmp_path, name, content, message):
    if name:
        (tmp_path / name).write_text(content)
    path = tmp_path / name if name == "x.json" else tmp_path
    with pytest.raises(ReportError, match=message):
        report.render(path)


def test_what_is_not_there(tmp_path):
    with pytest.raises(ReportError, match="no such file or folder; expected a zoo"):
        report.write(tmp_path / "nothing")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "content", ["step,loss\n1,2\n3", "step,loss\n1,<b>", "", "a,b\n1,2\n", "step,loss\nnan,2\n"]
)
def test_damaged_metrics(meta_folder, tmp_path, content):
    shutil.copy(meta_folder / "config.json", tmp_path)
    (tmp_path / "metrics.csv").write_text(content)
    with pytest.raises(ReportError, match=r"metrics.csv: damaged .*; resume the meta-training"):
        report.render(tmp_path)


def test_too_many_runs_for_a_page(comparison_file, tmp_path):
    for i in range(41):
        shutil.copy(comparison_file, tmp_path / f"{i}.json")
    with pytest.raises(ReportError, match=r"more than 40 runs .*; report a part"):
        report.render(tmp_path)


ODD = (None, -1, 10**400, float("nan"), "<b>", [], {"a": [None]}, "\ud800", 1e308)


def oddly(rng, value):
    """A JSON value with one of its parts replaced by something odd."""
    if isinstance(value, dict | list) and value and rng.random() < 0.9:
        copy = value.copy()
        key = rng.choice(list(copy)) if isinstance(copy, dict) else rng.randrange(len(copy))
        copy[key] = oddly(rng, copy[key])
        return copy
    return rng.choice(ODD)


MORE = [pytest.param(seed, marks=pytest.mark.nightly) for seed in range(16, 200)]


@pytest.mark.parametrize("seed", [*range(16), *MORE])
def test_altered_files_give_a_page_or_an_error(
    seed, predictor_folder, meta_folder, comparison_file, tmp_path
):
    """Whatever is in a file, nothing but ReportError comes out, and pages are whole."""
    rng = random.Random(seed)
    kind = ("result.json", "config.json", "metrics.csv", "x.json")[seed % 4]
    for name in ("config.json", "metrics.csv"):
        shutil.copy(meta_folder / name, tmp_path)
    sources = {"result.json": predictor_folder / kind, "x.json": comparison_file}
    data = sources.get(kind, meta_folder / kind).read_bytes()
    if kind == "metrics.csv" or rng.random() < 0.3:
        place = rng.randrange(len(data))
        data = data[:place] + rng.choice([b"", rng.randbytes(3) + data[place + 3 :]])
    else:
        data = json.dumps(oddly(rng, json.loads(data))).encode()
    (tmp_path / kind).write_bytes(data)
    try:
        page = report.render(tmp_path / kind if kind == "x.json" else tmp_path)
    except ReportError:
        return
    check(page)
    assert page.encode()


@pytest.mark.nightly
def test_trained_layers_are_drawn(meta_folder, predictor_folder, tmp_path):
    """A heat map for each equivariant layer of an optimizer, or of the first predictor."""
    space = space_of({"w": ("a b", (4, 3)), "b": ("b", (3,))})
    copied(meta_folder, tmp_path / "meta")
    save(tmp_path / "meta" / "optimizer.safetensors", init_theta("unf", space, key=KEY))
    copied(predictor_folder, tmp_path / "predictor")
    model = InvariantUNF(space, 1, 1, key=KEY, num_layers=2, mlp_width=4)
    save_model(tmp_path / "predictor" / "model-0.safetensors", Fitted(model, loss="bce"))
    for name, layers in (("meta", 1), ("predictor", 2)):
        html = report.render(tmp_path / name)
        check(html)
        assert html.count("root mean square of their own coefficients:") == layers
        assert "cannot be used" not in html
    save(tmp_path / "meta" / "optimizer.safetensors", init_theta("sgdm", key=KEY))
    assert "root mean square of their own coefficients:" not in report.render(tmp_path / "meta")
