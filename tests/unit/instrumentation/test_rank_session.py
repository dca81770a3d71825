"""How steps, samples and values of a script are counted, without a supervisor."""

from __future__ import annotations

import math
import threading
from types import SimpleNamespace

import pytest
import torch

from distrain.runners.distributed import timing
from distrain.runners.instrumentation import logged_values, rank_session
from distrain.runners.instrumentation.loop_events import BACKWARD
from distrain.runners.instrumentation.named_phase import NamedPhase
from distrain.runners.instrumentation.rank_session import RankSession
from distrain.runners.instrumentation.step_counter import OPTIMIZER
from distrain.runners.instrumentation.tracked import Tracked, make_tracked
from distrain.runners.protocol.events import Logged, LoggedStats, Phase, ScriptSettings
from tests.support.reporters import RecordingReporter
from tests.support.runs import wait_until


class Sent(RecordingReporter):
    def totals(self, name: str) -> tuple[int, float]:
        found = [e.values[name] for e in self.events if isinstance(e, Logged) and name in e.values]
        return sum(each.count for each in found), sum(each.total or 0.0 for each in found)

    def steps(self, name: str) -> list[int]:
        return [e.step for e in self.events if isinstance(e, Logged) and name in e.values]


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
    for number, _ in enumerate(Tracked(batches(10, 4), session), 1):
        if number % accumulate == 0:
            session.step()
    session.flush()
    assert session.steps == 10 // accumulate
    assert sum(window.steps for window in sent.windows) == session.steps
    assert sum(window.samples for window in sent.windows) == 40
    assert sent.windows[-1].step == session.steps


def test_the_supervisor_can_ask_for_steps_that_no_window_has_reported_yet(sent: Sent) -> None:
    session = RankSession(sent, 0, window_s=60.0, skip_steps=2)
    for _ in range(7):
        session.step()
    assert sent.windows[-1].step == 2
    assert sent.count_steps() == 7


def test_batches_count_as_steps_where_step_is_never_called(sent: Sent) -> None:
    session = RankSession(sent, 0, window_s=0.0, skip_steps=3)
    for _ in Tracked(batches(8, 4), session):
        pass
    session.flush()
    assert session.steps == sum(window.steps for window in sent.windows) == 8
    assert sum(window.samples for window in sent.windows) == 32


def test_batches_of_a_loader_that_is_tracked_twice_count_once(sent: Sent) -> None:
    session = RankSession(sent, 0, window_s=0.0)
    for make in (list, iter):
        for _ in make_tracked(make_tracked(make(batches(5, 4)), session), session):
            pass
    session.end(has_failed=False)
    windows = sent.windows
    assert sum(window.steps for window in windows) == 10
    assert sum(window.samples for window in windows) == 40


def test_a_window_that_was_held_counts_as_warm_up_if_it_contains_any(sent: Sent) -> None:
    session = RankSession(sent, 0, window_s=0.0, skip_steps=3)
    for _ in Tracked(batches(rank_session.HELD_BATCHES + 2, 4), session):
        pass
    session.flush()
    first, *others = sent.windows
    assert first.steps == rank_session.HELD_BATCHES
    assert first.warmup
    assert not any(window.warmup for window in others)


def test_batches_that_were_reported_as_steps_stay_so_until_there_are_more_steps(
    sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_session, "HELD_BATCHES", 3)
    session = RankSession(sent, 0, window_s=0.0, skip_steps=0)
    for number, _ in enumerate(Tracked(batches(20, 4), session), 1):
        if number > 4 and number % 2 == 0:
            session.step()
    session.flush()
    steps = [window.step for window in sent.windows]
    assert steps == sorted(steps)
    assert (session.steps, sum(window.steps for window in sent.windows)) == (8, 8)
    assert sum(window.samples for window in sent.windows) == 80


def test_evaluation_batches_outside_of_track_are_not_samples(sent: Sent) -> None:
    session = RankSession(sent, 0, window_s=0.0, skip_steps=0)
    for _ in Tracked(batches(2, 4), session):
        session.step()
        for _ in batches(50, 4):
            pass
    session.flush()
    assert sum(window.samples for window in sent.windows) == 8


def test_time_between_two_loops_belongs_to_no_window(
    sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock[0])
    session = RankSession(sent, 0, window_s=0.5, skip_steps=0)
    for _ in range(3):
        for _ in Tracked(batches(40, 4), session):
            clock[0] += 1.0
        clock[0] += 1000.0  # an evaluation
    session.flush()
    assert sum(window.seconds for window in sent.windows) == pytest.approx(120.0)
    assert sum(window.samples for window in sent.windows) == 480


