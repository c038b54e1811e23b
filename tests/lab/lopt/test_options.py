"""Tasks on the data there are, from their names and options."""

import dataclasses

import jax
import pytest

import unf
from unf.lab.data import DataError
from unf.lab.lopt._job import describe
from unf.lab.lopt._options import MIXTURES, TASKS, MetaTraining, make_task, parse_tasks, spell_task

KEY = jax.random.key(0)


@pytest.fixture
def built_in(monkeypatch):
    monkeypatch.delenv("UNF_DATA", raising=False)


def test_tasks_fall_back_to_built_in_data_and_say_so(built_in, monkeypatch):
    task, about = make_task("mlp")
    assert task.dataset == "digits" and "in place of the task's own (fashion-mnist" in about
    monkeypatch.setenv("UNF_DATA", "/nowhere")
    with pytest.raises(DataError, match="fashion-mnist"):
        make_task("mlp")
    with pytest.raises(ValueError, match="unknown task 'gan'"):
        make_task("gan")
    with pytest.raises(ValueError, match="'mlp' has no option vocabulary"):
        make_task("mlp", vocabulary=100)


@pytest.fixture(params=MIXTURES["any"])
def text(request, built_in):
    return request.param


def test_every_task_of_the_mixture_is_small_and_can_be_spelled(text):
    ((name, options),) = parse_tasks(text)
    task, _ = make_task(name, **options)
    ((again, spelled),) = parse_tasks(spell_task(task))
    assert again == name and TASKS[name](**spelled) == task
    assert task.space.num_weights < 20_000


@pytest.mark.nightly
def test_every_task_of_the_mixture_has_its_symmetries(text):
    ((name, options),) = parse_tasks(text)
    task, _ = make_task(name, **options)
    params, batch = task.init(key=KEY), task.batch(task.data().train, key=KEY)
    assert 0 < float(task.loss(params, batch)) < 7
    unf.verify(task.loss, params, task.space, batch, key=KEY)


def test_mixtures_stand_for_their_tasks():
    parsed = parse_tasks("paper,mlp:hidden=8")
    assert parsed == [*((name, {}) for name in MIXTURES["paper"]), ("mlp", {"hidden": (8,)})]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mlp,gan", r"unknown task 'gan'; expected one of \['mlp'.*mixture .*'any'\]"),
        ("mlp:depth=3", r"'mlp' has no option depth; it has \['activation', 'batch_size'"),
        ("mlp:folder=x", "has no option folder"),
        ("mlp:hidden=64,64", "unknown task '64'"),
        ("mlp:hidden=wide", "hidden of the task 'mlp' is 'wide'; expected whole numbers joined"),
        ("mlp:layer_norm=maybe", "layer_norm of the task 'mlp' is 'maybe'; expected true or"),
        ("rnn:hidden=a", "hidden of the task 'rnn' is 'a'; expected int"),
        ("rnn:hidden=1:hidden=2", "has two values of hidden"),
    ],
)
def test_mistakes_name_what_there_is(text, message):
    with pytest.raises(ValueError, match=message):
        parse_tasks(text)


def test_new_options_are_described_only_when_they_are_used():
    """So that meta-trainings of earlier versions can be resumed."""
    for name, kind in TASKS.items():
        fields = {field.name for field in dataclasses.fields(kind) if field.metadata.get("added")}
        found = describe(kind(), "sgdm", MetaTraining(), 0)
        assert not {f"task.{field}" for field in fields} & found.keys(), name
    found = describe(TASKS["mlp"](activation="tanh"), "sgdm", MetaTraining(reparametrize=1.0), 0)
    assert found["task.activation"] == "tanh" and found["reparametrize"] == 1
