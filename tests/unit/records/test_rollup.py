"""Roll-ups: exact totals, no lost extremes, few points for any number of rows."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from math import isclose, isnan
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distrain.runners.protocol.events import GpuSample, HostSample, RankSample, Window
from distrain.runners.records.timeseries.appender import Appender
from distrain.runners.records.timeseries.curves import Curve, read_curve, read_curves
from distrain.runners.records.timeseries.levels import FACTOR
from distrain.runners.records.timeseries.rollup import Series
from distrain.runners.records.timeseries.rows import count_rows, read_latest, read_totals
from distrain.runners.records.timeseries.run_curve import RANK_COLUMNS, over_ranks
from distrain.runners.records.timeseries.series import GPU, HOST, PROCS, SERIES, STEPS
from tests.support.records import make_window

EXACT = ("steps", "samples", "skipped", "loss_samples", "timed_samples")


def some_windows(seed: int, counts: Iterable[int]) -> list[Window]:
    """Return random windows of several ranks in mixed order."""
    rng = random.Random(seed)
    arrivals = [rank for rank, count in enumerate(counts) for _ in range(count)]
    rng.shuffle(arrivals)
    step = dict.fromkeys(arrivals, 0)
    windows = []
    for rank in arrivals:
        steps = rng.randint(1, 5)
        step[rank] += steps
        loss = None if rng.random() < 0.1 else rng.uniform(0, 9)
        windows.append(
            make_window(
                rank,
                step[rank],
                steps,
                samples=rng.randint(1, 100),
                loss_sum=loss,
                loss_min=loss,
                loss_max=loss,
                lr=rng.random(),
                seconds=rng.uniform(0.01, 1),
                data=rng.random(),
                skipped=rng.randint(0, 1),
                loss_weight=rng.choice([None, 0.5, 30.0]),
                warmup=step[rank] < 10,
            )
        )
    return windows


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    with closing(empty()) as db:
        yield db


def empty() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:")
    for series in SERIES:
        for statement in series.schema():
            db.execute(statement)
    return db


def stored(windows: list[Window], batches: Iterable[int] = ()) -> sqlite3.Connection:
    """Return a database of these windows, written in batches of these sizes and one of the rest."""
    db = empty()
    appender = Appender(STEPS)
    for size in [*batches, len(windows)]:
        appender.append(db, windows[:size])
        windows = windows[size:]
    return db


def of_rank(windows: list[Window], rank: int) -> list[Window]:
    return [window for window in windows if window.rank == rank]


def expected(windows: list[Window]) -> dict[str, float]:
    """Compute the roll-ups by their definition."""
    losses = [w.loss_sum for w in windows if w.loss_sum is not None]
    rates = [w.samples / w.seconds for w in windows if not w.warmup]
    found = {
        "steps": sum(w.steps for w in windows),
        "samples": sum(w.samples for w in windows),
        "skipped": sum(w.skipped for w in windows),
        "loss_samples": sum(w.weight for w in windows if w.loss_sum is not None),
        "timed_samples": sum(w.samples for w in windows if not w.warmup),
        "seconds": sum(w.seconds for w in windows),
        "data": sum(w.data for w in windows),
        "data_per_step_max": max(w.data / w.steps for w in windows),
    }
    if losses:
        found |= {"loss_sum": sum(losses), "loss_min": min(losses), "loss_max": max(losses)}
    if rates:
        found |= {"samples_per_s_min": min(rates), "samples_per_s_max": max(rates)}
    return found


def added_up(curve: Curve) -> dict[str, float]:
    """Aggregate each column of a curve as its name requires."""
    found = {}
    for name, column in curve.columns.items():
        present = [value for value in column if not isnan(value)]
        how = min if name.endswith("_min") else max if name.endswith("_max") else sum
        if present:
            found[name] = how(present)
    return found


def assert_same(found: dict[str, Any], wanted: dict[str, float]) -> None:
    for name, value in wanted.items():
        if name in EXACT:
            assert found[name] == value, name
        else:
            assert isclose(found[name], value, rel_tol=1e-9), name


counts = st.lists(st.integers(0, 200), min_size=1, max_size=4).filter(any)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    counts=counts,
    batches=st.lists(st.integers(0, 100), max_size=10),
    points=st.integers(2, 300),
)
def test_curves_and_totals_are_exact_at_every_level(
    seed: int, counts: list[int], batches: list[int], points: int
) -> None:
    windows = some_windows(seed, counts)
    db = stored(windows, batches)
    assert list(count_rows(db, STEPS)) == [rank for rank, count in enumerate(counts) if count]
    for rank in list(count_rows(db, STEPS)):
        mine = of_rank(windows, rank)
        curve = read_curve(db, STEPS, rank, points=points)
        assert len(curve) <= points
        assert len(curve) > min(len(mine), points) / FACTOR - 1
        assert_same(added_up(curve), expected(mine))
        totals = read_totals(db, STEPS)[rank]
        assert_same(totals, expected(mine))
        assert totals["step"] == mine[-1].step
        assert totals["lr"] == curve["lr"][-1] == mine[-1].lr


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(1, 700),
    ends=st.tuples(st.integers(-10, 2500), st.integers(-10, 2500)),
    points=st.integers(2, 40),
    axis=st.sampled_from(["step", "time"]),
)
def test_a_zoomed_curve_covers_exactly_its_range(
    seed: int, count: int, ends: tuple[int, int], points: int, axis: str
) -> None:
    windows = some_windows(seed, [count])
    db = stored(windows)
    offset = 1000 if axis == "time" else 0
    start, end = min(ends) + offset, max(ends) + offset
    inside = [w for w in windows if start <= getattr(w, axis) <= end]
    curve = read_curve(db, STEPS, 0, points=points, axis=axis, start=start, end=end)
    assert len(curve) <= points
    if inside:
        assert_same(added_up(curve), expected(inside))
        assert curve["step"][-1] == inside[-1].step
    else:
        assert len(curve) == 0


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    counts=counts,
    starts=st.lists(st.integers(-10, 2500), min_size=1, max_size=4),
)
def test_recent_totals_cover_exactly_the_rows_since_a_time_of_each_rank(
    seed: int, counts: list[int], starts: list[int]
) -> None:
    windows = some_windows(seed, counts)
    since = {rank: 1000.0 + start for rank, start in enumerate(starts)}
    columns = ("steps", "seconds", "loss_sum", "loss_samples", "data")
    found = read_totals(stored(windows), STEPS, columns, since)
    recent = {
        rank: [window for window in of_rank(windows, rank) if window.time >= start]
        for rank, start in since.items()
    }
    assert found.keys() == {rank for rank, some in recent.items() if some}
    for rank, totals in found.items():
        whole = expected(recent[rank])
        assert tuple(totals) == columns
        assert_same(totals, {name: whole[name] for name in columns if name in whole})


def test_a_level_is_eight_rows_of_the_level_below(db: sqlite3.Connection) -> None:
    Appender(STEPS).append(db, [make_window(0, step) for step in range(1, 64 * 8 + 2)])
    rows = db.execute("SELECT level, count(*), sum(steps) FROM steps_rollup GROUP BY level")
    assert rows.fetchall() == [(1, 64, 512), (2, 8, 512), (3, 1, 512)]


def test_reading_is_range_scans_only(db: sqlite3.Connection) -> None:
    Appender(STEPS).append(db, [make_window(0, step) for step in range(1, 2000)])
    queries: list[str] = []
    db.set_trace_callback(queries.append)
    list(count_rows(db, STEPS))
    read_totals(db, STEPS)
    read_totals(db, STEPS, ["loss_sum"], {0: 1500.0})
    read_curve(db, STEPS, 0, points=50, start=100, end=900)
    read_latest(db, STEPS)
    read_latest(db, STEPS, [0, 1])
    db.set_trace_callback(None)
    assert queries
    for query in set(queries):
        plan = [row[-1] for row in db.execute(f"EXPLAIN QUERY PLAN {query}")]
        of_tables = [step for step in plan if "steps" in step]
        assert of_tables, (query, plan)
        assert all("USING PRIMARY KEY" in step for step in of_tables), (query, plan)


def test_many_ranks_need_no_more_queries_than_one(db: sqlite3.Connection) -> None:
    def queries(read: Callable[[sqlite3.Connection], object]) -> int:
        asked: list[str] = []
        db.set_trace_callback(asked.append)
        read(db)
        db.set_trace_callback(None)
        return len(asked)

    readings: list[Callable[[sqlite3.Connection], object]] = [
        lambda db: read_latest(db, STEPS),
        lambda db: read_totals(db, STEPS),
        lambda db: read_totals(db, STEPS, ["loss_sum"], dict.fromkeys(range(9), 1850.0)),
        lambda db: read_curves(db, STEPS, axis="time", start=1850.0, end=1950.0, points=4),
    ]
    appender = Appender(STEPS)
    appender.append(db, [make_window(0, step) for step in range(1, 1000)])
    of_one = [queries(read) for read in readings]
    appender.append(
        db, [make_window(rank, step) for rank in range(1, 9) for step in range(1, 1000)]
    )
    assert [queries(read) for read in readings] == of_one


def test_one_bad_loss_in_a_thousand_is_missing_but_does_not_hide_the_rest(
    db: sqlite3.Connection,
) -> None:
    windows = [make_window(0, step) for step in range(1, 1001)]
    windows[500] = make_window(0, 501, loss_sum=None, loss_min=None, loss_max=None)
    Appender(STEPS).append(db, windows)
    zoomed = read_curve(db, STEPS, 0, columns=["loss", "loss_min"], start=500, end=502)
    assert [isnan(value) for value in zoomed["loss"]] == [False, True, False]
    assert isnan(zoomed["loss_min"][1])
    whole = read_curve(db, STEPS, 0, columns=["loss", "samples", "loss_samples"], points=2)
    assert list(whole["loss"]) == [2.0] * len(whole)
    assert sum(whole["samples"]) - sum(whole["loss_samples"]) == 4


def test_nan_is_stored_as_missing(db: sqlite3.Connection) -> None:
    nan = float("nan")
    Appender(STEPS).append(db, [make_window(0, 1, loss_sum=nan, loss_min=nan, loss_max=nan)])
    assert read_latest(db, STEPS)[0] == make_window(
        0, 1, loss_sum=None, loss_min=None, loss_max=None
    )


@pytest.mark.parametrize("huge", [1e308, -1e308])
def test_losses_whose_sum_is_too_large_are_missing_and_the_others_keep_their_mean(
    db: sqlite3.Connection, huge: float
) -> None:
    windows = [make_window(0, step) for step in range(1, 65)]
    for step in range(9, 17):  # one roll-up, and all of that above
        windows[step - 1] = make_window(0, step, loss_sum=huge, loss_min=huge, loss_max=huge)
    Appender(STEPS).append(db, windows)
    curve = read_curve(db, STEPS, 0, columns=["loss", "loss_samples", "loss_min"], points=8)
    assert [isnan(loss) for loss in curve["loss"]] == [False, True, *[False] * 6]
    assert curve["loss_samples"][1] == 0
    assert curve["loss_min"][1] == huge
    total = read_totals(db, STEPS)[0]
    assert (total["loss_sum"], total["loss_samples"], total["samples"]) == (None, 0, 256)
    assert set(run_of(windows, points=8)["loss"]) >= {2.0}


def test_figures_that_a_gpu_does_not_report_stay_missing(db: sqlite3.Connection) -> None:
    samples = [
        GpuSample(time=float(t), gpu=1, uuid="GPU-1", name="H", power=None, memory_used=5.0)
        for t in range(100)
    ]
    Appender(GPU).append(db, samples)
    curve = read_curve(db, GPU, 1, columns=["power", "power_max", "memory_used"], points=20)
    assert all(isnan(value) for value in [*curve["power"], *curve["power_max"]])
    assert set(curve["memory_used"]) == {5.0}
    assert read_totals(db, GPU)[1]["power_sum"] is None


SAMPLES: list[tuple[Series[Any], msgspec.Struct]] = [
    (STEPS, make_window(2, 5, warmup=True)),
    (
        GPU,
        GpuSample(time=1.0, gpu=2, uuid="GPU-1", name="H", power=9.5, processes={7: None, 8: 9}),
    ),
    (HOST, HostSample(time=1.0, cpu=50.0, memory_used=1.0, memory_total=2.0, load=0.5)),
    (PROCS, RankSample(time=1.0, rank=2, cpu=99.0, rss=1e9, processes=3)),
]


@pytest.mark.parametrize(("series", "item"), SAMPLES, ids=lambda value: getattr(value, "name", ""))
def test_stored_items_are_read_back_unchanged(
    db: sqlite3.Connection, series: Series[Any], item: msgspec.Struct
) -> None:
    Appender(series).append(db, [item])
    (key,) = list(count_rows(db, series))
    assert read_latest(db, series)[key] == item
    assert read_curve(db, series, key).columns.keys() == set(series.names)


def test_the_mean_of_a_gauge_is_over_samples_not_over_rollups(db: sqlite3.Connection) -> None:
    samples = [
        HostSample(time=float(t), cpu=float(t), memory_used=1.0, memory_total=2.0, load=0.0)
        for t in range(100)
    ]
    Appender(HOST).append(db, samples)
    curve = read_curve(db, HOST, 0, columns=["cpu", "cpu_min", "cpu_max"], points=4)
    assert curve.stride == 64
    assert curve["cpu"][0] == sum(range(64)) / 64
    assert list(curve["cpu_min"]) == [0.0, 64.0]
    assert list(curve["cpu_max"]) == [63.0, 99.0]


# --- all ranks together ----------------------------------------------------------------------


def run_of(windows: list[Window], **how: Any) -> Curve:
    db = stored(windows)
    return over_ranks(
        read_curve(db, STEPS, rank, columns=RANK_COLUMNS, **how) for rank in count_rows(db, STEPS)
    )


def test_the_curve_of_the_run_weights_ranks_by_their_samples() -> None:
    windows = [
        make_window(rank, step, samples=samples, loss_sum=samples * loss)
        for step in range(1, 101)
        for rank, samples, loss in [(0, 30, 1.0), (1, 10, 5.0)]
    ]
    run = run_of(windows)
    assert list(run["loss"]) == [2.0] * 100
    assert list(run["samples"]) == [40.0] * 100
    assert list(run["samples_per_s"]) == [80.0] * 100


def test_the_loss_of_a_rank_is_divided_by_the_weights_of_its_batches() -> None:
    windows = [
        make_window(rank, step, samples=20, loss_sum=weight * loss, loss_weight=weight)
        for step in range(1, 101)
        for rank, weight, loss in [(0, 30.0, 1.0), (1, 10.0, 5.0)]
    ]
    for points in (4, 100):  # from roll-ups, and from raw rows
        assert set(read_curve(stored(windows), STEPS, 1, points=points)["loss"]) == {5.0}
        run = run_of(windows, points=points)
        assert (set(run["loss"]), sum(run["samples"])) == ({2.0}, 4000.0)
        assert set(run["rank_loss_high"]) == {5.0}


def test_windows_that_end_at_different_steps_are_divided_by_steps() -> None:
    windows = [make_window(0, step, 10) for step in range(10, 101, 10)]
    windows += [make_window(1, step, 4, samples=4, seconds=0.2) for step in range(4, 101, 4)]
    run = run_of(windows)
    assert list(run["step"]) == [float(step) for step in range(10, 101, 10)]
    assert list(run["samples"]) == pytest.approx([50.0] * 10)
    assert list(run["samples_per_s"]) == pytest.approx([100.0] * 10)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), counts=counts, points=st.integers(2, 100))
def test_the_curve_of_the_run_contains_all_that_every_rank_has_reported(
    seed: int, counts: list[int], points: int
) -> None:
    windows = some_windows(seed, counts)
    ranks = [of_rank(windows, rank) for rank in range(len(counts)) if counts[rank]]
    last = max(rank[-1].step for rank in ranks)
    # A last window that brings every rank to the same step.
    windows += [make_window(rank[0].rank, last + 1, last + 1 - rank[-1].step) for rank in ranks]
    run = run_of(windows, points=points)
    assert isclose(sum(run["samples"]), sum(w.samples for w in windows), rel_tol=1e-9)
    lows = [w.loss_min for w in windows if w.loss_min is not None]
    assert min(value for value in run["loss_min"] if not isnan(value)) == min(lows)


def test_extremes_of_the_run_keep_their_steps() -> None:
    windows = [
        make_window(rank, step, loss_min=step + rank, loss_max=10 * step + rank)
        for step in range(1, 6)
        for rank in (0, 1)
    ]
    run = run_of(windows)
    assert list(run["loss_min"]) == [1, 2, 3, 4, 5]
    assert list(run["loss_max"]) == [11, 21, 31, 41, 51]


def test_the_curve_of_the_run_ends_at_the_slowest_rank() -> None:
    windows = [make_window(0, step) for step in range(1, 11)]
    windows += [make_window(1, step) for step in range(1, 8)]
    run = run_of(windows)
    assert list(run["step"]) == [float(step) for step in range(1, 8)]


def test_there_is_no_rate_while_a_rank_warms_up() -> None:
    windows = [make_window(0, step, warmup=step <= 2) for step in range(1, 6)]
    windows += [make_window(1, step, warmup=step <= 3) for step in range(1, 6)]
    rates = run_of(windows)["samples_per_s"]
    assert [isnan(rate) for rate in rates] == [True, True, True, False, False]


def test_a_run_without_windows_has_an_empty_curve() -> None:
    assert len(over_ranks([])) == 0
