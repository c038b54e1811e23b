"""Tasks on the data there are."""

import pytest

from unf.lab.data import DataError
from unf.lab.lopt._options import make_task


def test_tasks_fall_back_to_built_in_data_and_say_so(monkeypatch):
    monkeypatch.delenv("UNF_DATA", raising=False)
    task, about = make_task("mlp")
    assert task.dataset == "digits" and "in place of the task's own (fashion-mnist" in about
    monkeypatch.setenv("UNF_DATA", "/nowhere")
    with pytest.raises(DataError, match="fashion-mnist"):
        make_task("mlp")
    with pytest.raises(ValueError, match="unknown task 'gan'"):
        make_task("gan")
    with pytest.raises(ValueError, match="'mlp' has no option vocabulary"):
        make_task("mlp", vocabulary=100)
