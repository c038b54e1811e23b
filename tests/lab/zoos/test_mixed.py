"""Recipes of many architectures: what is drawn, and what is built."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unf
from tests.lab.zoos.tiny import contents
from unf.lab.tasks._classifier import Classifier
from unf.lab.tasks._task import Labeled
from unf.lab.zoos import ClassifierZoo, MixedRecipe, build_mixed
from unf.lab.zoos._train import train_chunk
from unf.zoo import MixedZoo, ZooError

TINY = MixedRecipe(
    architectures=2, held_out=1, datasets=("digits",), depths=(2,), widths=(2,), new_depths=(3,),
    new_widths=(3,), steps=2, batch_size=4,
)  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    path = tmp_path_factory.mktemp("mixed") / "zoo"
    return path, build_mixed(TINY, path, models=8, show_progress=False)


def test_every_combination_may_be_drawn_once_and_held_out_ones_are_new():
    recipe = MixedRecipe(datasets=("digits", "fashion-mnist"))
    recipe = dataclasses.replace(recipe, datasets=("digits",), architectures=40, held_out=12)
    recipes, held_out = recipe.draw(0)
    assert len(recipes) == 52 and len(held_out) == 12
    assert len({(x.kind, x.depth, x.width, x.residual, x.norm) for x in recipes.values()}) == 52
    seen = [x for name, x in recipes.items() if name not in held_out]
    assert {x.depth for x in seen} == {2, 3, 4, 6} and {x.width for x in seen} == {8, 16, 32, 64}
    assert sum(x.kind == "mlp" for x in seen) == 20
    new = [(recipes[name].depth == 5, recipes[name].width in (24, 48)) for name in held_out]
    assert [new.count(x) for x in ((True, False), (False, True), (True, True))] == [4, 4, 4]
    assert recipe.draw(0)[1] == held_out != recipe.draw(1)[1]


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
@pytest.mark.parametrize(("depth", "residual", "norm"), [(3, False, False), (5, True, True)])
def test_weight_spaces_are_those_of_the_networks(kind, depth, residual, norm):
    task = Classifier("digits", kind=kind, depth=depth, width=3, residual=residual, norm=norm)
    params = jax.eval_shape(lambda: task.init(key=jax.random.key(0)))
    found = unf.infer(task.logits, params, jax.ShapeDtypeStruct((1, 8, 8, 1), jnp.float32))
    assert found.roles == task.space.roles
    assert sorted(found.sizes.values()) == sorted(task.space.sizes.values())
    names = zip(task.space.leaves, found.leaves, strict=True)
    pairs = {
        (str(a), str(b)) for one, two in names for a, b in zip(one.axes, two.axes, strict=True)
    }
    permuted = [(a, b) for a, b in pairs if a in task.space.sizes]
    assert len(permuted) == len(dict(permuted)) == len(task.space.sizes), "the same axes are shared"


def test_labels_are_wrong_as_often_as_the_noise_says():
    task = Classifier("digits", batch_size=4000, label_noise=0.3, data_fraction=0.5)
    examples = task.data().train
    marked = Labeled(
        jnp.arange(len(examples.classes), dtype=jnp.uint8)[:, None], examples.classes * 0
    )
    batch = task.batch(marked, key=jax.random.key(0))
    wrong = np.asarray(batch.classes != 0)
    assert abs(wrong.mean() - 0.3) < 0.05 and batch.classes.max() == 9
    again = dataclasses.replace(task, label_noise=0.0).batch(marked, key=jax.random.key(0))
    assert not np.any(again.classes)


def test_training_stops_after_the_drawn_number_of_steps():
    recipe = ClassifierZoo(dataset="digits", width=3, steps=8, min_steps=1)
    keys = jax.random.split(jax.random.key(0), 6)
    short, long = (train_chunk(dataclasses.replace(recipe, steps=n), keys, 4) for n in (8, 12))
    longest = dataclasses.replace(recipe, steps=8)
    lengths = jax.vmap(lambda k: longest.draw(key=jax.random.split(k, 4)[0])["steps"])(keys)
    assert 1 <= lengths.min() < lengths.max() <= 8
    np.testing.assert_array_equal(short.choices["steps"], lengths)
    assert not np.array_equal(short.params["output"]["bias"], long.params["output"]["bias"])


def test_a_build_is_resumed_to_the_same_zoo(built, tmp_path):
    path, zoo = built
    assert (
        isinstance(zoo, MixedZoo)
        and zoo.complete
        and [x.models for x in zoo.zoos.values()] == [3, 3, 2]
    )
    assert len(zoo.held_out) == 1 and {"depth", "kind", "steps"} <= zoo.settings.keys()
    other = tmp_path / "zoo"
    build_mixed(TINY, other, models=8, show_progress=False)
    name = zoo.held_out[0]
    assert contents(other / name) == contents(path / name)
    with pytest.raises(ZooError, match="there is a zoo already; continue it with resume=True"):
        build_mixed(TINY, other, models=8, show_progress=False)
    for file in (other / name / "status" / "c").iterdir():
        file.unlink()
    build_mixed(TINY, other, models=8, resume=True, show_progress=False)
    assert contents(other) == contents(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": 1}, "the zoo was built with seed = 0, not 1"),
        ({"models": 9}, "the zoo was built with models = 8, not 9"),
    ],
)
def test_other_arguments_are_refused(built, options, message):
    given = {"models": 8, "resume": True, "show_progress": False} | options
    with pytest.raises(ZooError, match=message):
        build_mixed(TINY, built[0], **given)


def test_invalid_options(tmp_path):
    with pytest.raises(ZooError, match="99 architectures and 1 held-out ones, but there are"):
        dataclasses.replace(TINY, architectures=99).draw(0)
    with pytest.raises(ZooError, match="models is 2; expected at least 3, one of each form"):
        build_mixed(TINY, tmp_path, models=2)
    with pytest.raises(ValueError, match="3 is among widths and new_widths"):
        dataclasses.replace(TINY, widths=(2, 3))
    with pytest.raises(ValueError, match="depth is 3; expected at least 2, and 4 with residual"):
        Classifier("digits", depth=3, residual=True)
