"""The data of a run's screen: frames and charts of a record, without a terminal."""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Callable
from math import isclose, isnan, nan

import msgspec
import psutil
import pytest

from distrain.runners.protocol.events import Attempt, GpuSample, HostSample, Job, RankSample
from distrain.runners.records.state import RunError
from distrain.runners.records.timeseries.curves import Curve
from distrain.tui.data.chart_catalog import CHART_KINDS
from distrain.tui.data.chart_lines import outliers
from distrain.tui.data.chart_source import ChartView
from distrain.tui.data.failure import CodePlace, advice_for, find_place, repeats
from distrain.tui.data.run_comparison import ComparisonFeed
from distrain.tui.data.run_feed import RunFeed
from distrain.tui.marks import RUN_MARK
from distrain.tui.plotting.drawn_line import PlotLook
from distrain.tui.widgets.run_header import header
from tests.support.records import RunBuilder

Make = Callable[..., RunBuilder]


def test_the_mean_of_few_ranks_is_drawn_and_each_can_be_shown_alone(make: Make) -> None:
    run = make(world=3).steps(40)
    charts = RunFeed(run.record).read(ChartView(plots=("loss", "throughput"))).charts
    for name in ("loss", "throughput"):
        lines = charts[name].lines
        assert [line.name for line in lines] == ["mean of ranks", "rank 0", "rank 1", "rank 2"]
        assert [line.is_for_solo for line in lines] == [False, True, True, True]
        assert len({line.mark for line in lines}) == 4
        assert all(line.x[-1] == 40 for line in lines)
        assert PlotLook().shown(lines) == lines[:1]
        alone = PlotLook(hidden=frozenset({"mean of ranks", "rank 0", "rank 2"}))
        assert alone.shown(lines) == [lines[2]]
    assert isclose(charts["loss"].lines[0].y[-1], 1 / 40)


@pytest.mark.parametrize(
    ("values", "far"),
    [
        ([1.0, 1.01, 0.99, 1.0, 1.02], []),
        ([1.0, 1.01, 0.99, 2.0, 1.02], [3]),
        ([1.0, 5.0, 1.01, 0.99, 2.0, 1.02], [1, 4]),
        ([1.0, 2.0, 9.0], []),  # too few to tell
        ([1.0, nan, 1.0, 1.0, 1.0, 1.04], []),  # less than a twentieth
    ],
)
def test_a_rank_that_is_far_from_most_has_a_line_of_its_own(
    values: list[float], far: list[int]
) -> None:
    curves = {rank: Curve({"loss": array("d", [value])}) for rank, value in enumerate(values)}
    assert outliers(curves, "loss") == far


@pytest.mark.parametrize(("axis", "last"), [("step", 35.0), ("epoch", 3.5)])
def test_x_is_by_step_or_epoch(axis: str, last: float, make: Make) -> None:
    run = make().steps(30).evaluation(top1=0.5).steps(5)
    view = ChartView(plots=("loss", "evaluation"), axis=axis)
    charts = RunFeed(run.record).read(view).charts
    assert charts["loss"].lines[0].x[-1] == last
    assert charts["evaluation"].lines[0].x[-1] == last * 30 / 35
    compared = ComparisonFeed([run.record], [RUN_MARK]).read(view).charts
    assert [chart.lines[0].x[-1] for chart in compared.values()] == [last, last * 30 / 35]


def test_the_part_of_an_epoch_is_counted_also_after_a_resume_within_one(make: Make) -> None:
    facts = make().record.state.facts
    assert facts is not None
    resumed = msgspec.structs.replace(facts, start_step=25, start_epoch=2, start_epoch_steps=5)
    assert [resumed.epoch_at(step) for step in (25, 27, 30, 40)] == [2.5, 2.7, 3.0, 4.0]
    assert resumed.step_at(2.7) == pytest.approx(27)


def test_a_part_of_an_epoch_is_shown_alone(make: Make) -> None:
    view = ChartView(plots=("loss",), axis="epoch", span=(1.2, 1.5))
    frame = RunFeed(make().steps(40).record).read(view)
    assert list(frame.charts["loss"].lines[0].x) == [1.2, 1.3, 1.4, 1.5]