@pytest.mark.parametrize("kind", [0, OPTIMIZER])
def test_what_is_held_until_the_steps_are_known_is_sent_after_some_seconds(
    kind: int, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock[0])
    session = RankSession(sent, 0, window_s=0.1)
    session.automatic.expects_step = lambda: True
    if kind:
        session.loop.counter.finish_step(kind)  # the only one
    for _ in Tracked(batches(100, 4), session):
        clock[0] += 0.11
        session.log({"loss": 1})
        if clock[0] < rank_session.HELD_S:
            assert not sent.events
    assert sent.totals("loss")[0] > 90
    assert kind or sent.windows


def test_a_mistake_about_communication_does_not_lose_windows(sent: Sent) -> None:
    session = RankSession(sent, 0, window_s=0.0)
    session.automatic.communication = lambda: 1 / 0  # type: ignore[return-value]
    session.step()
    session.step()
    session.flush()
    assert sum(window.steps for window in sent.windows) == 2


def test_a_loop_that_is_left_early_ends_with_its_last_batch(sent: Sent) -> None:
    session = RankSession(sent, 0, window_s=0.0)
    for number, _ in enumerate(Tracked(batches(50, 4), session), 1):
        if number == 5:
            break
    session.flush()
    assert (session.steps, sum(window.samples for window in sent.windows)) == (5, 20)


