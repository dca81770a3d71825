"""Scales, ticks, smoothing and the raster, without a terminal."""

from __future__ import annotations

import math
import re
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrain.runners import formatting
from distrain.tui import marks
from distrain.tui.data.chart import Chart, ChartLine
from distrain.tui.plotting.area import TWO
from distrain.tui.plotting.canvas import Canvas, column_spans
from distrain.tui.plotting.characters import choose, replacements
from distrain.tui.plotting.chart_layout import CURSOR, ChartLayout, colour_of
from distrain.tui.plotting.drawn_line import PlotLook
from distrain.tui.plotting.scale import (
    Scale,
    axis_labels,
    fit_scale,
    tick_labels,
    ticks,
    value_ticks,
)
from distrain.tui.plotting.smoothing import WEIGHTS, moving_average


def line(x: list[float], y: list[float], rank: int = 0) -> ChartLine:
    return ChartLine(f"rank {rank}", marks.rank_mark(rank), x, y)


def text(runs: list[tuple[str, int]]) -> str:
    return "".join(part for part, _ in runs)


def legend(picture: ChartLayout, cursor: float | None = None) -> list[str]:
    return [text(runs) for runs in picture.legend(cursor)]


def dots(canvas: Canvas) -> list[str]:
    return [text(runs) for runs in canvas.lines()]


# --- scales and ticks ---


def test_ticks_of_values_are_round_and_few() -> None:
    found = next(value_ticks(Scale(0.0, 2.3), 5))
    assert [tick.label for tick in found] == ["0", "0.5", "1.0", "1.5", "2.0"]


def test_ticks_of_steps_are_whole_at_any_zoom() -> None:
    found = next(ticks("step", 7.0, 9.0, 20))
    assert [tick.label for tick in found] == ["7", "8", "9"]


def test_large_steps_are_short_and_distinct() -> None:
    assert tick_labels([0, 5_000, 10_000], 5_000) == ["0", "5k", "10k"]
    assert tick_labels([2_500_000, 3_000_000], 500_000) == ["2.5M", "3.0M"]
    assert tick_labels([10_000_001, 10_000_002], 1) == ["10,000,001", "10,000,002"]
    assert tick_labels([2e-5, 3e-5], 1e-5) == ["2e-05", "3e-05"]
    assert tick_labels([0, 5e307, 1e308], 5e307) == ["0", "5.0e+307", "1.0e+308"]


def test_a_log_axis_is_ticked_at_decades_or_within_one() -> None:
    assert [t.label for t in next(value_ticks(Scale(1e-3, 10, True), 5))] == [
        *("0.001", "0.01", "0.1", "1", "10")
    ]
    assert [t.label for t in next(value_ticks(Scale(2.1, 2.4, True), 4))] == [
        "2.1",
        "2.2",
        "2.3",
        "2.4",
    ]


def test_clock_times_are_whole_minutes_and_midnight_shows_its_day(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")  # half an hour off: whole hours are whole here
    formatting.time.tzset()
    try:
        start = 1_785_176_700.0  # 23:55
        found = next(ticks("time", start, start + 1_200, 5))
        tick_labels = [tick.label for tick in found]
        assert tick_labels == ["23:55", "Jul 28", "00:05", "00:10", "00:15"]
    finally:
        monkeypatch.undo()
        formatting.time.tzset()


def test_durations_have_one_unit() -> None:
    found = next(ticks("duration", 0.0, 3 * 3600.0, 4))
    assert [tick.label for tick in found] == ["0 h", "1 h", "2 h", "3 h"]
    assert [t.label for t in next(ticks("duration", 0.0, 90.0, 4))] == [
        "0 s",
        "30 s",
        "1:00",
        "1:30",
    ]


@given(
    kind=st.sampled_from(["step", "epoch", "time", "duration"]),
    low=st.floats(0, 2e9),
    width=st.floats(1.0, 1e9),
    cells=st.integers(1, 200),
)
def test_labels_under_an_axis_never_touch(kind: str, low: float, width: float, cells: int) -> None:
    end = -2
    for label in axis_labels(kind, Scale(low, low + width), cells):
        assert label.start >= max(0, end + 2)
        end = label.start + len(label.text)
        assert end <= cells


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(0, 1e300), st.integers(1, 6))
def test_a_fitted_scale_contains_its_values(low: float, more: float, most: int) -> None:
    scale = fit_scale(low, low + more, most)
    assert math.isfinite(scale.low)
    assert scale.low < scale.high
    assert len(next(ticks("value", scale.low, scale.high, most), [])) <= most
    if abs(low) < 1e100 and more < 1e100:
        slack = 1e-6 * max(abs(low), more)
        assert scale.low <= low + slack
        assert low + more <= scale.high + slack