def test_logged_values_are_by_epoch_too(make: Make) -> None:
    run = make()
    for _ in range(4):
        run.steps(4).logged(score=1.0)
    view = ChartView(plots=("logged/score",), axis="epoch", span=(0.9, 1.6))
    feeds = RunFeed(run.record), ComparisonFeed([run.record], [RUN_MARK])
    for feed in feeds:
        chart = feed.read(view).charts["logged/score"]
        assert (chart.x_axis, list(chart.lines[0].x)) == ("epoch", [1.0, 1.5])


def test_nothing_of_an_ended_run_looks_live(make: Make) -> None:
    run = make(name="dead").steps(10)
    job = Job(time=run.now, id="7", state="RUNNING", nodes=["a"], ends=time.time() + 9000)
    run.writer.set_state(job=job)
    now = RunFeed(run.record).read(ChartView(plots=())).snapshot
    assert "job 7 RUNNING, 2 h" in header(now, run.record.config, 120)[0].plain
    run.end("stopped", reason="stopped at once")
    now = RunFeed(run.record).read(ChartView(plots=())).snapshot
    line = header(now, run.record.config, 120)[0].plain
    assert "job 7, RUNNING when last seen" in line
    assert " left" not in line
    assert [rank.info.phase for rank in now.ranks] == ["gone"] * 2


def test_another_axis_is_shown_before_the_record_is_read_again(make: Make) -> None:
    run = make().steps(20)
    feed, by_epoch = RunFeed(run.record), ChartView(plots=("loss",), axis="epoch")
    assert feed.has_changed()
    feed.read(ChartView(plots=("loss",)))
    assert not feed.has_changed()
    run.steps(20)
    at_once = feed.read(by_epoch).charts["loss"].lines[0]
    assert (len(at_once.x), at_once.x[-1]) == (20, 2.0)
    assert feed.has_changed()
    assert feed.read(by_epoch).charts["loss"].lines[0].x[-1] == 4.0


def test_a_curve_goes_back_where_ranks_restart(make: Make) -> None:
    run = make().steps(20).evaluation(top1=0.5).steps(10).evaluation(top1=0.6)
    view, begun = ChartView(plots=("loss", "evaluation")), run.now + 5.0
    feed, comparer = RunFeed(run.record), ComparisonFeed([run.record], [RUN_MARK])
    feed.read(view)
    comparer.read(view)
    run.writer.add(Attempt(time=begun, number=1, step=20, lost=30))
    run.writer.commit()
    assert feed.has_changed()
    assert comparer.has_changed()
    frame = feed.read(view)
    assert {line.x[-1] for line in frame.charts["loss"].lines} == {20.0}
    assert list(frame.charts["evaluation"].lines[0].x) == [20.0]
    assert (frame.snapshot.step, frame.snapshot.eta) == (20, None)
    assert [rank.info.phase for rank in frame.snapshot.ranks] == ["starting"] * 2
    compared = comparer.read(view).runs[0]
    assert [found.step for found in compared.evaluations] == [20]
    assert compared.curve["step"][-1] == compared.row.step == 20
    # and on from there
    run.step, run.now = 20, begun
    run.steps(5)
    assert list(feed.read(view).charts["loss"].lines[0].x) == [float(n) for n in range(1, 26)]


def test_a_span_shows_only_its_part(make: Make) -> None:
    run = make().steps(40)
    frame = RunFeed(run.record).read(ChartView(plots=("loss",), span=(10.0, 20.0)))
    x = frame.charts["loss"].lines[0].x
    assert (min(x), max(x)) == (10.0, 20.0)
    assert frame.charts["loss"].span == (10.0, 20.0)


def test_a_part_without_values_does_not_say_that_the_run_has_none(make: Make) -> None:
    view = ChartView(plots=("loss",), span=(50.0, 60.0))
    run = make().steps(40)
    for feed in RunFeed(run.record), ComparisonFeed([run.record], [RUN_MARK]):
        assert feed.read(view).charts["loss"].empty_text == "no values in this range"


