"""Building a zoo: the same from the same seed, through interruptions and damage."""

import dataclasses
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zarr

from tests.lab.zoos.tiny import CHUNK, MODELS, RECIPE, build_tiny, contents
from unf.lab.tasks._moons import TwoMoons
from unf.lab.zoos import SmallCNNZoo, TinyRNN, TwoMoonsZoo
from unf.lab.zoos import _build as build_module
from unf.lab.zoos._recipe import recipe_of
from unf.spec import SpecError
from unf.zoo import Status, Zoo, ZooError


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return build_tiny(tmp_path_factory.mktemp("zoo") / "whole")


@pytest.fixture
def copy(whole, tmp_path):
    shutil.copytree(whole.path, tmp_path / "zoo")
    return tmp_path / "zoo"


def test_everything_is_there(whole):
    assert whole.complete and whole.trained.tolist() == list(range(MODELS))
    assert {name: x.shape for name, x in whole.scores.items()} == {
        "success": (MODELS, 2),
        "loss": (MODELS, 2),
    }
    assert set(whole.settings["batch_size"]) == {2, 3}
    assert np.all(whole.settings["learning_rate"] >= 1e-4)
    weights = whole.weights(np.array([3, 9]))
    assert weights["encoder"]["hn"]["kernel"].shape == (2, 3, 3)
    assert repr(whole) == f"Zoo(tiny-rnn, 14 of 14 models, {str(whole.path)!r})"


def test_measurements_are_those_of_the_stored_weights(whole):
    weights = whole.weights()
    words = zarr.open_group(whole.path, mode="r")["seed"][:]
    for model in (0, MODELS - 1):
        params = jax.tree.map(lambda x, i=model: x[i], weights)
        key = jax.random.wrap_key_data(words[model])
        measure_key = jax.random.fold_in(jax.random.split(key, 4)[3], 0)
        measured = RECIPE.task.measure(params, (), key=measure_key)
        success, loss = (whole.scores[name][model, 0] for name in ("success", "loss"))
        assert success == pytest.approx(float(measured["success"]), abs=1e-6)
        assert loss == pytest.approx(float(measured["loss"]), rel=1e-4)


def test_another_tool_reads_it(whole):
    group = zarr.open_group(whole.path, mode="r")
    kernel = group["weights.encoder.hn.kernel"]
    assert kernel.shape == (MODELS, 3, 3) and kernel.chunks == (CHUNK, 3, 3)
    np.testing.assert_array_equal(kernel[:], whole.weights()["encoder"]["hn"]["kernel"])
    assert group.attrs["config"]["hidden"] == 3


def test_the_same_seed_gives_the_same_bytes(whole, tmp_path):
    assert contents(build_tiny(tmp_path / "again").path) == contents(whole.path)


def test_another_seed_gives_other_weights(whole, tmp_path):
    other = build_tiny(tmp_path / "other", seed=1)
    assert not np.array_equal(other.scores["loss"], whole.scores["loss"])


@pytest.mark.parametrize("stop_after", [0, 1, 3])
def test_an_interrupted_zoo_is_continued_to_the_same_bytes(
    whole, tmp_path, monkeypatch, stop_after
):
    trained, real = [], build_module.train_in_parts

    def interrupted(*arguments, **options):
        if len(trained) == stop_after:
            raise KeyboardInterrupt("by the test")
        trained.append(arguments)
        return real(*arguments, **options)

    monkeypatch.setattr(build_module, "train_in_parts", interrupted)
    with pytest.raises(KeyboardInterrupt, match="by the test"):
        build_tiny(tmp_path / "zoo")
    part = Zoo(tmp_path / "zoo")
    assert not part.complete and len(part.trained) == stop_after * CHUNK
    assert np.isnan(part.scores["success"][stop_after * CHUNK :]).all()
    assert "incomplete: rebuild the zoo with the same arguments and resume=True" in part.describe()
    stop_after = -1
    before = len(trained)
    build_tiny(tmp_path / "zoo", resume=True)
    assert len(trained) - before == 4 - part.trained.size // CHUNK, "finished models are kept"
    assert contents(tmp_path / "zoo") == contents(whole.path)


def test_resuming_a_finished_zoo_trains_nothing(copy, monkeypatch):
    monkeypatch.setattr(build_module, "train_in_parts", None)
    assert build_tiny(copy, resume=True).complete


