"""`unf zoo import`, every command on its zoo, and `unf zoo build` with a user's recipe."""

import csv
import dataclasses
import io
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.lab.cli.test_commands import run
from unf.lab.cli._network import load_example
from unf.lab.predict import METHODS
from unf.models import Probe, StatNN
from unf.zoo import Zoo

MODELS = 40
SOURCE = """
from dataclasses import dataclass

import jax, jax.numpy as jnp
from unf import WeightSpace
from unf.lab import zoos

SHAPES = {"w0": jnp.zeros((2, 3)), "w1": jnp.zeros(3)}

def network(params, x):
    return jnp.tanh(x @ params["w0"]) @ params["w1"]

def example():
    return network, SHAPES, jax.ShapeDtypeStruct((1, 2), "float32")

def in_a_dict():
    return lambda params, x, mask: network(params, x["a"]), SHAPES, {"a": jnp.zeros((1, 2))}, None

def of_one_input():
    return lambda params, x: network(params, x[0])[None], SHAPES, jnp.zeros((1, 2))

def of_a_fixed_batch():
    return lambda params, x: network(params, x) + jnp.ones(3), SHAPES, jnp.zeros((3, 2))

def with_values():
    return network, SHAPES, 5 + jnp.arange(24, dtype=jnp.float32).reshape(12, 2)

def wider():
    return network, {"w0": jnp.zeros((2, 4)), "w1": jnp.zeros(4)}, jnp.zeros((1, 2))

def of_whole_numbers():
    return lambda params, x: network(params, x + 0.0), SHAPES, jnp.zeros((1, 2), "int32")

def written():
    return WeightSpace.from_spec({"w0": "[in] hidden"}, {"w0": SHAPES["w0"]})

@dataclass(frozen=True)
class Moons(zoos.TwoMoonsZoo):
    '''Moons of mine.'''

    name = "my-moons"

    steps: int = 3
    sweetness: float = 0.5
    '''How sweet they are.'''

class Undecorated(zoos.TwoMoonsZoo):
    name = "undecorated"

@dataclass(frozen=True)
class Clash(zoos.TwoMoonsZoo):
    name = "clash"
    models: int = 5
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A user's folder: a module, networks, scores; one network has diverged."""
    folder = tmp_path_factory.mktemp("users")
    (folder / "users_nets.py").write_text(SOURCE)
    (folder / "nets").mkdir()
    rng = np.random.default_rng(0)
    lines = ["file,accuracy,accuracy_again,steps,optimizer,rate"]
    for i in range(MODELS):
        arrays = {"w0": rng.normal(size=(2, 3)), "w1": rng.normal(size=3)}
        if i == 7:
            arrays["w1"][0] = np.nan
        np.savez(folder / "nets" / f"{i}.npz", **arrays)
        score, again = rng.random(2)
        lines.append(f"{i},{score},{again},{100 * i},{('adam', 'sgd')[i % 2]},{rng.random()}")
    (folder / "scores.csv").write_text("\n".join(lines) + "\n")
    return folder


def importing(folder, out, *options):
    network = "--network", f"{folder}/users_nets.py:example"
    options = options or ("--settings", "optimizer,rate")
    return run("zoo", "import", folder / "nets", "--scores", folder / "scores.csv", *network,
               "--out", out, "--quiet", *options)  # fmt: skip


@pytest.fixture
def small_predictors(monkeypatch):
    """Predictors that are compiled quickly."""

    def make(problem, key):
        return StatNN(problem.space, 1, problem.out_size, key=key, mlp_width=8, mlp_layers=2)

    def make_probe(problem, key):
        network = problem.network
        start = network.start and network.start(4, key=key)
        return Probe(
            network.fn, problem.space, network.input_shape, problem.out_size, key=key,
            num_probes=4, scale=network.scale, start=start, mlp_width=8, mlp_layers=2,
        )  # fmt: skip

    monkeypatch.setitem(METHODS, "statnn", dataclasses.replace(METHODS["statnn"], make=make))
    monkeypatch.setitem(METHODS, "probe", dataclasses.replace(METHODS["probe"], make=make_probe))


