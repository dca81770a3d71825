"""The batches of a stream are the same for any number of ranks and loader processes."""

from __future__ import annotations

import multiprocessing
import random
import threading
from collections.abc import Iterator
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import IterableDataset, get_worker_info

from distrain.models.task import Task
from distrain.runners.config.planning import plan_here
from distrain.runners.config.schema import RunConfig
from distrain.runners.distributed.process_group import World
from distrain.runners.errors import ConfigError
from distrain.runners.system.devices import Device
from distrain.runners.training.batch_mover import BatchMover
from distrain.runners.training.data_check import check_stream
from distrain.runners.training.epochs import Epochs
from distrain.runners.training.loading import Batches

# Python 3.12 warns where a process with threads forks; loader processes take it into account.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
]

STEPS = 9


class Shuffled(IterableDataset[Tensor]):
    """50 samples with random numbers, of which loader processes get their part, as is usual."""

    def __iter__(self) -> Iterator[Tensor]:
        order = list(range(50))
        random.shuffle(order)
        info = get_worker_info()
        mine = order[info.id :: info.num_workers] if info else order
        for index in mine:
            yield torch.tensor([index, random.random()], dtype=torch.float64)


class Streaming(Task):
    eval = None

    def __init__(self) -> None:
        self.model = nn.Identity()
        self.train = Shuffled()

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        raise AssertionError("only the batches of this task are used")


def steps_of(ranks: int, offset: int = 0, steps: int = STEPS, **changes: Any) -> list[Any]:
    """Return the samples of each step, of all ranks in their order."""
    config = RunConfig().with_changes(
        {
            "train.batch_size": 12,
            "train.max_steps": STEPS,
            **{key.replace("__", "."): value for key, value in changes.items()},
        }
    )
    plan = plan_here(config, [Device(kind="cpu", index=index) for index in range(ranks)])
    task = Streaming()
    order = Epochs(task, config).plan(ranks, offset)
    mover = BatchMover(task, torch.device("cpu"), channels_last=False)
    found: list[Any] = [[] for _ in range(steps)]
    for rank in range(ranks):
        batches = Batches(task, config, plan, rank, mover).epoch(0, order)
        for step, share in zip(found, islice(order.shares(rank), steps), strict=True):
            for count in share.counts:
                step += next(batches).tolist()[:count]
    return found


@pytest.mark.parametrize("workers", [0, 1, 6])
@pytest.mark.parametrize(("ranks", "accumulate"), [(1, 1), (2, 3), (3, 1)])
def test_each_split_has_the_same_steps(ranks: int, accumulate: int, workers: int) -> None:
    plain = steps_of(1, data__workers=0)
    split = steps_of(ranks, data__workers=workers, train__accumulate=accumulate)
    assert split == plain
    first_pass = [int(index) for step in plain for index, _ in step][:50]
    assert sorted(first_pass) == list(range(50))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_resumed_run_has_the_steps_that_remain(workers: int) -> None:
    plain = steps_of(1, data__workers=0)
    assert steps_of(2, offset=4 * 12, steps=STEPS - 4, data__workers=workers) == plain[4:]


@pytest.mark.parametrize(
    ("changes", "key", "sentence"),
    [
        ({"train.max_steps": None}, "train.max_steps", "a stream, which has no epochs: set"),
        ({"train.warmup_epochs": 1.0}, "train.warmup_epochs", "leave it at 0"),
        ({"train.schedule": "step"}, "train.schedule", '"step" counts epochs'),
        ({"train.patience": 2}, "train.patience", "set eval.every_steps"),
    ],
)
def test_settings_that_need_epochs_are_refused(
    changes: dict[str, Any], key: str, sentence: str
) -> None:
    config = RunConfig().with_changes({"train.max_steps": 3, **changes})
    with pytest.raises(ConfigError) as raised:
        Epochs(Streaming(), config).require_usable(1)
    ((found, problem),) = raised.value.problems
    assert found == key
    assert sentence in problem


def test_a_notice_names_the_setting_for_checkpoints_before_the_end() -> None:
    config = RunConfig().with_changes({"train.max_steps": 3})
    (notice,) = Epochs(Streaming(), config).notices()
    assert "checkpoint.every_steps" in notice
    for change in ({"checkpoint.every_steps": 2}, {"checkpoint.keep": 0}):
        assert not Epochs(Streaming(), config.with_changes(change)).notices()


def test_a_batch_of_a_stream_that_cannot_be_sent_is_an_error_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Streaming, "collate", staticmethod(lambda _: threading.Lock()))
    with pytest.raises(TypeError, match=r"(?s)in loader process \d.*cannot pickle '_thread\.lock'"):
        steps_of(1, data__workers=2, data__timeout_s=600)
    for process in multiprocessing.active_children():  # the error keeps their loader
        process.kill()
        process.join()


class OfObjects(IterableDataset[Any]):
    """Samples with arrays of Python objects, which are others in each pass."""

    def __iter__(self) -> Iterator[Any]:
        for index in range(10):
            yield np.array([f"text {index}", index], dtype=object)


def test_equal_arrays_of_objects_are_no_other_samples() -> None:
    task = Streaming()
    task.train = OfObjects()  # type: ignore[assignment]
    world = World(0, 0, 1, torch.device("cpu"))
    run: Any = SimpleNamespace(task=task, config=RunConfig(), world=world)
    check_stream(run)