def test_a_scale_stays_where_it_is_while_a_curve_moves_a_little() -> None:
    assert fit_scale(0.11, 2.31, 4) == fit_scale(0.10, 2.34, 4)


def test_values_that_a_log_scale_lacks_are_not_drawn() -> None:
    places = Scale(1, 100, True).places([1, 10, 100, 0, -1], 3)
    assert places[:3] == [0, 1, 2]
    assert all(map(math.isnan, places[3:]))


# --- smoothing ---


def test_a_moving_average_is_that_of_its_definition() -> None:
    y = [1.0, 3.0, nan, 2.0, 5.0]
    found = moving_average(y, 0.5)
    weights = {0: [(0, 1.0)], 1: [(0, 0.5), (1, 1.0)], 3: [(0, 0.25), (1, 0.5), (3, 1.0)]}
    for at, parts in weights.items():
        whole = sum(weight for _, weight in parts)
        assert found[at] == pytest.approx(sum(y[i] * weight for i, weight in parts) / whole)
    assert math.isnan(found[2])
    assert moving_average([], 0.9) == []


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.sampled_from(WEIGHTS))
def test_a_moving_average_lies_within_its_values(y: list[float], weight: float) -> None:
    slack = 1e-9 * max(map(abs, y))
    assert all(min(y) - slack <= mean <= max(y) + slack for mean in moving_average(y, weight))


# --- the raster ---


def test_a_diagonal_is_one_connected_line() -> None:
    canvas = Canvas(2, 1)
    canvas.curve(column_spans([0, 3], [3, 0]), 7)
    assert dots(canvas) == ["⡠⠊"]


def test_extremes_survive_many_points_in_one_column() -> None:
    canvas = Canvas(1, 2)
    canvas.curve(column_spans([0.0] * 1000, [4.0] * 500 + [0.0] + [4.0] * 498 + [7.0]), 7)
    assert dots(canvas) == ["⡇", "⡇"]


def test_extremes_that_points_stand_for_are_drawn() -> None:
    canvas = Canvas(1, 2)
    canvas.curve(column_spans([0.0], [4.0], [0.0], [7.0]), 7)
    assert dots(canvas) == ["⡇", "⡇"]


@pytest.mark.parametrize("hole", [nan, inf, -inf])
def test_values_that_are_not_finite_are_gaps(hole: float) -> None:
    canvas = Canvas(3, 1)
    canvas.curve(column_spans([0, 1, 2, 4, 5], [0, 0, hole, 0, 0]), 7)
    assert dots(canvas) == ["⠉ ⠉"]


def test_a_dashed_line_has_gaps_but_loses_no_spike() -> None:
    canvas = Canvas(4, 1)
    canvas.curve(column_spans(range(8), [3, 3, 3, 3, 3, 0, 3, 3]), 7, pattern=(1, 2))
    assert dots(canvas) == ["⡀⡀⡸⡆"]


def test_where_curves_meet_they_take_turns_so_that_none_hides_another() -> None:
    canvas = Canvas(4, 1)
    for colour in (7, 8):
        canvas.curve(column_spans([0, 7], [0, 0]), colour)
    assert canvas.lines() == [[("⠉", 7), ("⠉", 8), ("⠉", 7), ("⠉", 8)]]


def test_upper_lines_hide_lower_ones() -> None:
    below, above = Canvas(2, 1), Canvas(2, 1)
    below.curve(column_spans([0, 3], [0, 0]), 1)
    above.curve(column_spans([0, 1], [3, 3]), 2)
    below.overlay(above)
    assert below.lines() == [[("⣀", 2), ("⠉", 1)]]


def test_points_outside_are_cut_off() -> None:
    canvas = Canvas(2, 1)
    canvas.curve(column_spans([-1e6, 1e6], [0, 0]), 7)
    canvas.curve(column_spans([0, 3], [99, 99]), 7)
    assert dots(canvas) == ["⠉⠉"]


# --- the picture ---


