"""Every kind of zoo keeps the contract that building relies on."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unf
from unf.lab.tasks._moons import TwoMoons
from unf.lab.zoos import ClassifierZoo, Recipe, SmallCNNZoo, TinyRNN, TwoMoonsZoo
from unf.lab.zoos._recipe import RECIPES
from unf.lab.zoos._train import train_chunk
from unf.zoo import ZooError

TINY = {
    "tiny-rnn": TinyRNN(hidden=3, digits=1, steps=3, problems=20, dtype="float32"),
    "small-cnn": SmallCNNZoo(channels=2, steps=3),
    "two-moons": TwoMoonsZoo(width=3, steps=3),
    "classifier": ClassifierZoo(dataset="digits", width=3, steps=3, min_steps=3),
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
    assert recipe.min_learning_rate <= rates.min() and rates.max() <= recipe.max_learning_rate
    middle = np.sqrt(recipe.min_learning_rate * recipe.max_learning_rate)
    assert 0.42 < np.mean(rates < middle) < 0.58


def test_training_lowers_the_loss(recipe):
    longer = dataclasses.replace(recipe, steps=40, min_learning_rate=5e-3)
    keys = jax.random.split(jax.random.key(0), 4)
    before = train_chunk(dataclasses.replace(longer, steps=0), keys, 32)
    after = train_chunk(longer, keys, 32)
    assert np.mean(after.loss) < np.mean(before.loss)
    assert np.all((np.asarray(after.success) >= 0) & (np.asarray(after.success) <= 1))
    assert after.success.shape == after.loss.shape == (4, 2)
    shapes = [leaf.shape[1:] for leaf in jax.tree.leaves(after.params)]
    assert [leaf.shape for leaf in recipe.task.space.leaves] == shapes
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(after.params))


def test_a_model_depends_on_its_own_key_alone(recipe):
    """Training it beside others changes nothing but rounding."""
    keys = jax.random.split(jax.random.key(0), 4)
    together, reversed_ = (train_chunk(recipe, k, 4) for k in (keys, keys[::-1]))
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
