"""Several runs compared: their curves, their metric, the differences of their configs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from rich.style import Style
from rich.text import Text

from distrain.runners import formatting
from distrain.runners.analysis.comparison import recorded_runs, sentences
from distrain.runners.protocol.events import ScriptSettings
from distrain.runners.records.snapshot import Follower
from distrain.tui import marks
from distrain.tui.data.chart_source import ChartView
from distrain.tui.data.config_fields import used_fields
from distrain.tui.data.draft import Draft
from distrain.tui.data.run_comparison import (
    ComparisonFeed,
    ComparisonFrame,
    SettingValues,
    distinct_names,
    read_settings,
    setting_text,
    setting_values,
)
from distrain.tui.data.run_rows import RunRow, live_row
from distrain.tui.marks import RunMarks
from distrain.tui.screens.config_screen import page
from distrain.tui.widgets.diff_pane import (
    columns_of_values,
    has_room_for_columns,
    lists_of_values,
    summary_lines,
)
from distrain.tui.widgets.form_table import form_lines
from tests.support.records import RunBuilder

Make = Callable[..., RunBuilder]
Layout = Callable[..., list[Text]]
VIEW = ChartView(plots=("loss", "throughput", "evaluation", "lr"))


def compare(*runs: RunBuilder, view: ChartView = VIEW) -> ComparisonFrame:
    records = [run.record for run in runs]
    run_marks = RunMarks().in_one_picture([run.id for run in runs])
    try:
        return ComparisonFeed(records, run_marks).read(view)
    finally:
        for record in records:
            record.close()


def test_each_run_is_one_line_in_its_own_colour(ended: Make) -> None:
    runs = [ended("one"), ended("two", world=4)]
    chart = compare(*runs).charts["loss"]
    assert [line.name for line in chart.lines] == ["one", "two"]
    assert chart.lines[0].mark == RunMarks().of(runs[0].id)
    assert len({line.mark.colour for line in chart.lines}) == 2
    for line in chart.lines:
        assert list(line.x) == list(range(1, 41))
        assert list(line.y) == pytest.approx([1 / step for step in line.x])


def test_a_strangers_config_controls_no_terminal(make: Make) -> None:
    text = "\x1b]0;title\x07 \x9b2J \u202e [@click=app.quit]"
    table = {"script": {"path": text, "args": [text], "env": {"A": text}}, "code_dir": text}
    run = make("theirs", description=text, **table)
    settings = read_settings(run.record)
    row = live_row(Follower(run.record).snapshot(), run.record)
    config = run.record.config
    draft = Draft.of("theirs", config)
    fields = used_fields(config)
    lines = [line.text.plain for line in form_lines(draft, fields, {}, 200)]
    shown = [*settings, *settings.values(), row.model, *lines, *page(run.record).plain.split("\n")]
    assert [line for line in shown if formatting.has_control_characters(line)] == []
    assert "·]0;title· ·2J · [@click=app.quit]" in settings["code_dir"]


def test_throughput_is_that_of_the_whole_run(ended: Make) -> None:
    lines = compare(ended("two"), ended("four", world=4)).charts["throughput"].lines
    assert [line.y[-1] for line in lines] == pytest.approx([1280, 2560])


def test_times_count_from_the_start_of_each_run(ended: Make) -> None:
    found = compare(
        ended("today", ago=10), ended("last week", ago=7e5), view=VIEW._replace(axis="time")
    )
    assert {chart.x_axis for chart in found.charts.values()} == {"duration"}
    for chart in found.charts.values():
        for line in chart.lines:
            assert line.x[-1] == pytest.approx(4.0, abs=0.01)


def test_a_part_of_the_time_is_read_of_each_run_from_its_own_start(ended: Make) -> None:
    view = VIEW._replace(axis="time", span=(1.0, 2.0))
    for line in compare(ended("a", ago=10), ended("b", ago=7e5), view=view).charts["loss"].lines:
        assert 0.9 <= min(line.x) < max(line.x) <= 2.1


def test_runs_without_evaluation_have_no_line_and_do_not_affect_others(
    ended: Make, make: Make
) -> None:
    runs = (make("bare").steps(10).end(), ended("full"))
    chart = compare(*runs).charts["evaluation"]
    assert [line.name for line in chart.lines] == ["full"]
    assert chart.title == "Evaluation: top1"
    assert compare(runs[0]).charts["evaluation"].empty_text == "no evaluations"


def test_the_metric_is_the_one_that_most_runs_have(make: Make) -> None:
    runs = [
        make("a").steps(10).evaluation(mae=0.3).end(),
        make("b").steps(10).evaluation(top1=0.8, loss=1).end(),
        make("c").steps(10).evaluation(top1=0.9).evaluation(loss=1).end(),
    ]
    chart = compare(*runs).charts["evaluation"]
    assert [(line.name, list(line.y)) for line in chart.lines] == [
        ("b", [pytest.approx(0.8)]),
        ("c", [pytest.approx(0.9)]),
    ]


def test_only_live_runs_are_read_again(ended: Make, make: Make) -> None:
    live, old = make("live").steps(5), ended("old")
    records = [live.record, old.record]
    comparer = ComparisonFeed(records, marks.first_marks(2))
    assert comparer.has_changed()
    before = comparer.read(VIEW)
    assert not comparer.has_changed()
    live.steps(5)
    assert comparer.has_changed()
    after = comparer.read(VIEW)
    assert len(after.charts["loss"].lines[0].x) == 10
    assert after.runs[0].row.step == 10
    assert after.runs[1].curve is before.runs[1].curve
    for record in records:
        record.close()


def test_the_results_of_a_run_that_has_ended_are_those_of_the_whole_run(
    ended: Make, make: Make
) -> None:
    live, old = make("live").steps(2), ended("old")
    records = [live.record, old.record]
    comparer = ComparisonFeed(records, marks.first_marks(2))
    comparer.read(VIEW)
    live.steps(40).end()
    assert comparer.has_changed()
    frame = comparer.read(VIEW)
    expected = compare(live, old)
    assert frame.runs[0].rate is not None
    assert [run.rate for run in frame.runs] == [run.rate for run in expected.runs]
    assert frame.results == expected.results
    for record in records:
        record.close()


def test_runs_of_one_name_are_distinguished() -> None:
    rows = [
        RunRow(id=f"20260101-000000-ddp-{tail}", created=0, status="failed", name=name)
        for tail, name in (("aaaa", "same"), ("bbbb", "same"), ("cccc", ""))
    ]
    assert distinct_names(rows) == ["same aaaa", "same bbbb", "ddp"]


def test_only_different_keys_are_listed(make: Make) -> None:
    runs = [make("a", **{"train.lr": 0.2}), make("b", **{"train.lr": 0.1}), make("c", world=4)]
    found = setting_values([run.settings for run in compare(*runs).runs])
    differing = {each.key: each.values for each in found if each.differs}
    assert differing == {
        "train.lr": ("0.2", "0.1", "0.1"),
        "ran on: devices": ("cpu:0, cpu:1", "cpu:0, cpu:1", "cpu:0, cpu:1, cpu:2, cpu:3"),
    }
    assert SettingValues("train.epochs", ("4", "4", "4")) in found


def test_a_key_that_only_one_run_sets_is_a_difference() -> None:
    found = setting_values([{"train.max_steps": "9"}, {}, None])
    assert found == [SettingValues("train.max_steps", ("9", None, None))]
    assert found[0].differs


def test_a_key_that_a_config_does_not_set_is_unset_and_an_unread_config_says_nothing(
    ended: Make,
) -> None:
    fine = compare(ended("fine")).runs[0]
    unread = fine._replace(settings=None)
    assert setting_text(fine, "train.max_steps") == "unset"
    assert setting_text(unread, "train.max_steps") == "–"
    assert setting_text(fine, "ran on: a host that is not known") == "–"


def test_a_run_with_a_broken_config_keeps_its_curves(ended: Make) -> None:
    broken, fine = ended("broken"), ended("fine")
    (broken.dir / "config.toml").write_text("strategy = 7")
    found = compare(broken, fine)
    assert "config.toml is not valid" in found.problems[0]
    assert [run.settings is None for run in found.runs] == [True, False]


# --- how it is laid out ---


def test_no_two_lines_of_one_plot_look_alike() -> None:
    run_marks = RunMarks()
    ids = [str(number) for number in range(100)]
    in_table = {id: run_marks.of(id) for id in ids}
    compared = ids[::8]  # all of one colour in the table
    found = run_marks.in_one_picture(compared)
    assert len({mark.shape for mark in found}) == len(compared)
    assert [mark.shape for mark in found] == [in_table[id].shape for id in compared]
    assert {mark.colour for mark in found[:8]} == set(marks.COLOURS)
    assert len({(mark.colour, mark.pattern) for mark in found}) == len(compared)


def test_a_long_list_of_runs_repeats_no_mark() -> None:
    run_marks = RunMarks()
    first = [run_marks.of(f"first {number}") for number in range(40)]
    assert [run_marks.of(f"first {number}") for number in range(40)] == first
    for number in range(1000):
        run_marks.of(f"other {number}")
    last = [run_marks.of(f"other {number}") for number in range(900, 1000)]
    assert len({(mark.shape, mark.colour) for mark in last}) == 100


@pytest.mark.parametrize("width", [80, 120])
def test_the_hint_of_a_comparison_is_not_cut(ended: Make, width: int) -> None:
    runs = compare(ended("a"), ended("b")).runs
    hint = "3 new events (N) · 4 more panes (tab)"
    lines = [line.plain for line in summary_lines(runs, [Style()] * 2, width, hint)]
    assert hint in lines[0]
    assert "samples/s" in lines[-3]


@pytest.mark.parametrize("width", [30, 44, 76, 150])
@pytest.mark.parametrize("layout", [columns_of_values, lists_of_values])
def test_no_line_is_wider_than_its_pane(ended: Make, width: int, layout: Layout) -> None:
    runs = compare(ended("a"), ended("a rather long name that fits nowhere", world=1)).runs
    styles = [Style()] * len(runs)
    found = setting_values([run.settings for run in runs])
    lines = [*layout(runs, found, styles, width), *summary_lines(runs, styles, max(width, 60))]
    assert max(line.cell_len for line in lines[: -len(runs) - 1]) <= width
    assert max(line.cell_len for line in lines) <= max(width, 60)


def test_many_runs_are_listed_in_rows_if_columns_would_be_too_narrow(ended: Make) -> None:
    assert has_room_for_columns(2, 44)
    assert not has_room_for_columns(5, 44)
    runs = compare(ended("a", **{"train.lr": 0.2}), ended("b"), ended("c")).runs
    found = [each for each in setting_values([run.settings for run in runs]) if each.differs]
    lines = [line.plain.strip() for line in lists_of_values(runs, found, [Style()] * 3, 40)]
    assert lines[0] == "train.lr"
    assert [line.split()[-1] for line in lines[1:]] == ["0.2", "0.1"]
    assert all(a != b for a, b in pairwise(lines))


def test_the_sentences_are_those_of_the_command_line(ended: Make) -> None:
    runs = [ended("two"), ended("four", world=4)]
    found, expected = compare(*runs), recorded_runs.compare([run.record for run in runs])
    assert found.results == expected.results
    assert "four is 2.00× two (95 % CI 2.00–2.00)" in found.results
    assert found.unequal == sentences.describe_unequal(expected)
    assert [run.ratio for run in found.runs] == [each.ratio for each in expected.candidates]


def test_rates_have_the_unit_of_the_comparison(make: Make, ended: Make) -> None:
    script = make("script", script={"path": "train.py"})
    script.writer.add(ScriptSettings(time=0.0, rank=0, sources={"steps": "distrain.step()"}))
    short = make("short").steps(2)  # without a step after its warm-up
    found = compare(script.steps(40).end(), ended("preset"), short)
    assert found.unit == "steps/s"
    head, *rows = summary_lines(found.runs, [Style()] * 3, 120, unit=found.unit)
    assert "steps/s" in head.plain
    assert "samples/s" not in head.plain
    assert ["10.0 median" in row.plain for row in rows] == [True, True, False]
    assert "now" not in rows[2].plain


def test_runs_that_do_not_match_are_called_unequal(ended: Make) -> None:
    found = compare(ended("small"), ended("large", **{"train.batch_size": 512}))
    assert found.unequal.startswith("unequal comparison: ")
    assert "train.batch_size (128, 512)" in found.unequal


def test_curves_of_scripts_are_the_means_of_their_ranks(make: Make) -> None:
    runs = [
        make(name, script={"path": "train.py", "args": [name]}, world=2).logged(loss=loss, **more)
        for name, loss, more in (("a", 1.0, {"extra": 1.0}), ("b", 2.0, {}))
    ]
    found = compare(*runs, view=VIEW._replace(plots=("logged/loss", "logged/extra"), axis="epoch"))
    loss = found.charts["logged/loss"]
    assert (loss.title, loss.x_axis) == ("loss", "step")
    assert [(line.name, *line.y) for line in loss.lines] == [("a", 1.5), ("b", 2.5)]
    assert [line.name for line in found.charts["logged/extra"].lines] == ["a"]
    assert found.logged_names == ["loss", "extra"]
    assert found.unchecked.startswith("not checked, because the scripts do not declare it: model")
    assert found.unequal == ""