def test_the_legend_has_the_run_first_and_names_every_line_as_long_as_there_is_room() -> None:
    lines = [line([1, 2], [0.5, 0.25], rank) for rank in range(8)]
    chart = Chart("loss", [*lines, ChartLine("all", marks.RUN_MARK, [1, 2], [0.5, 0.125])])
    assert legend(ChartLayout(chart, 50, 12)) == [
        "○ all 0.1250  ● rank 0 0.2500  ■ rank 1 0.2500",
        "▲ rank 2 0.2500  ◆ rank 3 0.2500  ▼ rank 4 0.2500",
        "★ rank 5 0.2500  ✚ rank 6 0.2500  ✖ rank 7 0.2500",
    ]
    assert legend(ChartLayout(chart, 50, 6)) == [
        "rank ○ all  ● 0  ■ 1  ▲ 2  ◆ 3  ▼ 4  ★ 5  ✚ 6  ✖ 7"
    ]
    assert legend(ChartLayout(chart, 40, 5)) == [
        "rank ○ all  ● 0  ■ 1  ▲ 2  ◆ 3  ▼ 4  ★ 5",
        "✚ 6  ✖ 7",
    ]
    assert legend(ChartLayout(chart, 8, 4)) == ["9 lines"]


def test_the_legend_shows_the_values_at_the_cursor() -> None:
    picture = ChartLayout(
        Chart("loss", [line([0, 10], [0.5, 0.25]), line([8, 10], [1, 2], 1)]), 60, 9
    )
    assert legend(picture, 1.0) == ["● rank 0 0.5000  ■ rank 1 –"]
    assert (" 1 ".strip(), CURSOR) in picture.axis_lines(1.0)[-1]


@pytest.mark.parametrize("y", [[1.0, 1.5, 2.0], [0.0, 5e-4, 0.1], [-0.5, -5e-4, 1.0]])
def test_the_legend_has_room_for_values_with_more_digits_than_the_extremes(y: list[float]) -> None:
    shown = formatting.figure(y[1])
    picture = ChartLayout(Chart("lr", [line([0, 1, 2], y), line([0, 1, 2], y, 1)]), 60, 9)
    assert legend(picture, 1.0) == [f"● rank 0 {shown}  ■ rank 1 {shown}"]


def test_each_line_ends_with_its_mark_even_where_all_end_alike() -> None:
    chart = Chart("loss", [line([0, 100], [1.0, 0.5], rank) for rank in range(8)])
    shown = "".join(map(text, ChartLayout(chart, 60, 14).plot()))
    assert all(shape in shown for shape in marks.SHAPES)


def test_a_last_value_that_is_not_a_number_is_not_hidden_by_an_older_one() -> None:
    chart = Chart("loss", [line([1, 2], [0.5, nan])])
    assert legend(ChartLayout(chart, 40, 9)) == ["● rank 0 –"]


def test_the_raw_line_is_behind_the_smoothed_one() -> None:
    noisy = [float(at % 2) for at in range(100)]
    lines = ChartLayout(
        Chart("loss", [line(list(range(100)), noisy)]), 40, 9, PlotLook(smooth=3)
    ).plot()
    assert {colour for texts in lines for _, colour in texts} >= {
        colour_of(0),
        colour_of(0, behind=True),
    }


def test_a_log_axis_reports_that_it_leaves_values_out() -> None:
    chart = Chart("loss", [line([1, 2, 3], [-1.0, 0.0, 10.0])])
    assert (
        ChartLayout(chart, 40, 9, PlotLook(log_y=True))
        .notes()[0]
        .startswith("log y, without values ≤ 0 · ")
    )
    none = ChartLayout(Chart("loss", [line([1], [-1.0])]), 40, 9, PlotLook(log_y=True))
    assert "no values above 0" in "".join(map(text, none.plot()))


def test_points_come_in_any_order_and_without_an_x() -> None:
    picture = ChartLayout(Chart("loss", [line([3, nan, 1, 2], [3.0, 9.0, 1.0, 2.0])]), 40, 9)
    assert picture.extent == (1, 3)
    assert legend(picture) == ["● rank 0 3"]


numbers = st.floats() | st.sampled_from([0.0, 1.0, nan, inf, -inf, 1e308, -1e308, 5e-324])