def test_a_zoo_of_a_version_without_roles_is_continued(copy):
    file = copy / "zarr.json"
    group = json.loads(file.read_text())
    space = json.loads(group["attributes"]["space"])
    assert space.pop("roles")
    group["attributes"]["space"] = json.dumps(space)
    file.write_text(json.dumps(group))
    assert build_tiny(copy, resume=True).complete


@dataclasses.dataclass(frozen=True)
class Explosive(TwoMoons):
    """Networks with a large initial scale diverge."""

    def loss(self, params, batch):
        return super().loss(params, batch) * jnp.where(self.initial_scale > 0.8, jnp.nan, 1.0)


class Wild(TwoMoonsZoo):
    task = Explosive(width=2)


def test_diverged_models_are_kept_and_marked(tmp_path):
    zoo = build_tiny(tmp_path / "zoo", Wild(steps=2))
    wild = zoo.settings["initial_scale"] > 0.8
    np.testing.assert_array_equal(zoo.diverged, wild)
    assert zoo.complete and 0 < wild.sum() < MODELS
    np.testing.assert_array_equal(zoo.trained, np.flatnonzero(~wild))
    stored = zoo.weights(np.flatnonzero(wild))
    assert np.isnan(stored["b1"]).all()


CHUNK_FILE = "weights.encoder.hn.kernel/c/1/0/0"


def alter(path):
    data = bytearray(path.read_bytes())
    data[7] ^= 1
    path.write_bytes(bytes(data))


def truncate(path):
    path.write_bytes(path.read_bytes()[:20])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (alter, "models 4 to 7.*a chunk was altered"),
        (truncate, "models 4 to 7.*a chunk is damaged"),
        (lambda path: path.unlink(), "models 4 to 7.*a chunk is missing"),
        (lambda path: shutil.rmtree(path.parents[3]), "an array or a chunk is missing"),
    ],
)
def test_damage_is_found_and_repaired(whole, copy, damage, message):
    damage(copy / CHUNK_FILE)
    with pytest.raises(ZooError, match=message):
        Zoo(copy).weights()
    with pytest.raises(ZooError, match="resume=True, repair=True"):
        Zoo(copy).weights()
    if (copy / CHUNK_FILE).parents[3].exists():
        assert len(Zoo(copy).damage()) == 1
        assert Zoo(copy).weights(np.array([0, 8])) is not None, "other chunks can be read"
    build_tiny(copy, resume=True, repair=True)
    assert contents(copy) == contents(whole.path)


def test_a_damaged_status_is_found_and_repaired(whole, copy):
    alter(copy / "status/c/2")
    with pytest.raises(ZooError, match=r"status could not be read \(models 8 to 11\)"):
        Zoo(copy).status  # noqa: B018
    build_tiny(copy, resume=True, repair=True)
    assert contents(copy) == contents(whole.path)


def change_attributes(path, **changes):
    document = json.loads((path / "zarr.json").read_text())
    document["attributes"] |= changes
    (path / "zarr.json").write_text(json.dumps(document))


def test_another_format_is_refused(copy):
    change_attributes(copy, format=99)
    with pytest.raises(ZooError, match="a zoo of format 99; this version of unf reads formats 1"):
        Zoo(copy)


def test_a_weight_space_that_does_not_fit_is_refused(copy):
    change_attributes(copy, space=TinyRNN(hidden=4, digits=1).task.space.to_json())
    with pytest.raises(SpecError, match="the arrays do not fit the zoo's weight space"):
        Zoo(copy)


@pytest.mark.parametrize("text", ["", "[]", '{"attributes": 3}', '{"node_type": "group"}'])
def test_a_damaged_description_is_refused(copy, text):
    (copy / "zarr.json").write_text(text)
    with pytest.raises(ZooError, match="not the description of a zarr group"):
        Zoo(copy)


def test_an_incomplete_description_is_refused(copy):
    change_attributes(copy, space=None)
    with pytest.raises(ZooError, match="the zoo's description is incomplete"):
        Zoo(copy)


def test_weights_that_are_not_finite_though_marked_as_trained(whole, copy):
    """E.g. written by another tool: the checksum is right, the number is not."""
    zarr.open_group(copy, mode="r+")["weights.output.bias"][5] = np.nan
    with pytest.raises(ZooError, match="of model 5 is not finite although it is marked"):
        Zoo(copy).weights()
    assert len(Zoo(copy).damage()) == 1
    build_tiny(copy, resume=True, repair=True)
    assert contents(copy) == contents(whole.path)