@pytest.mark.parametrize("is_script", [False, True])
def test_samples_by_time_are_placed_on_the_axis_of_steps(is_script: bool, make: Make) -> None:
    if is_script:  # it reports no steps, but logs one value in each
        run = make(script={"path": "train.py"})
        for _ in range(40):
            run.logged(score=1.0)
    else:
        run = make().steps(40)
    for second in range(1, 4):
        at = run.began + second
        run.writer.add(HostSample(time=at, cpu=50.0, memory_used=1.0, memory_total=2.0, load=1.0))
    run.writer.commit()
    frame = RunFeed(run.record).read(ChartView(plots=("host cpu",)))
    [line] = frame.charts["host cpu"].lines
    assert [round(x) for x in line.x] == [10, 20, 30]  # ten steps a second
    assert list(line.y) == [50.0] * 3
    measured = {"loss", "throughput", "lr", "phases"}
    assert frame.known_charts == {"host cpu", "host memory"} | (set() if is_script else measured)


def test_phases_are_milliseconds_of_a_step(make: Make) -> None:
    frame = RunFeed(make().steps(40).record).read(ChartView(plots=("phases",)))
    found = {line.name: line.y[-1] for line in frame.charts["phases"].lines}
    assert {name: round(value, 6) for name, value in found.items()} == {
        "data": 10,
        "forward": 20,
        "backward": 30,
        "comm wait": 20,
        "optimizer": 10,
        "other": 10,
    }


def test_evaluations_show_shares_of_right_answers_first(make: Make) -> None:
    run = make().steps(20).evaluation(loss=0.5, top1=0.9)
    frame = RunFeed(run.record).read(ChartView(plots=("evaluation", "eval loss")))
    assert [line.name for line in frame.charts["evaluation"].lines] == ["top1"]
    assert [line.name for line in frame.charts["eval loss"].lines] == ["loss"]


def test_metrics_that_only_later_evaluations_have_are_drawn(make: Make) -> None:
    run = make().steps(20).evaluation(top1=0.5).steps(20).evaluation(loss=0.5, top5=0.9)
    frame = RunFeed(run.record).read(ChartView(plots=("evaluation", "eval loss")))
    lines = [*frame.charts["evaluation"].lines, *frame.charts["eval loss"].lines]
    assert [(line.name, list(line.x)) for line in lines] == [
        ("top1", [20]),
        ("top5", [40]),
        ("loss", [40]),
    ]


@pytest.mark.parametrize("name", CHART_KINDS)
def test_a_run_without_events_has_empty_charts(name: str, make: Make) -> None:
    frame = RunFeed(make().record).read(ChartView(plots=(name,)))
    chart = frame.charts[name]
    assert chart.empty_text
    assert all(isnan(y) for line in chart.lines for y in line.y)


def test_changes_are_seen_without_a_query(make: Make) -> None:
    run = make().steps(5)
    feed = RunFeed(run.record)
    assert feed.has_changed()
    feed.read(ChartView())
    assert not feed.has_changed()
    run.steps(1)
    assert feed.has_changed()


def test_gpus_come_with_history_and_the_names_of_their_processes(make: Make) -> None:
    run = make().steps(5)
    for second in range(3):
        sample = GpuSample(
            time=run.began + second,
            gpu=0,
            uuid="GPU-1",
            name="Fake",
            utilisation=10.0 * second,
            processes={os.getpid(): 1000, 2**22 + 1: None},
        )
        run.writer.add(sample)
    run.writer.add(RankSample(time=run.began, rank=0, cpu=99.0, rss=3e8, processes=1))
    run.writer.commit()
    frame = RunFeed(run.record).read(ChartView())
    [gauge] = frame.nodes[0].gpus
    assert gauge.sample.utilisation == 20.0
    assert gauge.sample.power is None
    assert list(gauge.history["utilisation"]) == [0.0, 10.0, 20.0]
    assert frame.process_names[0, os.getpid()] == psutil.Process().name()
    assert frame.process_names[0, 2**22 + 1] == "process"
    assert frame.snapshot.ranks[0].cpu == 99.0


