"""Zoos of given networks: made from arrays, written, opened, and refused if something is wrong."""

import collections
import json
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unf.spec import SpecError, WeightSpace
from unf.testing import spaces
from unf.zoo import Status, Zoo, ZooError
from unf.zoo._store import Store

MODELS = 5


def networks(dtype=np.float32):
    rng = np.random.default_rng(0)
    draws = ([rng.normal(size=shape) for shape in ((3, 4), (4,), ())] for _ in range(MODELS))
    arrays = ([np.asarray(x, dtype) for x in each] for each in draws)
    return [{"layers": [{"w": w}, {"w": v}], "scale": scale} for w, v, scale in arrays]


NETWORKS = networks()
SPACE = WeightSpace.from_spec(
    {"layers": [{"w": "[in] hidden"}, {"w": "hidden"}], "scale": ""}, NETWORKS[0]
)
SCORES = {"accuracy": np.linspace(0, 1, 2 * MODELS).reshape(MODELS, 2), "loss": np.arange(MODELS)}
SETTINGS = {"optimizer": ["adam", "sgd", "adam", "sgd", "lion"], "rate": [0.1, np.nan, 1, 2, 3]}


def stacked(trees=NETWORKS):
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def make(weights=None, scores=None, space=SPACE, **options):
    weights = stacked() if weights is None else weights
    return Zoo.from_arrays(weights, SCORES if scores is None else scores, space, **options)


def assert_same(zoo, other):
    assert zoo.origin == other.origin
    for one, two in ((zoo.scores, other.scores), (zoo.settings, other.settings)):
        assert list(one) == list(two)
        for name in one:
            np.testing.assert_array_equal(one[name], two[name])
    np.testing.assert_array_equal(zoo.status, other.status)
    every = np.arange(zoo.models)
    jax.tree.map(np.testing.assert_array_equal, zoo.weights(every), other.weights(every))


@pytest.mark.parametrize(
    "weights",
    [NETWORKS, iter(NETWORKS), (x for x in NETWORKS), jax.tree.map(jnp.asarray, stacked())],
    ids=["list", "iterator", "generator", "jax"],
)
def test_stacked_networks_and_single_ones_make_the_same_zoo(weights):
    assert_same(make(weights), make())


def test_a_zoo_has_what_it_was_made_from():
    zoo = make(settings=SETTINGS)
    np.testing.assert_array_equal(zoo.scores["accuracy"], SCORES["accuracy"])
    np.testing.assert_array_equal(zoo.scores["loss"], SCORES["loss"][:, None])
    assert zoo.settings["optimizer"].tolist() == SETTINGS["optimizer"]
    np.testing.assert_array_equal(zoo.settings["rate"], SETTINGS["rate"])
    jax.tree.map(
        np.testing.assert_array_equal, zoo.weights([3, 1]), stacked([NETWORKS[3], NETWORKS[1]])
    )
    assert zoo.space == SPACE and zoo.complete and zoo.path is None and not zoo.damage()
    assert repr(zoo) == "Zoo(imported, 5 of 5 models, in memory)"
    assert "settings: optimizer, rate" in zoo.describe()
    assert list(make(scores=np.arange(MODELS)).scores) == ["score"]


def test_a_saved_zoo_is_the_same(tmp_path):
    zoo = make(settings=SETTINGS)
    zoo.save(tmp_path / "new" / "zoo")
    opened = Zoo(tmp_path / "new" / "zoo")
    assert_same(opened, zoo)
    assert opened.space == SPACE and opened.complete and not opened.damage()
    assert [path.name for path in tmp_path.glob("new/*")] == ["zoo"]
    opened.save(tmp_path / "again")
    assert_same(Zoo(tmp_path / "again"), zoo)


def test_chunks_are_read_back_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr("unf.zoo._arrays._CHUNK", 2)
    zoo = make()
    zoo.save(tmp_path / "zoo")
    assert Zoo(tmp_path / "zoo").store.num_chunks == 3
    assert_same(Zoo(tmp_path / "zoo"), zoo)


Pair = collections.namedtuple("Pair", "w b")


