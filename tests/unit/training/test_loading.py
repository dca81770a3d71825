"""Batches of a rank: their samples and order, the loader processes and their seeds."""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from mmap import mmap
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from distrain.models.errors import TaskError
from distrain.models.task import Sums, Task
from distrain.runners.config.plan import Plan
from distrain.runners.config.planning import plan_here
from distrain.runners.config.schema import RunConfig
from distrain.runners.system.devices import Device
from distrain.runners.training import loader_processes, loader_wait
from distrain.runners.training.batch_mover import BatchMover
from distrain.runners.training.batch_plan import BatchPlan
from distrain.runners.training.loader_check import require_picklable
from distrain.runners.training.loading import Batches, EvaluationBatches, epoch_permutation

# Python 3.12 warns where a process with threads forks; loader processes take it into account.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

SAMPLES = 37
EVAL_SAMPLES = 23


class Indices(Dataset[Tensor]):
    """A data set whose samples are their own indices."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor(index)


class Keyed(Indices):
    """A data set with keys (epoch, index) whose samples are their own keys."""

    wants_epoch = True

    def __getitem__(self, key: Any) -> Tensor:
        return torch.tensor(key)


class Whole(Indices):
    """A data set that returns whole batches."""

    def __getitems__(self, indices: Sequence[int]) -> Tensor:
        return torch.tensor(indices)


class Dice(Indices):
    """Samples of random numbers of each generator, and the pid of the loading process."""

    def __getitem__(self, index: int) -> Tensor:
        draws = (random.random(), np.random.random(), torch.rand(()).item())
        return torch.tensor([*draws, os.getpid()], dtype=torch.float64)


class Plain(Task):
    def __init__(self, train: Dataset[Any]) -> None:
        self.model = nn.Identity()
        self.train = train
        self.eval = Indices(EVAL_SAMPLES)

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        raise AssertionError("only the batches of this task are used")

    def metrics(self, model: nn.Module, batch: Any) -> Sums:
        raise AssertionError("only the batches of this task are used")


def make_config_and_plan(ranks: int = 2, **changes: Any) -> tuple[RunConfig, Plan]:
    config = RunConfig().with_changes(
        {"train.batch_size": 8, **{k.replace("__", "."): v for k, v in changes.items()}}
    )
    return config, plan_here(config, [Device(kind="cpu", index=index) for index in range(ranks)])


def make_mover(task: Task) -> BatchMover:
    return BatchMover(task, torch.device("cpu"), channels_last=False)


def batches_of(rank: int, task: Task, ranks: int = 2, **changes: Any) -> Batches:
    config, plan = make_config_and_plan(ranks, **changes)
    return Batches(task, config, plan, rank, make_mover(task))


def epoch_plan(ranks: int = 2) -> BatchPlan:
    return BatchPlan(SAMPLES, 8, ranks)


def epoch_of(batches: Batches, epoch: int, ranks: int = 2) -> list[Any]:
    return [batch.tolist() for batch in batches.epoch(epoch, epoch_plan(ranks))]


def flatten(batches: list[Any]) -> list[Any]:
    return [sample for batch in batches for sample in batch]


@pytest.mark.parametrize("kind", [Indices, Whole])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_the_ranks_together_get_every_sample_of_an_epoch_once(kind: Any, ranks: int) -> None:
    task = Plain(kind(SAMPLES))
    indices = [flatten(epoch_of(batches_of(rank, task, ranks), 0, ranks)) for rank in range(ranks)]
    assert sorted(flatten(indices)) == list(range(SAMPLES))


def test_the_order_changes_with_every_epoch_and_seed() -> None:
    batches = batches_of(0, Plain(Whole(SAMPLES)))
    other = epoch_permutation(0, 1, SAMPLES)
    orders = [flatten(epoch_of(batches, epoch)) for epoch in range(3)]
    assert orders[0] != orders[1] != orders[2] != orders[0]
    assert epoch_permutation(0, 0, SAMPLES) != other != list(range(SAMPLES))


def test_the_order_of_an_epoch_is_always_the_same() -> None:
    fresh, used = (batches_of(1, Plain(Whole(SAMPLES))) for _ in range(2))
    epoch_of(used, 0)
    assert epoch_of(fresh, 5) == epoch_of(used, 5)


def test_the_samples_of_a_step_do_not_depend_on_the_number_of_ranks() -> None:
    task = Plain(Whole(SAMPLES))
    by_ranks = []
    for ranks in (1, 2, 4):
        steps = zip(
            *(epoch_of(batches_of(rank, task, ranks), 3, ranks) for rank in range(ranks)),
            strict=True,
        )
        by_ranks.append([set(flatten(list(parts))) for parts in steps])
    assert by_ranks[0] == by_ranks[1] == by_ranks[2]


def test_an_unfinished_epoch_does_not_disturb_the_next() -> None:
    task = Plain(Whole(SAMPLES))
    for workers in (0, 2):
        batches = batches_of(0, task, data__workers=workers)
        next(batches.epoch(0, epoch_plan()))
        assert epoch_of(batches, 1) == epoch_of(batches_of(0, task), 1)


def test_a_data_set_that_wants_the_epoch_gets_it() -> None:
    keys = flatten(epoch_of(batches_of(0, Plain(Keyed(SAMPLES)), 1), 7, 1))
    assert sorted(keys) == [[7, index] for index in range(SAMPLES)]


def _double(samples: list[int]) -> Tensor:
    return torch.tensor(samples) * 2


def test_functions_that_are_attributes_of_a_task_are_used() -> None:
    task = Plain(Indices(SAMPLES))
    plain = epoch_of(batches_of(0, task), 0)
    task.collate = _double  # type: ignore[misc]
    assert epoch_of(batches_of(0, task, data__workers=1), 0) == [[2 * n for n in b] for b in plain]
    task.to = lambda batch, device, **_: batch + 1  # type: ignore[method-assign]
    assert epoch_of(batches_of(0, task), 0) == [[2 * n + 1 for n in b] for b in plain]


def test_loader_workers_are_a_total_that_the_ranks_share() -> None:
    # given three loader workers for two ranks
    task = Plain(Dice(SAMPLES))
    pids = []
    for rank in range(2):
        batches = batches_of(rank, task, data__workers=3, train__batch_size=4)
        drawn = list(batches.epoch(0, BatchPlan(SAMPLES, 4, 2)))
        pids.append({int(sample[3]) for batch in drawn for sample in batch})
    # then they are two and one, none of them the rank itself
    assert [len(own) for own in pids] == [2, 1]
    assert os.getpid() not in flatten([list(own) for own in pids])


def test_loader_workers_persist_from_epoch_to_epoch() -> None:
    batches = batches_of(0, Plain(Dice(SAMPLES)), 1, data__workers=1)
    first, second = (
        {int(sample[3]) for batch in batches.epoch(epoch, epoch_plan(1)) for sample in batch}
        for epoch in range(2)
    )
    assert first == second


def test_the_processes_of_a_loader_that_pins_memory_are_ended() -> None:
    batches = batches_of(0, Plain(Dice(SAMPLES)), 1, data__workers=2)
    next(batches.epoch(0, epoch_plan(1)))
    iterator = batches._loader._iterator
    assert iterator is not None
    iterator._pin_memory = True  # as on a host with a GPU
    batches.end()
    assert not any(process.is_alive() for process in iterator._workers)


def test_loader_workers_draw_different_numbers_which_are_reproducible() -> None:
    def draws(rank: int, seed: int = 0) -> list[tuple[float, ...]]:
        batches = batches_of(
            rank, Plain(Dice(SAMPLES)), data__workers=4, train__batch_size=8, train__seed=seed
        )
        return [tuple(sample[:3]) for sample in flatten(epoch_of(batches, 0))]

    first, second, again = draws(0), draws(1), draws(0)
    # then the two workers of each of two ranks never draw the same number, by any generator
    for generator in range(3):
        everything = [numbers[generator] for numbers in first + second]
        assert len(set(everything)) == len(everything)
    assert again == first
    assert draws(0, seed=1) != first


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("batch_size", [None, 1, 5, 100])
def test_evaluation_has_every_sample_once(ranks: int, batch_size: int | None) -> None:
    task = Plain(Indices(SAMPLES))
    config, plan = make_config_and_plan(ranks, eval__batch_size=batch_size)
    indices: list[int] = []
    for rank in range(ranks):
        for batch, count in EvaluationBatches(task, config, plan, rank, make_mover(task)):
            assert len(batch) == count
            indices += batch.tolist()
    assert indices == list(range(EVAL_SAMPLES))


def test_a_rank_without_an_evaluation_sample_has_a_batch_that_counts_for_nothing() -> None:
    task = Plain(Indices(SAMPLES))
    task.eval = Indices(2)
    config, plan = make_config_and_plan(3)
    mover = make_mover(task)
    parts = [list(EvaluationBatches(task, config, plan, rank, mover)) for rank in range(3)]
    assert [[count for _, count in part] for part in parts] == [[1], [1], [0]]
    assert len(parts[2][0][0]) == 1


class Process(Indices):
    """A data set whose samples are the ids of the processes that load them."""

    def __getitem__(self, _: int) -> Tensor:
        return torch.tensor(os.getpid())


def test_no_evaluation_after_the_first_one_starts_processes() -> None:
    task = Plain(Process(SAMPLES))
    task.eval = Process(EVAL_SAMPLES)
    config, plan = make_config_and_plan(1, data__workers=2, eval__batch_size=4)
    batches = EvaluationBatches(task, config, plan, 0, make_mover(task))
    first, second = ({int(batch[0]) for batch, _ in batches} for _ in range(2))
    assert first == second
    assert os.getpid() not in first


class Forks:
    """Processes that hang as they are forked: a lock is held by a thread that they do not have."""

    def __init__(self) -> None:
        self.hanging = 0
        self.count = mmap(-1, 1)
        self.pid = os.getpid()
        os.register_at_fork(after_in_child=self.hang)

    def hang(self) -> None:
        if os.getppid() == self.pid and self.count[0] < self.hanging:
            self.count[0] += 1
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()


FORKS = Forks()


def test_where_a_loader_process_hangs_as_it_is_forked_all_start_again(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(loader_processes, "START_S", 1.0)
    drawn = []
    for hanging in (0, 1):
        monkeypatch.setattr(FORKS, "hanging", hanging)
        batches = epoch_of(batches_of(0, Plain(Dice(SAMPLES)), data__workers=2), 0)
        drawn.append([numbers for *numbers, _ in flatten(batches)])
    assert drawn[0] == drawn[1]
    assert FORKS.count[0] == 1
    assert "hung as they were forked: all of them start again" in capfd.readouterr().err


def test_loader_processes_that_hang_at_each_start_are_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loader_processes, "START_S", 0.5)
    monkeypatch.setattr(FORKS, "hanging", 9)
    batches = batches_of(0, Plain(Indices(SAMPLES)), data__workers=2)
    with pytest.raises(RuntimeError, match="hung as they were forked, 3 times; data"):
        epoch_of(batches, 0)


class Stuck(Indices):
    """A data set whose first sample never comes."""

    def __getitem__(self, _: int) -> Tensor:
        time.sleep(3600)
        raise AssertionError


def test_the_wait_for_a_loader_process_is_bounded() -> None:
    task = Plain(Indices(SAMPLES))
    task.eval = Stuck(1)
    config, plan = make_config_and_plan(1, data__workers=1, data__timeout_s=0.2)
    with pytest.raises(RuntimeError, match=r"within 0\.2 s \(data\.timeout_s\)"):
        list(EvaluationBatches(task, config, plan, 0, make_mover(task)))


class Ending(Indices):
    """A data set whose loader process ends as it receives it, before the whole is there."""

    def __reduce__(self) -> Any:
        return int, (Exit(), bytes(1 << 20))


class Exit:
    def __reduce__(self) -> Any:
        return os._exit, (1,)


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_a_loader_process_that_ends_as_it_starts_is_an_error(context: str) -> None:
    task = Plain(Indices(SAMPLES))
    task.eval = Ending(1)
    config, plan = make_config_and_plan(1, data__workers=1, data__worker_context=context)
    with pytest.raises(RuntimeError, match="ended before it had received its data set"):
        list(EvaluationBatches(task, config, plan, 0, make_mover(task)))


class Unsendable(Plain):
    """A task whose batches a loader process cannot send, as where /dev/shm is full."""

    @staticmethod
    def collate(_: Any) -> Any:
        return threading.Lock()


def test_a_batch_that_cannot_be_sent_is_an_error_at_once() -> None:
    batches = batches_of(0, Unsendable(Indices(SAMPLES)), data__workers=2, data__timeout_s=600)
    with pytest.raises(TypeError, match=r"(?s)in loader process \d.*cannot pickle '_thread\.lock'"):
        epoch_of(batches, 0)
    for process in multiprocessing.active_children():  # the error keeps their loader
        process.kill()
        process.join()


def test_an_error_of_a_queue_of_the_users_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError("cannot be pickled")
    except ValueError as error:
        loader_processes._send_error(None, 0, error, "an item")
    assert "ValueError: cannot be pickled" in capsys.readouterr().err


class Suspended(Indices):
    """A data set whose loader process is suspended after the last sample, in its queue."""

    def __getitem__(self, index: int) -> Tensor:
        if index == len(self) - 1:
            threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGSTOP)).start()
        return super().__getitem__(index)


# torch's iterator raises in its __del__, as a process of it was killed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_batch_that_a_suspended_process_has_announced_is_not_waited_for_without_end() -> None:
    task = Plain(Indices(SAMPLES))
    task.eval = Suspended(2)
    config, plan = make_config_and_plan(1, data__workers=1, data__timeout_s=1.0, eval__batch_size=1)
    batches = iter(EvaluationBatches(task, config, plan, 0, make_mover(task)))
    next(batches)
    (process,) = multiprocessing.active_children()
    while psutil.Process(process.pid).status() != psutil.STATUS_STOPPED:
        time.sleep(0.05)
    with pytest.raises(RuntimeError, match=r"within 1 s \(data\.timeout_s\)"):
        next(batches)


class Large(Indices):
    """A data set of bytes: the rest of a sample waits until a part of it was received."""

    def __getitem__(self, _: int) -> Any:
        return bytes(1 << 20)


class Unjoined(Plain):
    @staticmethod
    def collate(samples: Any) -> Any:  # type: ignore[override]
        return samples


# torch's iterator raises in its __del__, as a process of it was killed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("number", [0, 1])
def test_the_rest_of_a_batch_is_not_waited_for_where_its_loader_process_was_killed(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader_wait, "CHECK_S", 0.2)
    task = Unjoined(Indices(SAMPLES))
    task.eval = Large(9)
    config, plan = make_config_and_plan(1, data__workers=2, eval__batch_size=1)
    evaluation = EvaluationBatches(task, config, plan, 0, make_mover(task))
    batches = iter(evaluation)
    next(batches)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a fork server gets it in place of this process
    iterator: Any = evaluation._loader._iterator
    iterator._data_queue._reader.poll(60)  # one of them is within a batch
    process = sorted(multiprocessing.active_children(), key=lambda each: each.name)[number]
    process.kill()
    with pytest.raises(RuntimeError, match=rf"pid(\(s\))? {process.pid}\b"):
        list(batches)


def test_a_loader_process_that_pauses_between_two_epochs_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loader_wait, "CHECK_S", 0.2)
    task = Plain(Indices(SAMPLES))
    config, plan = make_config_and_plan(1, data__workers=1, data__timeout_s=600)
    batches = EvaluationBatches(task, config, plan, 0, make_mover(task))
    first = len(list(batches))
    (process,) = multiprocessing.active_children()
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    threading.Timer(1.0, os.kill, (process.pid, signal.SIGCONT)).start()
    assert len(list(batches)) == first


class Leaving(Indices):
    """A data set whose loader process exits as if all were well."""

    def __getitem__(self, _: int) -> Tensor:
        os._exit(0)


def test_a_loader_process_that_exits_without_an_error_is_noticed_before_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loader_wait, "CHECK_S", 0.2)
    task = Plain(Indices(SAMPLES))
    task.eval = Leaving(1)
    config, plan = make_config_and_plan(1, data__workers=1, data__timeout_s=600)
    with pytest.raises(RuntimeError, match=r"exited unexpectedly|with exit code 0"):
        list(EvaluationBatches(task, config, plan, 0, make_mover(task)))


class LeavingLater(Indices):
    """A data set whose loader process exits as if all were well, after the pass."""

    def __getitem__(self, index: int) -> Tensor:
        if index == SAMPLES - 1:
            threading.Timer(0.3, os._exit, (0,)).start()
        return super().__getitem__(index)


def test_a_loader_process_that_exits_between_two_passes_is_noticed_at_once() -> None:
    task = Plain(Indices(SAMPLES))
    task.eval = LeavingLater(SAMPLES)
    config, plan = make_config_and_plan(1, data__workers=1, data__timeout_s=600)
    batches = EvaluationBatches(task, config, plan, 0, make_mover(task))
    list(batches)
    (process,) = multiprocessing.active_children()
    process.join()
    with pytest.raises(RuntimeError, match=r"has ended with exit code 0 after a pass"):
        list(batches)


class EndingBatches:
    """What torch's iterator does while a loader process ends: its socket is closed already."""

    def __init__(self, end: Callable[[], None]) -> None:
        ending = multiprocessing.get_context("fork").Process(target=end)
        ending.start()
        self._workers = [ending]

    def __next__(self) -> Tensor:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")


def leave() -> None:
    time.sleep(0.3)


def be_killed() -> None:
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("end", "how"), [(leave, "has ended with exit code 0"), (be_killed, "was killed by SIGKILL")]
)
def test_a_loader_process_that_ends_before_its_batch_was_received_is_named(
    end: Callable[[], None], how: str
) -> None:
    with pytest.raises(RuntimeError, match=f"{how} before all of its batches"):
        next(loader_wait._retry(EndingBatches(end), 600))


class Joining(Task):
    """Has a `collate` that needs the task, and a `finish` that loader processes do not need."""

    model = nn.Identity()
    train = eval = (1, 2)  # type: ignore[assignment]

    def __init__(self) -> None:
        self.finish = lambda batch: batch

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return torch.zeros(())

    def collate(self, samples: Any) -> Any:  # type: ignore[override]
        return samples


def test_what_a_collate_needs_of_its_task_is_named_if_a_process_cannot_receive_it() -> None:
    task = Joining()
    require_picklable(task, "spawn")
    task.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(TaskError, match="worker_context: lock of the task is a lock, which"):
        require_picklable(task, "spawn")