@pytest.fixture(scope="module")
def zoo(folder):
    assert importing(folder, folder / "zoo") == 0
    return folder / "zoo"


def test_info(zoo, capsys, tmp_path):
    assert run("zoo", "info", zoo, "--check", "--csv", tmp_path / "zoo.csv") == 0
    printed = capsys.readouterr().out
    assert "imported zoo in" in printed and "40 of 40 models, 1 diverged" in printed
    assert "settings: optimizer, rate" in printed and "0 damaged chunks" in printed
    rows = list(csv.DictReader((tmp_path / "zoo.csv").read_text().splitlines()))
    given = list(csv.DictReader((zoo.parent / "scores.csv").read_text().splitlines()))
    assert [row["status"] for row in rows].count("diverged") == 1
    for row, expected in zip(rows, given, strict=True):
        assert row["optimizer"] == expected["optimizer"] and row["steps"] == expected["steps"]
        for name in ("accuracy", "accuracy_again", "rate"):
            assert float(row[name]) == pytest.approx(float(expected[name]), rel=1e-5)
    assert run("zoo", "info", zoo, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["diverged"] == 1 and list(facts["quantiles"]) == ["accuracy", "steps"]


def test_what_info_writes_can_be_imported_again(zoo, folder, tmp_path, capsys):
    assert run("zoo", "info", zoo, "--csv", tmp_path / "again.csv") == 0
    options = ("--scores", tmp_path / "again.csv", "--settings", "status,optimizer,rate")
    assert importing(folder, tmp_path / "zoo", *options) == 0
    again, first = Zoo(tmp_path / "zoo"), Zoo(zoo)
    np.testing.assert_allclose(again.scores["accuracy"], first.scores["accuracy"], rtol=1e-5)
    np.testing.assert_array_equal(again.weights()["w0"], first.weights()["w0"])


def test_plot_and_report(zoo, tmp_path, capsys):
    assert run("zoo", "plot", zoo, "--out", tmp_path / "zoo.png") == 0
    assert (tmp_path / "zoo.png").read_bytes().startswith(b"\x89PNG")
    assert run("report", zoo, "--out", tmp_path / "zoo.html") == 0
    page = (tmp_path / "zoo.html").read_text()
    assert "Half of them have accuracy between" in page and "Accuracy against optimizer" in page
    assert "Two measurements of the same networks" in page and "zoo import" in page


@pytest.mark.usefixtures("small_predictors")
def test_predict(zoo, tmp_path, capsys):
    out = tmp_path / "statnn"
    words = ["--method", "statnn", "--seeds", 1, "--epochs", 1, "--quiet", "--out", out]
    assert run("predict", "train", "--zoo", zoo, *words) == 0
    printed = capsys.readouterr().out
    assert "test–retest agreement" in printed and "training settings" in printed
    assert json.loads((out / "result.json").read_text())["score"] == "accuracy"
    assert run("predict", "apply", "--checkpoint", out, "--zoo", zoo) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    measured = Zoo(zoo).scores["accuracy"][:, 0]
    assert len(rows) == MODELS - 1
    for row in rows:
        assert float(row["measured"]) == pytest.approx(measured[int(row["model"])], abs=1e-6)
    assert {row["split"] for row in rows} == {"train", "valid", "test"}
    assert run("report", out) == 0
    assert "predictor of accuracy" in (out / "report.html").read_text()


@pytest.mark.usefixtures("small_predictors")
def test_predict_a_single_measurement_without_settings(zoo, tmp_path, capsys):
    first = Zoo(zoo)
    scores = {"steps": first.scores["steps"], "share": first.scores["steps"] / 4000}
    other = Zoo.from_arrays(first.weights(np.arange(MODELS)), scores, first.space)
    other.save(tmp_path / "zoo")
    out = tmp_path / "statnn"
    words = ["--method", "statnn", "--seeds", 1, "--epochs", 1, "--quiet", "--out", out]
    assert run("predict", "train", "--zoo", tmp_path / "zoo", "--score", "share", *words) == 0
    printed = capsys.readouterr().out
    assert "StatNN: τ" in printed and "None" not in printed
    assert "retest" not in printed and "settings" not in printed
    assert run("predict", "apply", "--checkpoint", out, "--zoo", zoo) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {(row["measured"], row["split"]) for row in rows} == {("", "")}
    assert run("report", out) == 0
    page = (out / "report.html").read_text()
    assert "predictor of share" in page and "retest" not in page and "nan" not in page
    assert run("zoo", "plot", tmp_path / "zoo") == 0


@pytest.mark.usefixtures("small_predictors")
def test_probes_run_networks_that_the_user_names(zoo, folder, tmp_path, capsys):
    """Probes of one zoo, applied to it with and without saying how to run the networks."""
    network = "--network", f"{folder}/users_nets.py:with_values"
    words = ["--method", "probe", "--seeds", 1, "--epochs", 1, "--quiet"]
    out = tmp_path / "probe"
    assert run("predict", "train", "--zoo", zoo, *words, *network, "--out", out) == 0
    config = (out / "config.toml").read_text()
    assert 'network = "' in config and "users_nets.py:with_values" in config
    capsys.readouterr()
    assert run("predict", "apply", "--checkpoint", out, "--zoo", zoo, *network) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == MODELS - 1 and all(0 < float(row["predicted"]) < 1 for row in rows)
    alone = shutil.copy(out / "model-0.safetensors", tmp_path)
    assert run("predict", "apply", "--checkpoint", alone, "--zoo", zoo, *network) == 0
    again = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["predicted"] for row in again] == [row["predicted"] for row in rows]
    other = "--network", f"{folder}/users_nets.py:example"
    assert run("predict", "train", "--zoo", zoo, *words, *other, "--out", out, "--resume") == 1
    assert "network" in capsys.readouterr().err
    assert run("predict", "train", "--zoo", zoo, *words, *network, "--out", out, "--resume") == 0
    capsys.readouterr()
    assert run("predict", "apply", "--checkpoint", out, "--zoo", zoo) == 1
    assert "nothing says how to run those of this zoo (imported); pass --network" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("target", "method", "message"),
    [
        ("wider", "probe", "than the zoo's: 'w0' has shape (2, 3), expected (2, 4)"),
        ("of_whole_numbers", "probe", "one input, a batch of floating-point numbers; it has int32"),
        ("of_a_fixed_batch", "probe", "does not run on 128 inputs at once (TypeError"),
        ("of_one_input", "probe", "expected: arrays with 128 outputs along their first axis"),
        ("written", "probe", "returned a WeightSpace, without a network to run"),
        ("example", "statnn", "'statnn' does not run networks; leave out --network"),
    ],
)  # fmt: skip
def test_networks_that_cannot_be_probed(zoo, folder, tmp_path, capsys, target, method, message):
    words = ["--method", method, "--out", tmp_path / "x", "--quiet"]
    network = "--network", f"{folder}/users_nets.py:{target}"
    assert run("predict", "train", "--zoo", zoo, *words, *network) == 1
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_probes_start_near_inputs_with_values(folder, zoo):
    for target, near in (("with_values", True), ("example", False)):
        example = load_example(f"{folder}/users_nets.py:{target}")
        runnable = example.runnable(Zoo(zoo).space)
        assert (runnable.start is not None) == near and runnable.input_shape == (2,)
    nested = load_example(f"{folder}/users_nets.py:in_a_dict").runnable(Zoo(zoo).space)
    given = load_example(f"{folder}/users_nets.py:with_values")
    runnable = given.runnable(Zoo(zoo).space)
    drawn = runnable.start(30, key=jax.random.key(0))
    found, inputs = ({tuple(row) for row in np.asarray(x)} for x in (drawn, given.inputs[0]))
    assert found <= inputs and len(found) > 5
    params = jax.tree.map(lambda x: jnp.asarray(x[0]), Zoo(zoo).weights([3]))
    for each in (runnable, nested):
        np.testing.assert_allclose(each.fn(params, drawn), given.function(params, drawn), rtol=1e-6)


