import pickle
from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

from distrain.models.errors import TaskError
from distrain.models.hooks import misspelt_hooks, require_own_hooks
from distrain.models.task import Task, collate_of, move_tensors

Pair = namedtuple("Pair", "a b")


class Smallest(Task):
    model = nn.Identity()
    train = eval = (1, 2, 3)

    def loss(self, model, batch):
        return model(batch).mean()

    def metrics(self, model, batch):
        return {"loss": (batch.double().sum(), len(batch))}


def test_loss_and_metrics_are_all_that_a_task_must_define():
    task = Smallest()
    batch = task.collate([1, 2, 3])
    assert batch.tolist() == [1, 2, 3]
    assert (task.best, task.best_is) == ("loss", "min")


def test_a_task_needs_a_loss_and_for_evaluations_metrics():
    with pytest.raises(TypeError, match="abstract"):
        type("Half", (Task,), {"metrics": Smallest.metrics})()
    half = type("Half", (Task,), {"loss": Smallest.loss})()
    with pytest.raises(TaskError, match="Half has evaluation data, and no metrics"):
        half.metrics(None, None)


def test_moving_keeps_the_structure_of_a_batch():
    batch = {"pair": Pair(torch.zeros(2, 3, 4, 4), [torch.ones(2)]), "name": "x", "t": (1, None)}
    moved = move_tensors(batch, torch.device("meta"), memory_format=torch.channels_last)
    assert isinstance(moved["pair"], Pair)
    assert moved["pair"].a.device.type == moved["pair"].b[0].device.type == "meta"
    assert moved["pair"].a.is_contiguous(memory_format=torch.channels_last)
    assert (moved["name"], moved["t"]) == ("x", (1, None))


class Fields(dict):
    __getattr__ = dict.__getitem__


def test_moving_keeps_the_class_of_a_dict():
    for batch in (Fields(x=torch.ones(2), n=1), OrderedDict(x=torch.ones(2), n=1)):
        moved = move_tensors(batch, torch.device("meta"))
        assert type(moved) is type(batch)
        assert moved["x"].device.type == "meta"
        assert batch["x"].device.type == "cpu"


def test_moving_leaves_the_batch_sizes_of_packed_sequences_on_the_cpu():
    moved = move_tensors(pack_sequence([torch.ones(2)]), torch.device("meta"))
    assert (moved.data.device.type, moved.batch_sizes.device.type) == ("meta", "cpu")


class Ported(Smallest):
    """Has methods with the names of hooks, which are used by its own hooks."""

    def loss(self, model, batch):
        return self.training_step(model, batch)

    def training_step(self, model, batch):
        return self.logp(model(batch)).mean()

    def logp(self, values):
        return values.log()

    def log_p(self, values):
        """Is called from elsewhere; nobody replaces `log`, whose name is close."""


def test_a_method_that_the_task_itself_uses_is_no_hook():
    require_own_hooks(Ported())
    assert not misspelt_hooks(Ported())


class Joining(Smallest):
    """A task whose samples are joined by a method, which uses what the task has."""

    def __init__(self):
        self.model = nn.Linear(1, 1)
        self.on_log = lambda *_: None  # which cannot be sent to another process
        self.finish = self.double
        self.schedule = lambda step, total_steps: 1.0  # nor this
        self.padding = 2

    def double(self, batch):
        return batch * 2

    def collate(self, samples):
        return torch.tensor([*samples, self.padding])


class Nested(Joining):
    def __init__(self):
        super().__init__()
        self.collate = self.join

    def join(self, samples):
        return torch.tensor([*samples, self.padding])


@dataclass(slots=True)
class InSlots(Smallest):
    padding: int = 2
    collate = Joining.collate


@dataclass(frozen=True)
class Frozen(Smallest):
    padding: int = 2
    collate = Joining.collate


@pytest.mark.parametrize("kind", [Joining, Nested, InSlots, Frozen])
def test_a_method_joins_samples_in_other_processes_too(kind):
    joined = pickle.loads(pickle.dumps(collate_of(kind())))([1, 3])
    assert joined.tolist() == [1, 3, 2]


def test_a_function_of_the_class_needs_no_task():
    kind = type("Plain", (Smallest,), {"collate": lambda samples, scale=2: scale * len(samples)})
    assert collate_of(kind())([1, 3]) == 4
    kind = type("Static", (Smallest,), {"collate": staticmethod(lambda samples: len(samples))})
    assert collate_of(kind())([1, 3]) == 2