def test_containers_that_no_file_describes_become_a_dict(tmp_path):
    trees = [Pair(x["layers"][0]["w"], (x["scale"],)) for x in NETWORKS]
    space = WeightSpace.from_spec(Pair("[in] hidden", ("",)), trees[0])
    zoo = make(trees, space=space)
    assert isinstance(zoo.weights(), Pair)
    zoo.save(tmp_path / "zoo")
    weights = Zoo(tmp_path / "zoo").weights()
    assert list(weights) == ["b/0", "w"] and Zoo(tmp_path / "zoo").origin == zoo.origin
    np.testing.assert_array_equal(weights["w"], zoo.weights().w)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, jnp.bfloat16])
def test_other_floats_are_kept_as_float32(dtype):
    zoo = make(networks(dtype=dtype))
    expected = stacked(networks(dtype=dtype))
    for leaf, array in zip(jax.tree.leaves(expected), jax.tree.leaves(zoo.weights()), strict=True):
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, leaf.astype(np.float32))


def test_networks_that_are_not_finite_have_diverged(tmp_path):
    trees = networks(dtype=np.float64)
    trees[2]["layers"][0]["w"][1, 1] = np.nan
    trees[4]["scale"] = 1e300  # infinite as float32
    zoo = make(trees)
    assert zoo.trained.tolist() == [0, 1, 3]
    assert zoo.status.tolist() == [1, 1, Status.DIVERGED, 1, Status.DIVERGED]
    zoo.save(tmp_path / "zoo")
    assert (
        Zoo(tmp_path / "zoo").trained.tolist() == [0, 1, 3] and not Zoo(tmp_path / "zoo").damage()
    )


def test_zoos_are_told_apart():
    other = stacked()
    other["scale"] = other["scale"] + 1
    assert make().origin == make(NETWORKS).origin
    assert make().origin != make(other).origin
    assert make().origin != make(scores={**SCORES, "loss": np.ones(MODELS)}).origin


def changed(i, **changes):
    trees = networks()
    trees[i] |= changes
    return trees


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (changed(3, scale=np.ones(2)), r"(?s)at 'scale': model 3: .*wrong shape.*\(2,\)"),
        (changed(3, scale=None), r"(?s)model 3: .*structure differs.*missing \['scale'\]"),
        (changed(1, scale=np.array(3)), r"(?s)at 'scale': model 1: .*int64.*drop\('scale'\)"),
        (changed(1, scale=np.array(True)), r"(?s)at 'scale': model 1: .*bool"),
        (stacked(NETWORKS[:4]), r"(?s)at 'layers/0/w': the stacked .*\(5, 3, 4\).*\(4, 3, 4\)"),
        ({**stacked(), "scale": np.arange(MODELS)}, r"(?s)at 'scale': .*int64.*space\.drop"),
        ({"layers": []}, "structure differs"),
        ([stacked()], r"(?s)at 'layers/0/w': model 0: the array has the wrong shape"),
        (NETWORKS[:4], "there are 4 networks and 5 scores"),
        (iter([*NETWORKS, NETWORKS[0]]), "more networks than scores, of which there are 5"),
    ],
)  # fmt: skip
def test_weights_that_do_not_fit_are_refused(weights, message):
    with pytest.raises((SpecError, ZooError), match=message):
        make(weights)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ({}, "no scores"),
        (np.ones((MODELS, 2, 2)), r"score 'score' has shape \(5, 2, 2\); expected \[models\]"),
        (np.ones((MODELS, 0)), r"score 'score' has shape \(5, 0\)"),
        (["good"] * MODELS, "score 'score' does not hold numbers"),
        ({"a": np.ones(5), "b": np.ones(4)}, "score 'b' is of 4 models, 'a' of 5"),
        ({"a": [1, 2, np.nan, 4, np.inf]}, r"score 'a' of model 2 is \[nan\] \(2 such models\)"),
        ({"a/b": np.ones(5)}, r"called 'a/b'; expected a name of .* without slashes"),
        ({"": np.ones(5)}, "called ''"),
        ({"rate": np.ones(5)}, "'rate' is both a score and a setting"),
        ({"a": np.ones(5), "a_again": np.ones(5)}, r"one array 'a' of shape \[models, 2\]"),
    ],
)
def test_scores_that_do_not_fit_are_refused(scores, message):
    with pytest.raises(ZooError, match=message):
        make(scores=scores, settings=SETTINGS)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            np.ones(4),
            r"setting 'x' is float64\[4\]; expected numbers or strings, one for each of 5",
        ),
        ([None, 1, 2, 3, "adam"], r"setting 'x' is object\[5\]"),
        ([1, 2, np.inf, 4, 5], "setting 'x' of model 2 is infinite; use NaN"),
    ],
)
def test_settings_that_do_not_fit_are_refused(values, message):
    with pytest.raises(ZooError, match=message):
        make(settings={"x": values})


