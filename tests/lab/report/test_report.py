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

from tests.lab.faults.mutations import changed_bytes, changed_json, dumps
from tests.lab.report.pages import check
from tests.laws.architectures import space_of
from unf.lab import report
from unf.lab.lopt import Comparison, Curves
from unf.lab.report import ReportError
from unf.models import InvariantUNF, save_model
from unf.optim import init_theta, save
from unf.zoo import Zoo

HOSTILE = "\"><script>alert(1)</script><img src=x onerror=alert(2)>&amp;'\x00\x1b\ud800é"


KEY = jax.random.key(0)


def altered(source, target, change):
    """A copy of a JSON file with something changed in it."""
    record = json.loads(source.read_text())
    change(record)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(record))
    return target


def test_pages_are_whole_and_need_nothing_else(run):
    html = report.render(run)
    assert check(html).tags.count("svg") >= 2
    assert report.render(run) == html


def test_a_zoo_has_the_figures_of_its_arrays(zoo_folder):
    zoo, page = Zoo(zoo_folder), check(report.render(zoo_folder))
    success = zoo.success[zoo.trained, 0]
    assert f"The median network succeeds at {np.median(success):.1%}" in page.text
    assert "32 of 32 networks are trained, of which 1 diverged" in page.text
    for level in (0, 0.25, 0.95, 1):
        assert f"{np.quantile(success, level):.4g}" in page.words
    assert "decoder/hn/kernel" in page.words, "the weight space is drawn"
    command = "unf zoo build tiny-rnn --models 32 --seed 0 --steps 0 --batch-sizes 2,3"
    assert command in page.text


def test_a_predictor_has_the_scores_of_its_result(predictor_folder):
    page = check(report.render(predictor_folder))
    result = json.loads((predictor_folder / "result.json").read_text())
    for name in ("tau", "r2", "best_valid_tau"):
        assert {f"{x:.4f}" for x in result[name]} <= set(page.words)
    for row in result["losses"]:
        assert {f"{x:.4f}" for x in row} <= set(page.words)
    assert f"{result['tau_mean']:.4f} ± {result['tau_standard_error']:.4f}" in page.text
    assert f"device {result['device']}" in page.text
    assert "--method statnn --seeds 2 --seed 0 --split 20,6,5 --epochs 2" in page.text


