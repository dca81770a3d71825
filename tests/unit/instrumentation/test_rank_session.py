"""How steps, samples and values of a script are counted, without a supervisor."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from distrain.runners.instrumentation import rank_session
from distrain.runners.instrumentation.rank_session import RankSession, count_samples
from distrain.runners.protocol.events import Event, Logged, ScriptSettings, Window
from distrain.runners.protocol.reporter import NullReporter


class Sent(NullReporter):
    def __init__(self) -> None:
        self.events: list[Event] = []

    def send(self, event: Event) -> None:
        self.events.append(event)

    @property
    def windows(self) -> list[Window]:
        return [event for event in self.events if isinstance(event, Window)]

    def totals(self, name: str) -> tuple[int, float]:
        found = [e.values[name] for e in self.events if isinstance(e, Logged) and name in e.values]
        return sum(each.count for each in found), sum(each.total or 0.0 for each in found)


@pytest.fixture
def sent() -> Sent:
    return Sent()


def batches(count: int, size: int) -> list[torch.Tensor]:
    return [torch.zeros(size, 3) for _ in range(count)]


@pytest.mark.parametrize("accumulate", [1, 2, 5])
def test_samples_are_credited_to_the_step_that_they_are_part_of(
    accumulate: int, sent: Sent
) -> None:
    session = RankSession(sent, 0, window_s=0.0, skip_steps=0)
    for number, _ in enumerate(session.track(batches(10, 4)), 1):
        if number % accumulate == 0:
            session.step()
    session.flush()
    assert session.steps == 10 // accumulate
    assert sum(window.steps for window in sent.windows) == session.steps
    assert sum(window.samples for window in sent.windows) == 40
    assert sent.windows[-1].step == session.steps


def test_batches_count_as_steps_where_step_is_never_called(sent: Sent) -> None:
    session = RankSession(sent, 0, window_s=0.0, skip_steps=3)
    for _ in session.track(batches(8, 4)):
        pass
    session.flush()
    assert session.steps == sum(window.steps for window in sent.windows) == 8
    assert sum(window.samples for window in sent.windows) == 32


def test_batches_that_were_reported_as_steps_stay_so(
    sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_session, "HELD_STEPS", 3)
    session = RankSession(sent, 0, window_s=0.0, skip_steps=0)
    for number, _ in enumerate(session.track(batches(6, 4)), 1):
        if number > 4:
            session.step()
    session.flush()
    steps = [window.step for window in sent.windows]
    assert steps == sorted(steps)
    assert sum(window.samples for window in sent.windows) == 24


def test_evaluation_batches_outside_of_track_are_not_samples(sent: Sent) -> None:
    session = RankSession(sent, 0, window_s=0.0, skip_steps=0)
    for _ in session.track(batches(2, 4)):
        session.step()
        for _ in batches(50, 4):
            pass
    session.flush()
    assert sum(window.samples for window in sent.windows) == 8


def test_time_between_two_loops_belongs_to_no_window(
    sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(rank_session.time, "perf_counter", lambda: clock[0])
    session = RankSession(sent, 0, window_s=0.5, skip_steps=0)
    for _ in range(3):
        for _ in session.track(batches(40, 4)):
            clock[0] += 1.0
        clock[0] += 1000.0  # an evaluation
    session.flush()
    assert sum(window.seconds for window in sent.windows) == pytest.approx(120.0)
    assert sum(window.samples for window in sent.windows) == 480


def test_a_loop_that_is_left_early_ends_with_its_last_batch(sent: Sent) -> None:
    session = RankSession(sent, 0, window_s=0.0)
    for number, _ in enumerate(session.track(batches(50, 4)), 1):
        if number == 5:
            break
    session.flush()
    assert (session.steps, sum(window.samples for window in sent.windows)) == (5, 20)


def test_settings_are_sent_once_although_both_loader_and_step_know_samples(sent: Sent) -> None:
    session = RankSession(sent, 0, window_s=0.0)
    for _ in session.track(batches(50, 4)):
        session.step(samples=4)
    session.flush()
    assert sum(isinstance(event, ScriptSettings) for event in sent.events) < 5
    assert sum(window.samples for window in sent.windows) == 200


def test_a_batch_without_a_tensor_makes_the_samples_unknown(sent: Sent) -> None:
    session = RankSession(sent, 0, window_s=0.0)
    for _ in session.track([*batches(3, 4), "no tensor", *batches(3, 4)]):
        session.step()
    session.flush()
    last = [event for event in sent.events if isinstance(event, ScriptSettings)][-1]
    assert last.sources["samples"] == ""
    assert sent.windows[-1].warmup


def test_windows_without_known_samples_do_not_count_for_throughput(sent: Sent) -> None:
    session = RankSession(sent, 0, window_s=0.0, skip_steps=0)
    for _ in session.track(["no", "tensors"]):
        session.step()
    session.flush()
    assert all(window.warmup and window.samples == 0 for window in sent.windows)


def test_all_values_are_reported_however_many_in_a_window(sent: Sent) -> None:
    session = RankSession(sent, 0, window_s=1000.0)
    session.log({"first": 1.0})  # the first report is sent at once
    for number in range(1000):
        session.log({"loss": torch.tensor(float(number)), "constant": 2})
    session.log({"loss": float("nan")})
    session.flush()
    assert sent.totals("loss") == (1000, 499500.0)
    assert sent.totals("constant") == (1000, 2000.0)


def test_a_step_before_the_last_one_is_left_out(sent: Sent) -> None:
    session = RankSession(sent, 0, window_s=0.0)
    for step in (1, 5, 3, 6):
        session.log({"loss": step}, step=step)
    session.flush()
    assert [event.step for event in sent.events if isinstance(event, Logged)] == [1, 5, 6]


@pytest.mark.parametrize(
    ("batch", "samples"),
    [
        (torch.zeros(3, 2), 3),
        ((torch.zeros(4, 2), torch.zeros(4)), 4),
        ({"ids": torch.zeros(5, 2), "mask": None}, 5),
        (["a text", torch.zeros(6)], 6),
        (torch.tensor(1.0), None),
        (["only", "texts"], None),
        (7, None),
    ],
)
def test_the_samples_of_a_batch_are_those_of_its_first_tensor(batch: Any, samples: Any) -> None:
    assert count_samples(batch) == samples