@given(
    points=st.lists(st.tuples(numbers, numbers, numbers, numbers), max_size=12),
    width=st.integers(1, 60),
    height=st.integers(1, 16),
    look=st.builds(
        PlotLook,
        log_y=st.booleans(),
        smooth=st.integers(0, 3),
        cut=st.booleans(),
        y_span=st.none() | st.tuples(st.floats(0.1, 1), st.floats(2, 1e9)),
        hidden=st.frozensets(st.sampled_from(["a", "b"])),
    ),
    cursor=st.none() | numbers,
    span=st.none() | st.tuples(st.floats(0, 10), st.floats(10, 20)),
    kind=st.sampled_from(["step", "epoch"]),
    stacked=st.booleans(),
)
def test_nothing_crashes_or_is_wider_than_its_space(
    points: list[tuple[float, float, float, float]],
    width: int,
    height: int,
    look: PlotLook,
    cursor: float | None,
    span: tuple[float, float] | None,
    kind: str,
    stacked: bool,
) -> None:
    x, y, low, high = (list(values) for values in zip(*points, strict=True)) if points else [[]] * 4
    lines = [
        ChartLine("a", marks.rank_mark(0), x, y, low, high),
        ChartLine("b", marks.RUN_MARK, x, y),
    ]
    chart = Chart("any", lines, kind, span=span, stacked=stacked)
    picture = ChartLayout(chart, width, height, look)
    shown = [*picture.legend(cursor), *picture.plot(), *picture.axis_lines(cursor)]
    assert all(len(text(runs)) <= width for runs in shown)
    assert len(shown) <= height
    assert picture.drawn == sorted(picture.drawn)


def test_outliers_are_cut_off_and_marked_at_the_edge() -> None:
    noisy = [1.0 + 0.1 * math.sin(at) for at in range(200)]
    chart = Chart("loss", [line(list(range(200)), [*noisy[:100], 90.0, *noisy[101:]])])
    cut, whole = ChartLayout(chart, 60, 12), ChartLayout(chart, 60, 12, PlotLook(cut=False))
    assert cut.notes() == [
        "outliers cut off · values at step 199",
        "outliers cut · at step 199",
        "outliers cut",
    ]
    assert whole.notes()[0] == "values at step 199"
    assert cut.y.high < 3 < 90 <= whole.y.high
    assert text(cut.plot()[0]).count("▴") == 1
    assert "▴" not in text(whole.plot()[0])


def test_parts_of_a_whole_are_stacked_with_their_shares() -> None:
    x = [float(at) for at in range(50)]
    parts = [line(x, [2.0] * 50), line(x, [6.0] * 50, 1)]
    picture = ChartLayout(Chart("step time", parts, stacked=True), 40, 10)
    assert legend(picture) == ["● rank 0 2 (25 %)   ■ rank 1 6 (75 %)"]
    column = [runs[1] for runs in picture.plot()]  # from 10 down to 0
    assert [text[0] for text, _ in column] == [" ", "▅", "█", "█", "█", "▃", "█"]
    low, high = colour_of(0), colour_of(1)
    assert [colour for _, colour in column[1:]] == [*[high] * 4, low + TWO * high, low]


def test_marks_of_lines_that_end_alike_are_in_one_column_in_the_order_of_their_values() -> None:
    lines = [line([0, 100], [1.0, 1.0 + rank / 1e6], rank) for rank in range(4)]
    lines.append(line([0, 100], [0.0, 0.0], 4))
    shown = [text(runs) for runs in ChartLayout(Chart("loss", lines), 60, 14).plot()]
    ends = [(row, shape) for row, runs in enumerate(shown) for shape in runs[59:]]
    assert [shape for _, shape in ends] == ["◆", "▲", "■", "●", "▼"]
    assert [row for row, _ in ends[:4]] == [2, 3, 4, 5]


@pytest.mark.parametrize(
    ("environment", "characters"),
    [
        ({"TERM": "xterm-256color", "LANG": "en_GB.UTF-8"}, "braille"),
        ({"TERM": "linux", "LANG": "C.UTF-8"}, "blocks"),
        ({"TERM": "xterm", "LANG": "C"}, "ascii"),
        ({"TERM": "xterm", "LANG": "en_GB.UTF-8", "LC_ALL": "POSIX"}, "ascii"),
        ({"TERM": "xterm"}, "braille"),
    ],
)
def test_plots_have_characters_that_the_terminal_can_show(
    environment: dict[str, str], characters: str
) -> None:
    assert choose("auto", environment) == characters
    assert choose("blocks", environment) == "blocks"
    chart = Chart("loss", [line([0, 10, 20], [1.0, 3.0, 2.0], rank) for rank in range(8)])
    picture = ChartLayout(chart, 60, 14)
    lines = [*picture.legend(), *picture.plot(), *picture.axis_lines()]
    shown = "".join(map(text, lines)).translate(replacements(choose("auto", environment)))
    shown = re.sub("[•♦♣♠☼►◄▲▼○]", "", shown)  # in code page 437 these have control codes
    shown.encode({"braille": "utf-8", "blocks": "cp437", "ascii": "ascii"}[characters])
