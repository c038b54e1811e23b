"""Every kind of zoo keeps the contract that building relies on."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unf
import unf.lab.zoos
from unf.lab.plots import zoo_overview
from unf.lab.tasks._moons import TwoMoons
from unf.lab.zoos import (
    ClassifierZoo,
    ImplicitZoo,
    Recipe,
    SmallCNNZoo,
    TinyRNN,
    TwoMoonsZoo,
    VariedRNN,
)
from unf.lab.zoos._recipe import RECIPES
from unf.lab.zoos._train import train_chunk
from unf.zoo import ZooError

TINY = {
    "tiny-rnn": TinyRNN(hidden=3, digits=1, steps=3, problems=20, dtype="float32"),
    "varied-rnn": VariedRNN(hidden=3, digits=1, steps=3, min_steps=3, problems=20, dtype="float32"),
    "small-cnn": SmallCNNZoo(channels=2, steps=3),
    "two-moons": TwoMoonsZoo(width=3, steps=3),
    "classifier": ClassifierZoo(dataset="digits", width=3, steps=3, min_steps=3),
    "inr": ImplicitZoo(dataset="digits", hidden=3, steps=3),
}


@pytest.fixture(scope="module", params=list(TINY))
def recipe(request):
    return TINY[request.param]


def test_all_kinds_are_tested():
    assert TINY.keys() == RECIPES.keys()


def test_choices_are_in_their_ranges(recipe):
    draw = jax.vmap(lambda key: dict(recipe.draw(key=key)))
    choices = draw(jax.random.split(jax.random.key(0), 500))
    rates = np.asarray(choices["learning_rate"])
    low, high = recipe.min_learning_rate, recipe.max_learning_rate
    assert low * (1 - 1e-6) <= rates.min() and rates.max() <= high * (1 + 1e-6)
    assert low == high or 0.42 < np.mean(rates < np.sqrt(low * high)) < 0.58


def test_training_lowers_the_loss(recipe):
    longer = dataclasses.replace(
        recipe,
        steps=40,
        min_learning_rate=5e-3,
        max_learning_rate=max(5e-3, recipe.max_learning_rate),
    )
    keys = jax.random.split(jax.random.key(0), 4)
    before = train_chunk(dataclasses.replace(longer, steps=0), keys, 32)
    after = train_chunk(longer, keys, 32)
    assert np.mean(after.loss) < np.mean(before.loss)
    assert np.all((np.asarray(after.success) >= 0) & (np.asarray(after.success) <= 1))
    assert after.success.shape == after.loss.shape == (4, 2)
    shapes = [leaf.shape[1:] for leaf in jax.tree.leaves(after.params)]
    assert [leaf.shape for leaf in recipe.task.space.leaves] == shapes
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(after.params))


def test_a_model_depends_on_its_own_key_and_number_alone(recipe):
    """Training it beside others changes nothing but rounding."""
    keys, rows = jax.random.split(jax.random.key(0), 4), np.arange(4)
    together = train_chunk(recipe, keys, 4, rows=rows)
    reversed_ = train_chunk(recipe, keys[::-1], 4, rows=rows[::-1])
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b[::-1], rtol=1e-5, atol=1e-6),
        together.params,
        reversed_.params,
    )
    params = jax.tree.map(lambda x: np.asarray(x[0]), together.params)
    space, examples = recipe.task.space, recipe.task.data().heldout
    permuted = space.permute(params, space.sample_permutation(jax.random.key(1)))
    first, second = (
        recipe.task.measure(p, examples, key=jax.random.key(2)) for p in (params, permuted)
    )
    assert np.isclose(first["loss"], second["loss"], rtol=1e-5)


@dataclasses.dataclass(frozen=True)
class Misspelled(Recipe):
    name = "misspelled"
    task = TwoMoons(width=2)

    def draw(self, *, key):
        return {**super().draw(key=key), "label_nois": jnp.float32(0.1)}


def test_drawn_settings_must_be_fields_of_the_task():
    with pytest.raises(ZooError, match="'label_nois' is not a field of TwoMoons; expected"):
        train_chunk(Misspelled(steps=1), jax.random.split(jax.random.key(0), 2), 4)


@dataclasses.dataclass(frozen=True)
class Noisy(Recipe):
    name = "noisy"
    task = TwoMoons(width=2)

    def draw(self, *, key):
        return {"learning_rate": jnp.float32(0.01), "label_noise": jax.random.uniform(key)}


def test_drawn_settings_reach_the_task():
    """With the same weights and points, only the drawn label noise differs."""
    keys = jax.random.split(jax.random.key(0), 3)
    trained = train_chunk(Noisy(steps=5), keys, 64)
    assert len(np.unique(trained.choices["label_noise"])) == 3
    task = TwoMoons(width=2)
    with pytest.raises(dataclasses.FrozenInstanceError, match="label_noise"):
        task.label_noise = 0.5  # type: ignore[misc]
    assert Noisy().task == task, "the recipe's own task is left as it was"


def test_relaxed_vocabulary_is_the_papers_space():
    assert unf.count_terms(TinyRNN().task.space.relax()) == 2058


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": -1}, "steps is -1; expected 0 or more"),
        ({"batch_sizes": ()}, r"batch_sizes is \(\); expected positive"),
        ({"min_learning_rate": 1.0}, "expected 0 < min_learning_rate <= max_learning_rate"),
        ({"problems": 0}, "num_measured is 0; expected at least 1"),
        ({"digits": 12}, "digits is 12; expected 1 to 8"),
    ],
)
def test_mistakes(options, message):
    with pytest.raises(ValueError, match=message):
        TinyRNN(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data_fractions": (2.0,)}, "expected 0 < fraction <= 1"),
        ({"max_dropout": 1.5}, "max_dropout is 1.5; expected 0 <= max_dropout < 1"),
        ({"min_scale": 0.0}, "scale from 0.0 to 3.0; expected 0 < min_scale <= max_scale"),
        ({"channels": 0}, "channels is 0; expected at least 1"),
    ],
)
def test_mistakes_with_images(options, message):
    with pytest.raises(ValueError, match=message):
        SmallCNNZoo(**options)


def test_the_type_of_activations_is_settled_by_the_machine():
    assert TinyRNN().dtype == "auto"
    assert TinyRNN().resolved().dtype == "float32"  # tests run on CPUs
    assert TinyRNN(dtype="bfloat16").resolved().dtype == "bfloat16"


def test_small_images_have_low_frequencies():
    """Between the pixels of small images there is nothing to learn."""
    assert ImplicitZoo(dataset="mnist").task.frequency == 30
    assert ImplicitZoo(dataset="digits").task.frequency == 8
    assert ImplicitZoo(dataset="digits", frequency=5.0).task.frequency == 5
    assert ImplicitZoo(dataset="digits").resolved(like={"frequency": 3.0}).frequency == 3
    with pytest.raises(ValueError, match=r"frequency is -1\.0; expected a positive number"):
        ImplicitZoo(frequency=-1.0)


def test_every_image_has_its_networks(tmp_path):
    recipe = ImplicitZoo(dataset="digits", hidden=2, steps=0, copies=2)
    assert recipe.most_models == 2 * 1437 + 360
    zoo = unf.lab.zoos.build(
        recipe, tmp_path / "zoo", models=recipe.most_models, chunk=1024, show_progress=False
    )
    images, counts = np.unique(zoo.settings["image"], return_counts=True)
    np.testing.assert_array_equal(images, np.arange(1797))
    np.testing.assert_array_equal(counts, [2] * 1437 + [1] * 360)
    labels = recipe.task.labels[zoo.settings["image"].astype(int)]
    np.testing.assert_array_equal(zoo.settings["label"], labels)
    train, valid, test = (zoo.settings["image"][rows] for rows in zoo.split())
    assert test.min() == 1437 and len(test) == 360
    assert not set(train) & set(valid) and len(train) + len(valid) >= 2 * 1437 - 2
    assert 230 <= len(valid) <= 240
    smaller = zoo.split((100, 20, 30))
    assert [len(rows) for rows in smaller][::2] == [100, 30]
    with pytest.raises(ZooError, match="2874 models for training and 360 for testing cannot be"):
        zoo.split((100, 20, 361))
    with pytest.raises(ZooError, match="models is 3235; expected at most 3234"):
        unf.lab.zoos.build(recipe, tmp_path / "more", models=3235)


def test_an_implicit_network_learns_its_image():
    recipe = ImplicitZoo(dataset="digits", hidden=16, steps=300)
    trained = train_chunk(recipe, jax.random.split(jax.random.key(0), 2), 1)
    assert np.all(np.asarray(trained.success) > 0.99)
    images = recipe.task.data().train.values
    for i in range(2):
        drawn = recipe.task.draw(jax.tree.map(lambda x, i=i: x[i], trained.params))
        wanted = images[int(trained.choices["image"][i])].reshape(8, 8, 1) / 255
        assert np.mean((drawn - wanted) ** 2) < 1e-3
        np.testing.assert_allclose(
            np.mean((drawn - wanted) ** 2), np.mean(trained.loss[i]), rtol=1e-3, atol=1e-9
        )


@pytest.mark.parametrize("options", [{"copies": 0}, {"batch_sizes": (2,)}])
def test_mistakes_with_implicit_networks(options):
    with pytest.raises(ValueError, match=r"expected at least 1, and \(1,\)"):
        ImplicitZoo(dataset="digits", **options)


def test_images_are_drawn_from_weights(tmp_path):
    recipe = ImplicitZoo(dataset="digits", hidden=3, steps=1)
    zoo = unf.lab.zoos.build(recipe, tmp_path / "zoo", models=7, chunk=4, show_progress=False)
    axes = zoo_overview(zoo).axes
    (drawn,) = (image for axis in axes for image in axis.images)
    assert drawn.get_array().shape == (2 * 10, 4 * 10)  # with a frame of one pixel
