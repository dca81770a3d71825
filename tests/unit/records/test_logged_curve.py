"""What several ranks log under one name is one curve."""

from __future__ import annotations

from array import array
from math import isnan, nan
from pathlib import Path

import pytest

from distrain.runners.records.timeseries.curves import Curve
from distrain.runners.records.timeseries.logged_curve import LOGGED_COLUMNS, order_names, over_ranks
from tests.support.records import RunBuilder


def curve(*points: tuple[float, float, float]) -> Curve:
    """Return the curve of a rank with (step, value, number of values) at each point."""
    steps, values, counts = zip(*points, strict=True)
    totals = [value * count for value, count in zip(values, counts, strict=True)]
    columns = (steps, steps, values, totals, counts, values, values)
    names = ("step", "time", *LOGGED_COLUMNS)
    return Curve({name: array("d", data) for name, data in zip(names, columns, strict=True)})


def test_the_curve_is_the_mean_of_all_values_with_their_extremes() -> None:
    found = over_ranks([curve((10, 1.0, 3), (20, 2.0, 3)), curve((10, 5.0, 1), (20, 4.0, 3))])
    assert [*found["step"]] == [10, 20]
    assert [*found["value"]] == [2.0, 3.0]
    assert ([*found["low"]], [*found["high"]]) == ([1.0, 2.0], [5.0, 4.0])


def test_no_value_is_lost_where_ranks_log_at_different_steps() -> None:
    often = curve(*((step, 1.0, 1) for step in range(1, 41)))
    later = curve(*((step, 3.0, 2) for step in range(5, 90, 7)))
    found = over_ranks([often, later])
    assert len(found) <= 40
    assert sum(found["finite"]) == sum(often["finite"]) + sum(later["finite"])
    assert sum(found["total"]) == pytest.approx(sum(often["total"]) + sum(later["total"]))
    assert found["step"][-1] == 89
    assert [*found["step"]] == sorted(set(found["step"]))


def test_values_that_are_not_finite_leave_a_gap() -> None:
    found = over_ranks([curve((1, nan, 0), (2, nan, 0)), curve((1, nan, 0), (2, 1.0, 1))])
    assert isnan(found["value"][0])
    assert found["value"][1] == 1.0
    assert len(over_ranks([])) == 0


def test_values_whose_sum_is_too_large_leave_a_gap() -> None:
    found = over_ranks([curve((1, 1e308, 1), (2, 1.0, 1)), curve((1, 1e308, 1), (2, 3.0, 1))])
    assert isnan(found["value"][0])
    assert found["value"][1] == 2.0


def test_values_whose_sum_over_many_steps_is_too_large_leave_the_record_readable(
    tmp_path: Path,
) -> None:
    run = RunBuilder(tmp_path, script={"path": "train.py"}, world=1)
    for _ in range(100):
        run.logged(best=1.2e308, loss=1.0)
    with run.record as record:
        best, loss = (record.logged_curve(name, points=20) for name in ("best", "loss"))
    assert all(map(isnan, best["value"][:-1]))  # the last is one row
    assert set(best["low"]) == {1.2e308}
    assert set(loss["value"]) == {1.0}


def test_names_that_most_runs_have_come_first() -> None:
    runs = [["lr", "loss", "a"], ["loss", "b", "lr"], ["loss"]]
    assert order_names(runs) == ["loss", "lr", "a", "b"]


def test_names_and_last_values_are_read_as_they_appear(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path, script={"path": "train.py"}).logged(loss=1.0)
    with run.record as record:
        assert record.last_logged() == {"loss": 1.0}
        run.logged(**{"loss": 2.0, "a\nb": 5.0})
        assert record.last_logged() == {"loss": 2.0, "a b": 5.0}
        assert record.last_logged(["loss", "absent"]) == {"loss": 2.0}
        assert [*record.logged_curve("loss")["value"]] == [1.5, 2.5]
        assert len(record.logged_curve("absent")) == 0