def test_a_meta_training_has_the_figures_of_its_metrics(meta_folder):
    page = check(report.render(meta_folder))
    with (meta_folder / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {f"{float(row['loss']):.5g}" for row in rows} <= set(page.words)
    assert "6 of 6 meta-steps are done" in page.text and "Unfinished" not in page.text
    assert f"loss of {float(rows[-1]['loss']):.4f} over the last tenth" in page.text
    assert "task.hidden" in page.text and "hidden (3,)" not in page.text


def test_a_comparison_ranks_optimizers_and_counts_the_lost(comparison, comparison_file):
    page = check(report.render(comparison_file))
    last = comparison.curves["unf"].last
    error = last.std(ddof=1) / 3**0.5
    assert f"UNF ends with the lowest training loss, {last.mean():.4f} ± {error:.4f}" in page.text
    assert "1 of 3" in page.words, "networks that diverged"
    lost = int(np.isnan(comparison.curves["adam"].train).sum())
    assert f"{lost} of {6 * comparison.curves['adam'].train.shape[1]:,} losses are not" in page.text
    assert "diverge with Adam, tuned" in page.text


def test_one_page_for_several_runs(several):
    page = check(report.render(several))
    assert "5 runs" in page.text and page.tags.count("section") == 5
    for name in ("zoo", "statnn", "mlp/unf", "mlp.json"):
        assert name in page.words
    assert "Predictors compared" in page.words


def test_a_damaged_run_among_others_is_named(several, tmp_path):
    folder = tmp_path / "several"
    shutil.copytree(several, folder)
    (folder / "statnn" / "result.json").write_text("{")
    page = check(report.render(folder))
    assert page.tags.count("section") == 4
    assert "statnn/result.json: damaged, not JSON" in page.text


def test_links_are_not_followed(comparison_file, tmp_path):
    (tmp_path / "run").mkdir()
    shutil.copy(comparison_file, tmp_path / "run")
    (tmp_path / "run" / "again").symlink_to(tmp_path)
    assert check(report.render(tmp_path)).tags.count("section") == 1


def test_an_unfinished_and_an_empty_zoo(zoo_folder, tmp_path):
    folder = tmp_path / "zoo"
    shutil.copytree(zoo_folder, folder)
    (folder / "status" / "c" / "1").unlink()
    page = check(report.render(folder))
    assert "16 of 32 networks are trained" in page.text
    assert "16 networks are missing" in page.text
    (folder / "status" / "c" / "0").unlink()
    page = check(report.render(folder))
    assert "nothing to measure yet" in page.text and "32 networks are missing" in page.text


def test_a_zoo_without_a_sound_measurement(zoo_folder, tmp_path):
    folder = tmp_path / "zoo"
    shutil.copytree(zoo_folder, folder)
    group = zarr.open_group(folder, mode="r+")
    group["success"][:], group["loss"][:] = np.nan, np.inf
    assert "31 values left out: not finite" in check(report.render(folder)).text


def test_an_unfinished_predictor(predictor_folder, tmp_path):
    folder = tmp_path / "statnn"
    shutil.copytree(predictor_folder, folder)
    (folder / "result.json").unlink()
    page = check(report.render(folder))
    assert "StatNN is trained for 2 of 2 epochs" in page.text and "--resume" in page.text
    losses = json.loads((predictor_folder / "result.json").read_text())["losses"]
    assert f"{losses[1][0]:.4f}" in page.words


def test_one_epoch(predictor_folder, tmp_path):
    def shorten(record):
        record |= {name: record[name][:1] for name in ("losses", "valid_tau")}

    file = altered(predictor_folder / "result.json", tmp_path / "one" / "result.json", shorten)
    page = check(report.render(file.parent))
    assert page.tags.count("figure") == 4 and "Epoch by epoch" in page.text


def test_metrics_that_are_not_numbers(meta_folder, tmp_path):
    folder = tmp_path / "meta"
    shutil.copytree(meta_folder, folder)
    head = (folder / "metrics.csv").read_text().splitlines()[0]
    lines = [",".join([str(step), *["nan"] * head.count(",")]) for step in (1, 2)]
    (folder / "metrics.csv").write_text("\n".join([head, *lines]))
    page = check(report.render(folder))
    assert "No losses yet" in page.text and "2 of 6 meta-steps are done." in page.text
    assert "Unfinished" in page.text and "--resume" in page.text
    (folder / "metrics.csv").unlink()
    assert "0 of 6 meta-steps are done." in check(report.render(folder)).text


def test_lost_runs_are_summed_where_they_are_numbers(meta_folder, tmp_path):
    shutil.copy(meta_folder / "config.json", tmp_path)
    lines = ["step,loss,lost", "1,2,3", "2,nan,inf", "6,2,4"]
    (tmp_path / "metrics.csv").write_text("\n".join(lines))
    page = check(report.render(tmp_path))
    assert "7 pairs of runs exploded" in page.text
    assert "1 value left out: not finite." in page.text


def test_a_damaged_optimizer_is_a_warning(meta_folder, tmp_path):
    folder = tmp_path / "meta"
    shutil.copytree(meta_folder, folder)
    file = folder / "optimizer.safetensors"
    file.write_bytes(file.read_bytes()[:-3])
    assert "The optimizer's file cannot be used" in check(report.render(folder)).text


def test_curves_that_all_diverge(comparison, tmp_path):
    lost = Curves(*(np.full_like(x, np.nan) for x in comparison.curves["unf"]))
    file = tmp_path / "lost.json"
    file.write_text(
        dataclasses.replace(comparison, curves={"unf": lost}, notes={"unf": {}}).to_json()
    )
    assert "All of them diverge" in check(report.render(file)).text


def test_names_in_files_stay_text(zoo_folder, predictor_folder, meta_folder, comparison, tmp_path):
    curves = {HOSTILE: comparison.curves["unf"]}
    notes = {HOSTILE: {HOSTILE: HOSTILE}}
    whole = dataclasses.replace(
        comparison, task=HOSTILE, dataset=HOSTILE, curves=curves, notes=notes
    )
    (tmp_path / "a.json").write_text(whole.to_json())
    origin = {"method": HOSTILE, "device": HOSTILE, "zoo": {HOSTILE: HOSTILE}}
    altered(
        predictor_folder / "result.json",
        tmp_path / "b" / "result.json",
        lambda record: record.update(origin),
    )
    shutil.copytree(meta_folder, tmp_path / "c")
    words = {"kind": HOSTILE, "task": HOSTILE, HOSTILE: [HOSTILE]}
    config = tmp_path / "c" / "config.json"
    altered(config, config, lambda record: record.update(words))
    (tmp_path / "c" / "config.toml").write_text("# </code></pre><script>alert(3)</script>")
    shutil.copytree(zoo_folder, tmp_path / "d")

    def rename(record):
        about = record["attributes"]
        about |= {"recipe": HOSTILE, "config": {HOSTILE: HOSTILE}}

    altered(zoo_folder / "zarr.json", tmp_path / "d" / "zarr.json", rename)
    html = report.render(tmp_path)
    page = check(html)
    assert page.tags.count("section") == 4 and "Left out" not in page.text
    assert page.text.count("<script>alert(1)</script>") > 20
    assert "# </code></pre><script>alert(3)</script>" in page.words
    html.encode()


def test_commands_are_only_shown_if_every_word_is_known(meta_folder, tmp_path):
    folder = tmp_path / "meta"
    shutil.copytree(meta_folder, folder)
    file = folder / "config.json"
    known = {"task.hidden": [32], "task.batch_size": 128}
    altered(file, file, lambda record: record.update(known))
    command = "unf lopt train --task mlp --optimizer unf --dataset digits"
    assert command in check(report.render(folder)).text
    altered(file, file, lambda record: record.update({"task.dataset": "x; rm -rf /"}))
    assert "--dataset 'x; rm -rf /'" in check(report.render(folder)).text
    altered(file, file, lambda record: record.update({"task.hidden": [1, 2]}))
    assert "unf lopt train" not in check(report.render(folder)).text


def test_options_beside_a_run_are_shown_as_they_are(meta_folder, comparison_file, tmp_path):
    shutil.copytree(meta_folder, tmp_path / "meta")
    shutil.copy(comparison_file, tmp_path / "mlp.json")
    for file in (tmp_path / "meta" / "config.toml", tmp_path / "mlp.json.config.toml"):
        file.write_text('command = "x"\n[training]\nsteps = 3\n')
    for path in (tmp_path / "meta", tmp_path / "mlp.json"):
        assert 'command = "x"\n[training]\nsteps = 3\n' in check(report.render(path)).words


def test_writing(comparison_file, meta_folder, tmp_path):
    shutil.copy(comparison_file, tmp_path / "mlp.json")
    shutil.copytree(meta_folder, tmp_path / "meta")
    assert report.write(tmp_path / "mlp.json") == tmp_path / "mlp.html"
    assert report.write(tmp_path / "meta") == tmp_path / "meta" / "report.html"
    other = report.write(tmp_path / "meta", tmp_path / "new" / "page.html")
    assert other.read_text() == (tmp_path / "meta" / "report.html").read_text()
    assert [file.name for file in other.parent.iterdir()] == ["page.html"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (None, "", "nothing here that can be reported; expected a zoo, a predictor's training"),
        ("x.json", "{}", "nothing here that can be reported; expected a zoo"),
        ("x.json", "[1]", "JSON, but not of a run of unf"),
        ("x.json", "{", "x.json: damaged, not JSON"),
        ("x.json", "[" * 9999, "x.json: damaged, not JSON"),
        ("x.json", '{"curves": 3, "horizon": 1}', "damaged comparison .*; evaluate again"),
        ("result.json", '{"method": "unf"}', "damaged result .*; train again"),
        ("zarr.json", "{}", "a zoo that cannot be read: .*zarr.json"),
        ("config.json", '{"learning_rate": 1}', "nothing here that can be reported"),
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
    ("content", "message"),
    [
        ("step,loss\n1,2\n3", "damaged metrics .*; go on with --resume"),
        ("step,loss\n1,<b>", "damaged metrics"),
        ("", "damaged metrics"),
        ("a,b\n1,2\n", "no steps or losses"),
        ("step,loss\nnan,2\n", "no steps or losses"),
    ],
)
def test_damaged_metrics(meta_folder, tmp_path, content, message):
    shutil.copy(meta_folder / "config.json", tmp_path)
    (tmp_path / "metrics.csv").write_text(content)
    with pytest.raises(ReportError, match=message):
        report.render(tmp_path)


def test_too_many_runs_for_a_page(comparison_file, tmp_path):
    for i in range(41):
        shutil.copy(comparison_file, tmp_path / f"{i}.json")
    with pytest.raises(ReportError, match=r"more than 40 runs .*; report a part of it"):
        report.render(tmp_path)


@pytest.mark.parametrize("seed", range(100))
def test_altered_files_give_a_page_or_an_error(
    seed, predictor_folder, meta_folder, comparison_file, tmp_path
):
    """Whatever is in a file, nothing but ReportError comes out, and pages are whole."""
    rng = random.Random(seed)
    kind = ("result.json", "config.json", "metrics.csv", "x.json")[seed % 4]
    shutil.copy(meta_folder / "config.json", tmp_path)
    sources = {"result.json": predictor_folder / kind, "x.json": comparison_file}
    data = sources.get(kind, meta_folder / kind).read_bytes()
    if kind == "metrics.csv" or rng.random() < 0.3:
        data = changed_bytes(rng, data)
    else:
        data = dumps(changed_json(rng, json.loads(data))).encode("utf-8", "surrogatepass")
    (tmp_path / kind).write_bytes(data)
    try:
        page = report.render(tmp_path / kind if kind == "x.json" else tmp_path)
    except ReportError:
        return
    check(page)
    page.encode()


def test_comparisons_are_read_as_they_were_written(comparison_file):
    """So that the fixture is what `unf lopt eval` writes."""
    assert Comparison.from_json(comparison_file.read_text()).horizon == 250


def test_trained_layers_are_drawn(meta_folder, predictor_folder, tmp_path):
    """A heat map for each equivariant layer of an optimizer, or of the first predictor."""
    space = space_of({"w": ("a b", (4, 3)), "b": ("b", (3,))})
    shutil.copytree(meta_folder, tmp_path / "meta")
    save(tmp_path / "meta" / "optimizer.safetensors", init_theta("unf", space, key=KEY))
    shutil.copytree(predictor_folder, tmp_path / "predictor")
    model = InvariantUNF(space, 1, 1, key=KEY, num_layers=2, mlp_width=4)
    save_model(tmp_path / "predictor" / "model-0.safetensors", model)
    for name, layers in (("meta", 1), ("predictor", 2)):
        html = report.render(tmp_path / name)
        check(html)
        assert html.count("strongest terms:") == layers
    save(tmp_path / "meta" / "optimizer.safetensors", init_theta("sgdm", key=KEY))
    assert "strongest terms:" not in report.render(tmp_path / "meta")
