"""Mixed zoos: zoos of several architectures as one collection, in memory and on disk."""

import json

import jax
import numpy as np
import pytest

from unf.spec import WeightSpace
from unf.zoo import MixedZoo, Status, Zoo, ZooError, open_zoo

WIDTHS = {"narrow": 2, "middle": 3, "wide": 5}


def make(width, models=20, **options):
    rng = np.random.default_rng(width)
    weights = {
        "w": rng.normal(size=(models, 4, width)).astype(np.float32),
        "v": rng.normal(size=(models, width)).astype(np.float32),
    }
    one = {name: x[0] for name, x in weights.items()}
    space = WeightSpace.from_spec({"w": "[in] hidden", "v": "hidden"}, one)
    scores = {"accuracy": rng.random((models, 2)), f"only_{width}": rng.random(models)}
    return Zoo.from_arrays(weights, scores, space, **options)


def zoos():
    settings = {"rate": np.arange(20.0), "optimizer": ["adam", "sgd"] * 10}
    return {
        "narrow": make(2),
        "middle": make(3, settings=settings),
        "wide": make(5, settings={"rate": np.ones(20)}),
    }


@pytest.fixture(scope="module")
def mixed():
    return MixedZoo.join(zoos(), held_out=["wide"])


def test_scores_that_all_have_and_settings_that_any_has(mixed):
    assert mixed.models == 60 and list(mixed.scores) == ["accuracy"]
    assert list(mixed.settings) == ["rate", "optimizer"]
    assert np.isnan(mixed.settings["rate"][:20]).all() and mixed.settings["rate"][21] == 1
    assert mixed.settings["optimizer"][[0, 20, 21, 40]].tolist() == ["", "adam", "sgd", ""]
    assert mixed.architecture[[0, 20, 59]].tolist() == ["narrow", "middle", "wide"]


def test_every_model_is_found_by_its_number(mixed):
    rows = np.array([45, 3, 21, 44, 0])
    parts = mixed.parts(rows)
    assert {name: part.places.tolist() for name, part in parts.items()} == {
        "narrow": [1, 4],
        "middle": [2],
        "wide": [0, 3],
    }
    weights = mixed.weights(rows)
    for name, part in parts.items():
        jax.tree.map(np.testing.assert_array_equal, weights[name], part.zoo.weights(part.rows))
        for row, place in zip(part.rows, part.places, strict=True):
            first = part.zoo.scores["accuracy"][row]
            np.testing.assert_array_equal(first, mixed.scores["accuracy"][rows[place]])
    assert list(mixed.weights(np.arange(60) < 20)) == ["narrow"]


def test_held_out_architectures_are_a_part_of_their_own(mixed):
    split = mixed.split((20, 8, 8), seed=1)
    assert [len(x) for x in split] == [20, 8, 8, 20]
    assert set(mixed.architecture[split.held_out]) == {"wide"}
    others = np.concatenate(split[:3])
    assert len(set(others)) == 36 and others.max() < 40
    np.testing.assert_array_equal(split.train, mixed.split((20, 8, 8), seed=1).train)
    assert not np.array_equal(split.train, mixed.split((20, 8, 8)).train)


def test_a_saved_zoo_is_the_same(mixed, tmp_path):
    mixed.save(tmp_path / "zoo")
    opened = open_zoo(tmp_path / "zoo")
    assert isinstance(opened, MixedZoo) and opened.origin == mixed.origin and opened.complete
    assert list(opened.zoos) == list(WIDTHS) and opened.held_out == ("wide",)
    for one, two in ((mixed.scores, opened.scores), (mixed.settings, opened.settings)):
        assert list(one) == list(two)
        for name in one:
            np.testing.assert_array_equal(one[name], two[name])
    jax.tree.map(np.testing.assert_array_equal, mixed.weights(), opened.weights())
    assert opened.damage() == [] and opened.summary()["architectures"] == dict.fromkeys(WIDTHS, 20)
    assert "3 architectures with 10 to 25 weights, of which 1 are held out" in opened.describe()
    assert isinstance(open_zoo(tmp_path / "zoo" / "wide"), Zoo)
    with pytest.raises(ZooError, match=r"a mixed zoo; open it with unf\.zoo\.MixedZoo"):
        Zoo(tmp_path / "zoo")
    with pytest.raises(ZooError, match="there is something else already; choose another folder"):
        mixed.save(tmp_path / "zoo")


def test_diverged_models_are_left_out(tmp_path):
    weights = {"w": np.ones((6, 3, 2), np.float32)}
    weights["w"][4, 0, 0] = np.nan
    space = WeightSpace.from_spec({"w": "[in] hidden"}, {"w": weights["w"][0]})
    mixed = MixedZoo.join(
        {"a": make(2), "b": Zoo.from_arrays(weights, {"accuracy": [0.0] * 6}, space)}
    )
    assert mixed.status[24] == Status.DIVERGED and mixed.diverged.sum() == 1
    assert 24 not in mixed.split((10, 4, 4)).train and len(mixed.trained) == 25
    assert mixed.scores["accuracy"].shape == (26, 1), "as many measurements as all have"


@pytest.mark.parametrize(
    ("given", "held_out", "message"),
    [
        (zoos(), ["large"], r"held_out is \['large'\]; expected some of"),
        (zoos(), list(WIDTHS), "expected some of .* not all"),
        ({"a/b": make(2)}, [], r"zoos are called \['a/b'\]; expected names for folders"),
        ({}, [], "no zoos to join"),
        ({"a": make(2), "b": "out/zoo"}, [], "'b' is a str; expected a Zoo"),
    ],
)
def test_zoos_that_do_not_fit(given, held_out, message):
    with pytest.raises(ZooError, match=message):
        MixedZoo.join(given, held_out=held_out)


def test_zoos_need_a_common_score():
    space = make(2).space
    other = Zoo.from_arrays(make(2).weights(), np.arange(20), space)
    with pytest.raises(ZooError, match="the zoos have no score in common; give one score the same"):
        MixedZoo.join({"a": make(2), "b": other})


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("{", "not the index of a mixed zoo"),
        ({"format": 9}, "format 9; this version reads 1"),
        ({"format": 1, "zoos": ["../x"], "held_out": []}, "not the index of a mixed zoo"),
        (
            {"format": 1, "zoos": ["gone"], "held_out": [], "config": {}, "seed": None},
            "the zoo of gone is missing; rebuild the zoo with the same arguments and resume=True",
        ),
    ],
)
def test_damaged_folders(tmp_path, index, message):
    text = index if isinstance(index, str) else json.dumps(index)
    (tmp_path / "mixed.json").write_text(text)
    with pytest.raises(ZooError, match=message):
        open_zoo(tmp_path)


def test_no_mixed_zoo(tmp_path):
    with pytest.raises(ZooError, match=r"no mixed zoo here; expected .* mixed\.json"):
        MixedZoo(tmp_path)
    with pytest.raises(ZooError, match=r"no zoo here; expected a folder with a file zarr\.json"):
        open_zoo(tmp_path)
