"""Several runs beside each other: their lines, their metric, what their configs differ in."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from rich.style import Style
from rich.text import Text

from runners.comparison import of_runs, verdicts
from tui import marks
from tui.data.comparison import Comparer, Comparison, Setting, names, settings
from tui.data.plots import View
from tui.data.rows import Row
from tui.widgets.diff_pane import below, beside, fits, summaries

from .conftest import Made

Make = Callable[..., Made]
Layout = Callable[..., list[Text]]
VIEW = View(plots=("loss", "throughput", "evaluation", "lr"))


def compare(*runs: Made, view: View = VIEW) -> Comparison:
    records = [run.record for run in runs]
    try:
        return Comparer(records).look(view)
    finally:
        for record in records:
            record.close()


def test_each_run_is_one_line_with_the_colour_it_has_everywhere(ended: Make) -> None:
    runs = [ended("one"), ended("two", world=4)]
    chart = compare(*runs).charts["loss"]
    assert [line.name for line in chart.lines] == ["one", "two"]
    usual = [marks.of_run(run.id) for run in runs]
    assert [line.mark.colour for line in chart.lines] == [mark.colour for mark in usual]
    assert chart.lines[0].mark == usual[0]
    for line in chart.lines:
        assert list(line.x) == list(range(1, 41))
        assert list(line.y) == pytest.approx([1 / step for step in line.x])


def test_throughput_is_that_of_the_whole_run(ended: Make) -> None:
    lines = compare(ended("two"), ended("four", world=4)).charts["throughput"].lines
    assert [line.y[-1] for line in lines] == pytest.approx([1280, 2560])


def test_times_count_from_each_start_so_that_days_lie_over_each_other(ended: Make) -> None:
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


def test_runs_without_evaluation_have_no_line_and_disturb_nobody(ended: Make, make: Make) -> None:
    runs = (make("bare").steps(10).end(), ended("full"))
    chart = compare(*runs).charts["evaluation"]
    assert [line.name for line in chart.lines] == ["full"]
    assert chart.title == "evaluation: top1"
    assert compare(runs[0]).charts["evaluation"].empty == "no evaluation yet"


def test_the_metric_is_the_one_that_most_runs_have(make: Make) -> None:
    runs = [
        make("a").steps(10).evaluation(mae=0.3).end(),
        make("b").steps(10).evaluation(top1=0.8, loss=1).end(),
        make("c").steps(10).evaluation(top1=0.9, loss=1).end(),
    ]
    chart = compare(*runs).charts["evaluation"]
    assert [(line.name, list(line.y)) for line in chart.lines] == [
        ("b", [pytest.approx(0.8)]),
        ("c", [pytest.approx(0.9)]),
    ]


def test_a_live_run_moves_and_the_others_are_not_read_again(ended: Make, make: Make) -> None:
    live, old = make("live").steps(5), ended("old")
    records = [live.record, old.record]
    comparer = Comparer(records)
    assert comparer.changed()
    before = comparer.look(VIEW)
    assert not comparer.changed()
    live.steps(5)
    assert comparer.changed()
    after = comparer.look(VIEW)
    assert len(after.charts["loss"].lines[0].x) == 10
    assert after.runs[0].row.step == 10
    assert after.runs[1].curve is before.runs[1].curve
    for record in records:
        record.close()


def test_runs_of_one_name_are_told_apart() -> None:
    rows = [
        Row(id=f"20260101-000000-ddp-{tail}", created=0, status="failed", name=name)
        for tail, name in (("aaaa", "same"), ("bbbb", "same"), ("cccc", ""))
    ]
    assert names(rows) == ["same aaaa", "same bbbb", "ddp"]


def test_only_keys_that_differ_differ(make: Make) -> None:
    runs = [make("a", **{"train.lr": 0.2}), make("b", **{"train.lr": 0.1}), make("c", world=4)]
    found = settings([run.setting for run in compare(*runs).runs])
    differing = {each.key: each.values for each in found if each.differs}
    assert differing == {
        "train.lr": ("0.2", "0.1", "0.1"),
        "ran on: devices": ("cpu:0, cpu:1", "cpu:0, cpu:1", "cpu:0, cpu:1, cpu:2, cpu:3"),
    }
    assert Setting("train.epochs", ("4", "4", "4")) in found


def test_what_one_run_sets_and_another_does_not_differs() -> None:
    found = settings([{"train.max_steps": "9"}, {}, None])
    assert found == [Setting("train.max_steps", ("9", None, None))]
    assert found[0].differs


def test_a_broken_config_leaves_its_curves(ended: Make) -> None:
    broken, fine = ended("broken"), ended("fine")
    (broken.dir / "config.toml").write_text("strategy = 7")
    found = compare(broken, fine)
    assert "config.toml does not hold" in found.problems[0]
    assert [run.setting is None for run in found.runs] == [True, False]


# --- how it is laid out ---


def test_no_two_runs_that_are_seen_together_have_the_same_mark() -> None:
    found = marks.of_runs(["a run"] * len(marks.RUN_SHAPES))
    assert {mark.shape for mark in found} == set(marks.RUN_SHAPES)
    assert found[0] == marks.of_run("a run")


@pytest.mark.parametrize("width", [30, 44, 76, 150])
@pytest.mark.parametrize("layout", [beside, below])
def test_no_line_is_wider_than_its_pane(ended: Make, width: int, layout: Layout) -> None:
    runs = compare(ended("a"), ended("a rather long name that fits nowhere", world=1)).runs
    inks = [Style()] * len(runs)
    found = settings([run.setting for run in runs])
    lines = [*layout(runs, found, inks, width), *summaries(runs, inks, max(width, 60))]
    assert max(line.cell_len for line in lines[: -len(runs) - 1]) <= width
    assert max(line.cell_len for line in lines) <= max(width, 60)


def test_many_runs_stand_below_each_other_where_columns_would_be_too_narrow(ended: Make) -> None:
    assert fits(2, 44)
    assert not fits(5, 44)
    runs = compare(ended("a", **{"train.lr": 0.2}), ended("b"), ended("c")).runs
    found = [each for each in settings([run.setting for run in runs]) if each.differs]
    lines = [line.plain.strip() for line in below(runs, found, [Style()] * 3, 40)]
    assert lines[0] == "train.lr"
    assert [line.split()[-1] for line in lines[1:]] == ["0.2", "0.1"]
    assert all(a != b for a, b in pairwise(lines))


def test_what_is_said_is_what_the_command_line_says(ended: Make) -> None:
    runs = [ended("two"), ended("four", world=4)]
    found, told = compare(*runs), of_runs.compare([run.record for run in runs])
    assert found.verdicts == told.verdicts
    assert "four is 2.00× two (95 % CI 2.00–2.00)" in found.verdicts
    assert found.unequal == verdicts.unequal(told)
    assert [run.ratio for run in found.runs] == [each.ratio for each in told.contestants]


def test_runs_that_are_no_match_are_called_unequal(ended: Make) -> None:
    found = compare(ended("small"), ended("large", **{"train.batch_size": 512}))
    assert found.unequal.startswith("unequal comparison: ")
    assert "train.batch_size (128, 512)" in found.unequal