def test_a_score_that_the_zoo_does_not_have(zoo, tmp_path, capsys):
    words = ["--method", "statnn", "--score", "loss", "--out", tmp_path / "x"]
    assert run("predict", "train", "--zoo", zoo, *words) == 1
    message = "no score 'loss'; expected one of ['accuracy', 'steps', 'optimizer']"
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_configuration_and_json(zoo, folder, tmp_path, capsys):
    config = (zoo / "config.toml").read_text()
    assert 'command = "zoo import"' in config and 'settings = ["optimizer", "rate"]' in config
    words = ["--config", zoo / "config.toml", "--out", tmp_path / "again", "--json", "--quiet"]
    assert run("zoo", "import", *words) == 0
    assert json.loads(capsys.readouterr().out)["digest"] == Zoo(zoo).origin["digest"]


def test_a_weight_space_of_the_users_own(folder, tmp_path, capsys):
    network = f"{folder}/users_nets.py:written"
    assert importing(folder, tmp_path / "zoo", "--network", network, "--settings", "optimizer") == 0
    assert list(Zoo(tmp_path / "zoo").weights()) == ["w0"]
    assert run("spec", network) == 0
    assert run("spec", network, "--verify") == 1
    assert "returned a WeightSpace, without a network to run" in capsys.readouterr().err