def test_a_gpu_that_stops_reporting_is_lost_and_one_that_never_reported_is_not(
    make: Make,
) -> None:
    run = make()
    for second in range(300):  # longer than a history
        power = 100.0 if second < 10 else None
        for gpu, watts in ((0, power), (1, None)):
            sample = GpuSample(
                time=run.began + second, gpu=gpu, uuid=f"GPU-{gpu}", name="Fake", power=watts
            )
            run.writer.add(sample)
    run.writer.commit()
    assert [gauge.lost for gauge in RunFeed(run.record).read(ChartView()).nodes[0].gpus] == [
        True,
        False,
    ]


def test_processes_of_an_ended_run_are_not_named_by_their_pid(make: Make) -> None:
    run = make()
    ours = {os.getpid(): None}
    run.writer.add(GpuSample(time=run.began, gpu=0, uuid="GPU-0", name="Fake", processes=ours))
    run.writer.commit()
    watched = RunFeed(run.record)
    assert (0, os.getpid()) in watched.read(ChartView()).process_names
    run.end()
    assert (0, os.getpid()) in watched.read(ChartView()).process_names, "the name is kept"
    assert RunFeed(run.record).read(ChartView()).process_names == {}


def test_a_diagnosis_comes_with_the_frame_and_again_at_the_end(make: Make) -> None:
    run = make().steps(2)
    feed = RunFeed(run.record)
    assert feed.read(ChartView()).diagnosis.kind == "unknown"
    run.steps(38)
    # what is a moment old will do while it trains
    assert feed.read(ChartView()).diagnosis.kind == "unknown"
    run.end()
    assert feed.read(ChartView()).diagnosis.kind == "nothing"


def test_advice_fits_the_failure() -> None:
    memory = RunError(rank=0, type="OutOfMemoryError", message="CUDA out of memory. Tried to …")
    assert "batch_size" in advice_for(memory)
    assert "traceback" in advice_for(RunError(rank=0, type="ValueError", message="odd"))
    silent = RunError(rank=0, type="Exit", message="exited with code 3 without reporting an error")
    assert "traceback" not in advice_for(silent)
    assert "train." not in advice_for(memory, is_script=True)
    port = RunError(rank=0, type="DistNetworkError", message="port 29500: Address already in use")
    assert "another port will be chosen" in advice_for(port)
    assert "will be chosen" not in advice_for(port, is_script=True), "it chooses its port itself"
    sizes = "killed by SIGABRT: [enforce fail at pair.cc] op.preamble.length <= op.nbytes. 9 vs 4"
    for message in (sizes, "the ranks call different collectives as number 207"):
        assert "the same collectives" in advice_for(RunError(rank=0, type="Exit", message=message))


def test_the_place_of_a_failure_is_the_last_line_of_the_users_code() -> None:
    trace = """Traceback (most recent call last):
  File "/home/me/project/train.py", line 41, in <module>
    main()
  File "/home/me/project/lib/net.py", line 16, in loss
    return self.model(x).sum()
           ^^^^^^^^^^^^^
  File "/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py", line 134, in forward
    return F.linear(input, self.weight, self.bias)
RuntimeError: mat1 and mat2 shapes cannot be multiplied
"""
    place = find_place(trace, "/home/me/project")
    assert place == CodePlace("lib/net.py", 16, "loss", "return self.model(x).sum()")
    assert place.describe() == "lib/net.py:16 in loss"
    loader = (
        trace
        + """Caught ValueError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", line 3, in _loop
    data = fetcher.fetch(index)
  File "/home/me/data.py", line 7, in __getitem__
    raise ValueError(index)
ValueError: 3
"""
    )
    assert find_place(loader) == CodePlace(
        "/home/me/data.py", 7, "__getitem__", "raise ValueError(index)"
    )
    syntax = '[rank0]:   File "/home/me/a.py", line 2\n[rank0]:     x = = 1\nSyntaxError: invalid'
    assert find_place(syntax) == CodePlace("/home/me/a.py", 2, "", "x = = 1")
    library = trace[trace.index('  File "/venv') :]
    assert find_place(library, "/home/me").line == 134  # type: ignore[union-attr]
    assert find_place("killed\n") is None


def test_a_line_of_the_log_that_repeats_the_error_is_recognised() -> None:
    error = RunError(rank=0, type="ValueError", message="a bad\nlabel")
    assert repeats("[rank0]: ValueError: a bad label", error)
    assert not repeats("epoch 3", error)
