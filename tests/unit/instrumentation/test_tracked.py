"""Given a loader in `track`, then a program can do with it what it can do without a run."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from distrain.runners.instrumentation.rank_session import RankSession
from distrain.runners.instrumentation.step_counter import OPTIMIZER
from distrain.runners.instrumentation.tracked import make_tracked
from distrain.runners.instrumentation.training_loop import MOST_EVENTS
from distrain.runners.protocol.reporter import NullReporter


@pytest.fixture
def session() -> RankSession:
    return RankSession(NullReporter(), 0, window_s=0.0)


class Loader:
    """Begins again in each pass, and gives its batches itself."""

    def __init__(self) -> None:
        self.passes = 0

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Loader:
        self.passes += 1
        self._left = 2
        return self

    def __next__(self) -> int:
        if not self._left:
            raise StopIteration
        self._left -= 1
        return self._left

    def close(self) -> None:
        pass


def generate() -> Iterator[int]:
    yield from (1, 2)


@pytest.mark.parametrize(
    ("make", "use"),
    [
        (lambda: [1, 2], lambda it: (bool(it), len(it), it[0], it[-1], it.count(1))),
        (lambda: [1, 2], lambda it: [*copy.copy(it), *copy.deepcopy(it)]),
        (lambda: [1, 2], lambda it: pickle.loads(pickle.dumps(it))),
        (list, bool),
        (lambda: [1, 2], lambda it: hasattr(it, "__array__")),
        (lambda: [1, 2], next),
        (Loader, lambda it: [*it, "again", *it, it.passes, len(it)]),
        (generate, lambda it: (bool(it), next(it), iter(it) is it, [*it], [*it], it.gi_frame)),
        (generate, len),
        (generate, lambda it: it[0]),
        (lambda: 7, lambda it: [*it]),
    ],
)
def test_it_behaves_as_the_loader(
    make: Callable[[], Any], use: Callable[[Any], Any], session: RankSession
) -> None:
    def attempt(loader: Any) -> Any:
        try:
            return use(loader)
        except Exception as error:
            return type(error)

    assert attempt(make_tracked(make(), session)) == attempt(make())


def test_an_attribute_that_is_set_is_that_of_the_loader(session: RankSession) -> None:
    loader = Loader()
    for given in (loader, iter(loader)):
        make_tracked(given, session).passes = 7
        assert loader.passes == 7
        assert len([*make_tracked(given, session)]) == 2
        loader.passes = 0


def test_workers_begin_to_load_when_the_iterator_is_made(session: RankSession) -> None:
    loader = Loader()
    iter(make_tracked(loader, session))
    assert loader.passes == 1


def test_an_iterator_that_is_left_and_taken_up_again_gives_all_its_batches(
    session: RankSession,
) -> None:
    batches = make_tracked(iter([1, 2, 3]), session)
    for _ in batches:
        break
    assert [*batches] == [2, 3]
    session.flush()
    assert session.steps == 3


@pytest.mark.parametrize("method", ["begin_track", "finish_batch"])
def test_a_mistake_of_ours_does_not_reach_the_program(
    method: str, session: RankSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise RuntimeError

    monkeypatch.setattr(session, method, fail)
    monkeypatch.setattr(session.loop, "stamp", fail)
    for number in make_tracked([1, 2, 3], session):
        if number == 2:
            break
    assert [*make_tracked([1, 2, 3], session)] == [1, 2, 3]


def test_batches_that_no_step_follows_do_not_fill_the_memory(session: RankSession) -> None:
    session.loop.counter.finish_step(OPTIMIZER)
    for _ in make_tracked(range(2 * MOST_EVENTS), session):
        assert len(session.loop.events.others) <= MOST_EVENTS


def test_the_first_batches_can_be_compared_with_those_of_other_ranks(session: RankSession) -> None:
    seen = []
    session.automatic.add_batch = lambda _, batch: seen.append(batch)
    batches = [torch.zeros(2), torch.ones(2)]
    assert [*make_tracked(batches, session)] == seen == batches
