"""The protocol: messages survive encoding unchanged, windows merge without loss."""

from __future__ import annotations

from math import inf, isclose, nan
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrain.runners.protocol import events
from distrain.runners.protocol.events import (
    OVERLAPPING,
    PHASES,
    WINDOW_SUMS,
    LoggedStats,
    Metric,
    Window,
    decode,
    encode,
)
from tests.support.records import make_window

EVENTS: list[events.Event] = [
    events.Hello(rank=3, pid=12, host="a", device="cuda:0", device_uuid="GPU-1", token="t"),
    events.Phase(time=1.5, rank=0, phase="saving", step=7),
    events.Facts(
        time=1.0,
        train_samples=10,
        eval_samples=2,
        steps_per_epoch=5,
        total_steps=50,
        parameters=9,
        backend="gloo",
        versions={"torch": "2.6"},
        notices=["mind the gap"],
    ),
    events.Evaluation(
        time=2.0,
        epoch=1,
        step=5,
        samples=2,
        seconds=0.1,
        metrics={"loss": Metric(None, 2), "top1": Metric(1.0, 2)},
    ),
    events.Saved(time=2.0, epoch=1, step=5, path="checkpoints/last.pt", seconds=0.1, bytes=9),
    events.Notice(time=2.0, text='"quoted" → and\nbroken', level="info"),
    events.NonFinite(time=2.0, rank=1, step=4, loss="nan"),
    events.Failure(time=2.0, rank=1, error="ValueError", message="no", traceback="…", usage=True),
    events.Finished(time=2.0, rank=1, step=50, stopped=True),
    events.Exited(time=2.0, rank=1, pid=12, code=-9),
    events.Signalled(time=2.0, signal=15),
    events.Job(time=2.0, id="7", state="PENDING", reason="Resources", nodes=["n1"], jobs_ahead=0),
    events.Requeue(),
    events.Rendezvous(address="10.0.0.1:4711"),
    events.Welcome(run_id="r", node=1, config="[train]", plan="{}", rendezvous="10.0.0.1:4711"),
    events.Printed(rank=1, text="half a li"),
    events.NodeFinished(),
    events.RunEnded(status="failed", reason="rank 1: no"),
    events.Attempt(time=2.0, number=1, step=5, lost=8, reason="NODE_FAIL"),
    events.Sampled(
        host=events.HostSample(time=2.0, cpu=3.0, memory_used=4.0, memory_total=5.0, load=0.5),
        gpus=[events.GpuSample(time=2.0, gpu=1, uuid="GPU-1", name="H200", processes={7: None})],
        ranks=[events.RankSample(time=2.0, rank=1, cpu=99.0, rss=1e9, processes=2)],
    ),
    events.Stop(now=True),
    events.Stopping(rank=1, step=4),
    events.StopSupport(rank=1),
    events.Logged(time=2.0, rank=1, step=4, values={"loss": LoggedStats(2, 3.0, 1.0, 2.0, 1.0)}),
    events.RankEvaluation(time=2.0, rank=1, number=1, step=4, samples=9, metrics={"top1": 0.5}),
    events.ScriptSettings(time=2.0, rank=1, config={"lr": 0.1}, sources={"steps": "step()"}),
    events.RankFacts(time=2.0, rank=1, step=10, has_process_group=False, saved=["/tmp/model.pt"]),
    events.StopAt(step=6, save=False),
    events.StackRequest(number=3),
    events.OutsideRequest(number=3, pids={1: 4711}),
    events.Stacks(
        time=2.0,
        rank=1,
        number=3,
        threads=[events.ThreadStack(name="MainThread", frames=[events.Frame("a.py", 3, "f")])],
    ),
]


losses = st.none() | st.floats(0, 100)
windows = st.builds(
    make_window,
    steps=st.integers(0, 1000),
    samples=st.integers(0, 10**9),
    loss_sum=losses,
    seconds=st.floats(0, 100),
    data=st.floats(0, 10),
    skipped=st.integers(0, 5),
    loss_weight=st.none() | st.floats(0, 100),
    warmup=st.booleans(),
).map(lambda w: msgspec.structs.replace(w, loss_min=w.loss_sum, loss_max=w.loss_sum))


def test_every_message_is_covered_here() -> None:
    assert {type(event) for event in [*EVENTS, make_window()]} == set(get_args(events.Message))


@pytest.mark.parametrize("event", [*EVENTS, make_window()], ids=lambda event: type(event).__name__)
def test_a_line_decodes_to_the_sent_event(event: events.Event) -> None:
    line = encode(event)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line) == event


@pytest.mark.parametrize("value", [nan, inf, -inf])
def test_a_loss_that_is_not_finite_arrives_as_missing(value: float) -> None:
    heard = decode(encode(make_window(loss_sum=value, loss_min=value, loss_max=value)))
    assert heard == make_window(loss_sum=None, loss_min=None, loss_max=None)


@given(windows, windows, windows)
def test_windows_merge_in_any_grouping(a: Window, b: Window, c: Window) -> None:
    left, right = a.merged(b).merged(c), a.merged(b.merged(c))
    for name in Window.__struct_fields__:
        ours, theirs = getattr(left, name), getattr(right, name)
        assert ours == theirs or isclose(ours, theirs, rel_tol=1e-12, abs_tol=1e-12)


@given(st.lists(windows, min_size=1, max_size=20))
def test_a_merged_window_keeps_totals_and_extremes(parts: list[Window]) -> None:
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.merged(part)
    for name in ("steps", "samples", "skipped"):
        assert getattr(whole, name) == sum(getattr(part, name) for part in parts)
    for name in ("seconds", "weight", *PHASES, *OVERLAPPING):
        assert isclose(getattr(whole, name), sum(getattr(part, name) for part in parts))
    assert set(WINDOW_SUMS) == {"steps", "samples", "skipped", "seconds", *PHASES, *OVERLAPPING}
    known = [part.loss_sum for part in parts if part.loss_sum is not None]
    if len(known) == len(parts):
        assert (whole.loss_min, whole.loss_max) == (min(known), max(known))
    else:
        assert (whole.loss_sum, whole.loss_min, whole.loss_max) == (None, None, None)


def test_a_least_loss_of_zero_survives_merging() -> None:
    zero = make_window(loss_sum=0.0, loss_min=0.0, loss_max=0.0)
    assert zero.merged(make_window()).loss_min == 0.0


def test_warm_up_never_slips_into_throughput_by_merging() -> None:
    assert make_window(warmup=True).merged(make_window(step=2)).warmup


def test_a_metric_without_samples_has_no_value() -> None:
    assert Metric(0.0, 0).value is None
    assert Metric(None, 5).value is None
    assert Metric(3.0, 4).value == 0.75


@pytest.mark.parametrize("step", [1 << 63, -(1 << 63), 10**30])
def test_a_number_that_no_record_can_store_is_refused(step: int) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode(encode(make_window(step=step)))


def test_no_message_is_nested_deeply() -> None:
    line = b'{"type":"script_settings","time":0,"rank":0,"config":{"a":%s}}'
    assert events.decode(line % b"1")
    for value in (b"[]", b"{}", b"[" * 500 + b"]" * 500):
        with pytest.raises(msgspec.ValidationError):
            events.decode(line % value)
