"""Given the order in which data sets are read, which batches are taken for training data.

A letter is a batch of a data set, `t.` that its iterator ends, `t-` that it is dropped, `^t` that
it begins again, `t!` that the data set is freed and another one gets its name, `S` a step.
"""

from __future__ import annotations

import pytest

from distrain.runners.instrumentation.automatic.training_data import TrainingData


class DataSet:
    pass


@pytest.mark.parametrize(
    ("script", "events", "training"),
    [
        ("a plain loop", "t S t S t. t S", "t t t"),
        ("evaluation with gradients", "t S t S e e e. t S t S e e.", "t t t t"),
        ("evaluation before the first step", "e e e. t S t S e e.", "e e t t"),
        ("evaluation before the step of a batch", "t S t S t e e. S t e e. S", "t t t t"),
        ("evaluation that is left early", "t S t S e e- t S t S e e-", "t t t t"),
        ("two data sets for each step", "t u S t u S t u S", "t u t u t u"),
        ("a second data set later", "t S t S t u S t u S u t S", "t t t t u u t"),
        ("two data sets, and evaluation", "t u S t u S e e. t u S e e-", "t u t u t u"),
        ("a new iterator for each step", "t t- S t t- S e e. t t- S", "t t t"),
        ("evaluation with an iterator that is kept", "t S t S e t S ^e e t S ^e e e", "t t t t"),
        ("a data set that is made for each epoch", "t S t S t. t! t S t S", "t t t t"),
    ],
)
def test_training_data(script: str, events: str, training: str) -> None:
    steps = 0
    data = TrainingData(lambda: steps)
    sets: dict[str, DataSet] = {}
    found = []
    for name, *rest in events.split():
        if name == "S":
            steps += 1
        elif rest in (["."], ["-"]):
            if rest == ["."]:
                data.may_train(sets[name])  # the end is found by asking for a batch
            data.leave(id(sets[name]))
        elif name == "^":
            data.begin_again(id(sets[rest[0]]))
        elif rest == ["!"]:
            del sets[name]
        elif data.may_train(sets.setdefault(name, DataSet())):
            found.append(name)
    assert " ".join(found) == training, script


def test_a_data_set_that_is_freed_is_forgotten() -> None:
    """Another one may get its id, which is evaluation data if something else is trained with."""
    steps = 0
    data = TrainingData(lambda: steps)
    freed, list_of_batches = DataSet(), [1, 2]
    for steps in (0, 1):  # noqa: B007  # read by the function above
        assert data.may_train(freed)
        assert data.may_train(list_of_batches)
    for _ in range(100):
        freed = DataSet()
        assert not data.may_train(freed)
        data.leave(id(freed))