@pytest.mark.parametrize(
    ("steps", "phases"), [(0, ["saving"]), (1, ["saving"]), (5, ["saving", "running"])]
)
def test_a_program_that_was_told_to_stop_saves_unless_it_goes_on_with_steps(
    steps: int, phases: list[str], sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = RankSession(sent, 0, window_s=0.0)
    session.step()
    monkeypatch.setattr(sent, "should_continue", lambda calls: False)
    assert session.should_stop()
    for _ in range(steps):  # one may end after it has asked
        session.step()
        assert session.should_stop()
    assert [event.phase for event in sent.events_of(Phase)] == phases


def test_a_loop_of_next_ends_with_its_last_batch_unless_the_program_fails(sent: Sent) -> None:
    for has_failed, steps in ((False, 3), (True, 2)):
        session = RankSession(sent, 0, window_s=0.0, skip_steps=0)
        given = iter(Tracked(batches(8, 4), session))
        for _ in range(3):
            next(given)
        session.end(has_failed=has_failed)
        assert session.steps == steps


def test_an_event_that_cannot_be_replayed_loses_no_other(
    sent: Sent, capsys: pytest.CaptureFixture[str]
) -> None:
    session = RankSession(sent, 0, window_s=10.0, skip_steps=0)
    for number in range(3):
        session.loop.note((BACKWARD, None, None if number else "x", None))
        session.step(4)
    session.end(has_failed=False)
    assert (session.steps, sum(window.samples for window in sent.windows)) == (3, 12)


def test_a_phase_of_another_thread_is_a_curve(sent: Sent) -> None:
    session = RankSession(sent, 0, window_s=0.0, skip_steps=0)
    session.step()

    def load() -> None:
        with NamedPhase(session, "data"):
            pass

    other = threading.Thread(target=load)
    other.start()
    other.join()
    session.step()
    session.end(has_failed=False)
    assert sum(window.data for window in sent.windows) == 0.0
    assert sent.totals("phase/data")[0] == 1


def test_values_are_sent_although_the_program_neither_steps_nor_logs_for_long(
    sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_session, "LATER_S", 0.0)
    session = RankSession(sent, 0, window_s=100.0)
    session.log({"loss": 2.0})
    session.log({"accuracy": 0.5})
    wait_until(lambda: sent.totals("accuracy") == (1, 0.5))


def test_a_device_is_asked_by_the_thread_that_logs_alone(
    sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread would end the capture of a CUDA graph."""
    asked = []
    event = SimpleNamespace(query=lambda: asked.append(threading.get_ident()))  # not ready yet
    monkeypatch.setattr(rank_session, "LATER_S", 0.0)
    monkeypatch.setattr(logged_values, "copy_value", lambda _, value: value)
    monkeypatch.setattr(logged_values, "_copy_to_host", lambda _: (None, event))
    session = RankSession(sent, 0, window_s=100.0)
    threads = threading.active_count()
    session.log({"loss": SimpleNamespace(device="cuda:0")})
    session.log({"accuracy": 0.5})
    wait_until(lambda: threading.active_count() == threads)
    assert asked == [threading.get_ident()]


def test_the_last_value_is_none_where_it_is_not_finite() -> None:
    stats = LoggedStats.of([1.0, math.nan, 3.0, math.inf])
    assert stats == LoggedStats(count=2, total=4.0, low=1.0, high=3.0, last=None)


def test_logged_values_whose_sum_is_too_large_are_not_finite() -> None:
    assert LoggedStats.of([1e308, 1e308]) == LoggedStats.of([math.inf, math.inf])


def test_settings_are_sent_once_although_both_loader_and_step_know_samples(sent: Sent) -> None:
    session = RankSession(sent, 0, window_s=0.0)
    for _ in Tracked(batches(50, 4), session):
        session.step(samples=4)
    session.flush()
    assert sum(isinstance(event, ScriptSettings) for event in sent.events) < 5
    assert sum(window.samples for window in sent.windows) == 200


def test_a_batch_without_a_tensor_makes_the_samples_unknown(sent: Sent) -> None:
    session = RankSession(sent, 0, window_s=0.0)
    for _ in Tracked([*batches(3, 4), "no tensor", *batches(3, 4)], session):
        session.step()
    session.flush()
    last = [event for event in sent.events if isinstance(event, ScriptSettings)][-1]
    assert "samples" not in last.sources
    assert "ambiguous" in last.missing["samples"]
    assert sent.windows[-1].warmup


def test_windows_without_known_samples_do_not_count_for_throughput(sent: Sent) -> None:
    session = RankSession(sent, 0, window_s=0.0, skip_steps=0)
    for _ in Tracked(["no", "tensors"], session):
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
    assert sent.steps("loss") == [1, 5, 6]


def test_no_values_are_left_out_where_another_thread_logs_while_they_are_sent(sent: Sent) -> None:
    session = RankSession(sent, 0, window_s=0.0)

    class Name:
        def __str__(self) -> str:  # it is asked for when values are sent
            other = threading.Thread(target=session.log, args=({"loss": 2.0}, 2))
            other.start()
            other.join()
            return "name"

    session.log({Name(): 0.0, "loss": 1.0}, step=1)  # type: ignore[dict-item]
    session.flush()
    assert sent.steps("loss") == [1, 2]


def test_values_are_kept_where_batches_come_but_no_step(sent: Sent) -> None:
    session = RankSession(sent, 0, window_s=0.0)
    for _ in range(5000):  # more than are noted before they are replayed
        session.loop.note((BACKWARD, 0.0, 0.0, None))
        session.loop.limit()
        session.log({"loss": 1.0})
    assert sent.steps("loss") == [*range(1, 5001)]


def test_values_before_the_first_step_lose_none_after_it(sent: Sent) -> None:
    session = RankSession(sent, 0, window_s=0.0)
    for _ in range(10):
        session.log({"loss": 1.0})
    for _ in range(12):
        session.step()
        session.log({"loss": 1.0, "rate": 1.0})
    session.flush()
    assert sent.steps("loss") == [*range(1, 11), *[10] * 10, 11, 12]
    assert sent.steps("rate") == [*range(1, 13)]


def test_steps_that_the_script_gives_are_kept_until_it_is_known_what_the_steps_are(
    sent: Sent,
) -> None:
    session = RankSession(sent, 0, window_s=0.0)
    for number, _ in enumerate(Tracked(batches(4, 4), session)):
        session.log({"loss": 1.0}, step=1000 + number)
        if number % 2:
            session.step()
    session.flush()
    assert sent.totals("loss") == (4, 4.0)
    assert sent.steps("loss")[0] >= 1000


def test_a_value_that_several_libraries_log_is_recorded_once(sent: Sent) -> None:
    session = RankSession(sent, 0, window_s=0.0)
    for step in range(5):
        session.log({"loss": 1.0, "lr": 0.5}, step, "SummaryWriter")
        session.log({"loss": 1.0, "norm": 2.0}, step, "wandb.log")
        if step >= 2:
            session.log({"lr": 0.5}, step)  # passed to distrain: goes first from here on
    session.flush()
    assert sent.totals("loss") == (5, 5.0)
    assert sent.totals("norm") == (5, 10.0)
    assert sent.totals("lr") == (5, 2.5)
    sources = [event.sources for event in sent.events if isinstance(event, ScriptSettings)]
    assert [each["values"] for each in sources] == [
        "SummaryWriter",
        "SummaryWriter, wandb.log",
        "SummaryWriter, wandb.log, distrain.log()",
    ]


def test_values_that_libraries_log_without_a_step_are_numbered(sent: Sent) -> None:
    session = RankSession(sent, 0, window_s=0.0)
    for value in range(3):
        session.log({"loss": value}, None, "wandb.log")
    session.flush()
    assert sent.steps("loss") == [1, 2, 3]