def test_paths_that_differ_only_in_their_dots():
    tree = {"a": {"b": np.ones(3)}, "a.b": np.ones(3)}
    space = WeightSpace.from_spec({"a": {"b": "n"}, "a.b": "n"}, tree)
    with pytest.raises(SpecError, match=r"at 'a/b': another leaf has the same path but for dots"):
        make([tree] * MODELS, space=space)


def test_nothing_is_overwritten(tmp_path):
    make().save(tmp_path / "zoo")
    with pytest.raises(ZooError, match="there is a zoo already; choose another folder"):
        make().save(tmp_path / "zoo")
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path):
        with pytest.raises(ZooError, match="there is something else already"):
            make().save(path)
    (tmp_path / "empty").mkdir()
    make().save(tmp_path / "empty")
    assert_same(Zoo(tmp_path / "empty"), make())


@pytest.mark.parametrize("method", ["create", "write"])
@pytest.mark.parametrize("crash", [KeyboardInterrupt, OSError])
def test_a_crash_while_saving_leaves_nothing(tmp_path, monkeypatch, method, crash):
    real = getattr(Store, method)

    def crashing(self, *arguments):
        real(self, *arguments)
        raise crash("power failure")

    monkeypatch.setattr(Store, method, crashing)
    with pytest.raises(crash, match="power failure"):
        make().save(tmp_path / "zoo")
    assert not list(tmp_path.iterdir())


def altered(path, **changes):
    document = json.loads((path / "zarr.json").read_text())
    document["attributes"] |= changes
    (path / "zarr.json").write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": {"../x": 1}}, r"zoo: one of the zoo's scores or settings is called '../x'"),
        ({"scores": {}}, "description is incomplete"),
        ({"scores": {"accuracy": "2"}}, "description is incomplete"),
        ({"settings": {"optimizer": [3]}}, "description is incomplete"),
        ({"settings": None}, "description is incomplete"),
    ],
)
def test_altered_descriptions_are_refused(tmp_path, changes, message):
    make(settings=SETTINGS).save(tmp_path / "zoo")
    altered(tmp_path / "zoo", **changes)
    with pytest.raises(ZooError, match=message):
        Zoo(tmp_path / "zoo")


def test_settings_without_their_words_are_refused(tmp_path):
    make(settings=SETTINGS).save(tmp_path / "zoo")
    altered(tmp_path / "zoo", settings={"optimizer": ["adam"], "rate": None})
    with pytest.raises(ZooError, match="setting 'optimizer' has more than 1 words"):
        Zoo(tmp_path / "zoo").settings  # noqa: B018


def test_damage_is_found_and_comes_with_its_remedy(tmp_path):
    make().save(tmp_path / "zoo")
    chunk = tmp_path / "zoo" / "scores.loss" / "c" / "0" / "0"
    chunk.write_bytes(bytes([chunk.read_bytes()[0] ^ 1]) + chunk.read_bytes()[1:])
    ((_, why),) = Zoo(tmp_path / "zoo").damage()
    assert "a chunk was altered; write the zoo again" in why and "resume" not in why


@pytest.mark.parametrize("images", [5, 10, 40])
def test_few_images_with_many_networks_are_divided(images):
    of = np.repeat(np.arange(images), 200 // images).astype(float)
    space = spaces.mlp(2, 3, 1)
    weights = space.unflatten([np.zeros((200, *leaf.shape)) for leaf in space.leaves])
    zoo = Zoo.from_arrays(weights, np.ones(200), space, settings={"image": of})
    parts = [set(of[rows]) for rows in zoo.split()]
    assert all(parts) and not any(a & b for a, b in combinations(parts, 2))


def test_too_few_images_are_refused():
    space = spaces.mlp(2, 3, 1)
    weights = space.unflatten([np.zeros((60, *leaf.shape)) for leaf in space.leaves])
    images = {"image": np.repeat([0.0, 1.0], 30)}
    with pytest.raises(ZooError, match="have 1 images, too few to train on some"):
        Zoo.from_arrays(weights, np.ones(60), space, settings=images).split()