def test_repairing_is_safe_from_crashes(copy, monkeypatch):
    """While a chunk is trained anew it is not marked as finished."""
    alter(copy / CHUNK_FILE)

    def crash(*arguments, **options):
        raise RuntimeError("power failure")

    monkeypatch.setattr(build_module, "train_in_parts", crash)
    with pytest.raises(RuntimeError, match="power failure"):
        build_tiny(copy, resume=True, repair=True)
    assert Zoo(copy).trained.tolist() == [i for i in range(MODELS) if i not in range(4, 8)]


def test_models_are_chosen_by_number_or_truth_value(whole):
    third = whole.weights(np.arange(MODELS) == 3)["output"]["bias"]
    np.testing.assert_array_equal(third, whole.weights(np.array([3]))["output"]["bias"])
    for rows in (np.array([MODELS]), np.array([-1]), np.array([True])):
        with pytest.raises(ZooError, match="rows are numbers of models from 0 to 13"):
            whole.weights(rows)


def test_automatic_options_are_those_of_the_zoo(copy):
    """A zoo built on a GPU is opened again on a CPU."""
    open_ended = dataclasses.replace(RECIPE, dtype="auto")
    assert build_tiny(copy, open_ended, chunk=None, resume=True).complete


def test_models_are_divided_at_random(whole):
    split = whole.split((8, 3, 3), seed=1)
    assert sorted(np.concatenate(split)) == list(range(MODELS))
    assert [len(part) for part in split] == [8, 3, 3]
    assert split.train.tolist() == whole.split((8, 3, 3), seed=1).train.tolist()
    with pytest.raises(ZooError, match=r"14 usable models cannot be divided into \(12, 1, 1\)"):
        whole.split()


def test_no_zoo(tmp_path):
    with pytest.raises(ZooError, match="no zoo here"):
        Zoo(tmp_path)


def test_a_zoo_is_not_overwritten(copy):
    with pytest.raises(ZooError, match="there is a zoo already; continue it with resume=True"):
        build_tiny(copy)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": 1}, "built with seed = 0, not 1"),
        ({"models": 15}, "built with models = 14, not 15"),
        ({"chunk": 2}, "built with chunk = 4, not 2"),
        ({"recipe": TinyRNN(hidden=4)}, "built with "),
    ],
)
def test_a_zoo_is_resumed_with_its_own_options(copy, options, message):
    with pytest.raises(ZooError, match=message):
        build_tiny(copy, **options, resume=True)


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "zoo").write_text("")
    with pytest.raises(ZooError, match="a file, not a folder"):
        build_tiny(tmp_path / "zoo")


@pytest.mark.parametrize("options", [{"models": 0}, {"chunk": 0}, {"seed": -1}])
def test_invalid_numbers(tmp_path, options):
    with pytest.raises(ZooError, match="expected at least 1, 1 and 0"):
        build_tiny(tmp_path / "zoo", **options)


def test_too_small_a_disk_is_noticed_before_training(small_disk):
    large = TinyRNN(hidden=64, digits=1, steps=1, problems=1)
    with pytest.raises(ZooError, match=r"the disk has .* GiB free and the remaining models need"):
        build_tiny(small_disk / "zoo", large)


def test_a_disk_that_fills_up(whole, small_disk):
    """What was stored before stays; with room again, the zoo is continued to the same bytes."""
    build_module._prepare(_store_at(small_disk / "zoo"), RECIPE, 0, False, False)
    free = shutil.disk_usage(small_disk).free
    (small_disk / "filler").write_bytes(b"x" * (free - 4096 * 24))
    with pytest.raises(ZooError, match="the disk is full; free some space, then rebuild"):
        build_tiny(small_disk / "zoo", resume=True)
    part = Zoo(small_disk / "zoo")
    assert not part.complete
    part.weights()
    (small_disk / "filler").unlink()
    build_tiny(small_disk / "zoo", resume=True)
    assert contents(small_disk / "zoo") == contents(whole.path)


def _store_at(path):
    return build_module.Store(path, MODELS, CHUNK)


def test_the_second_zoo_is_built_by_the_same_machinery(tmp_path):
    zoo = build_tiny(tmp_path / "zoo", SmallCNNZoo(channels=2, steps=3, batch_sizes=(4,)), models=5)
    assert zoo.complete and recipe_of(zoo) == SmallCNNZoo(channels=2, steps=3, batch_sizes=(4,))
    assert set(zoo.settings) == {
        "batch_size", "learning_rate", "initial_scale", "dropout", "weight_decay", "data_fraction",
    }  # fmt: skip
    assert zoo.status.tolist() == [Status.TRAINED] * 5