def test_problems_leave_nothing(folder, zoo, tmp_path, capsys):
    copy = tmp_path / "users"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("zoo"))
    np.savez(copy / "nets" / "3.npz", w0=np.ones((2, 4)), w1=np.ones(3))
    before = sorted(copy.rglob("*"))
    assert importing(copy, copy / "zoo") == 1
    message = capsys.readouterr().err
    assert "1 problem:" in message and "'w0' has shape (2, 4), expected (2, 3)" in message
    assert sorted(path for path in copy.rglob("*") if "__pycache__" not in str(path)) == before
    assert importing(folder, zoo) == 1
    assert "there is a zoo already; choose another folder" in capsys.readouterr().err


def test_an_interrupted_import_leaves_nothing(folder, tmp_path, capsys, monkeypatch):
    def stop(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("unf.zoo._store.Store.write", stop)
    assert importing(folder, tmp_path / "zoo") == 130
    assert not list(tmp_path.iterdir())


# --- recipes of users ----------------------------------------------------------------------


def test_a_recipe_of_the_users_own(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    assert run("zoo", "build", "users_nets:Moons", "--help") == 0
    printed = capsys.readouterr().out
    assert "Moons of mine." in printed and "How sweet they are. (default: 0.5)" in printed
    out = tmp_path / "zoo"
    words = ["zoo", "build", "users_nets.py:Moons", "--out", out, "--models", 4, "--quiet"]
    assert run(*words, "--sweetness", 0.7) == 0
    assert run("zoo", "build", "users_nets.py:Moons", "--config", out / "config.toml",
               "--resume", "--quiet") == 0  # fmt: skip
    opened = Zoo(out)
    assert opened.complete and opened.kind == "my-moons" and opened.config["sweetness"] == 0.7
    capsys.readouterr()
    assert run("zoo", "info", out) == 0 and "my-moons zoo" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (
            "users_nets:Nothing",
            "no recipe 'Nothing', a subclass of unf.lab.zoos.Recipe; it has M",
        ),
        ("users_nets:network", "no recipe 'network', a subclass of unf.lab.zoos.Recipe"),
        ("users_nets:Undecorated", "is not a dataclass; put @dataclass(frozen=True) above it"),
        ("users_nets:Clash", "'models' is an option of unf zoo build; rename it"),
        ("no_such_module:Moons", "no module 'no_such_module'"),
        ("users_nets:", "does not name a recipe"),
    ],
)
def test_recipes_that_cannot_be_used(folder, tmp_path, capsys, monkeypatch, target, message):
    monkeypatch.chdir(folder)
    assert run("zoo", "build", target, "--out", tmp_path / "zoo") == 1
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
