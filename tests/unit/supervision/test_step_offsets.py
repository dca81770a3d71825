"""Steps of a rank are counted over all its processes."""

from __future__ import annotations

import pytest
from msgspec import structs

from distrain.runners.protocol.events import Finished, Logged, Stacks
from distrain.runners.supervision.step_offsets import StepOffsets
from tests.support.records import make_window


def logged(step: int) -> Logged:
    return Logged(time=1.0, rank=1, step=step, values={})


@pytest.mark.parametrize(
    ("first", "second", "counted"),
    [
        ([10, 20], [10, 20], [35, 45]),  # every tenth of the steps of each process
        ([100, 900], [100, 900], [1000, 1800]),  # the script's own steps, from the beginning
        ([100, 900], [1000, 1900], [1000, 1900]),  # the script's own steps, over both
        ([], [1, 2], [26, 27]),
    ],
)
def test_steps_of_logged_values_continue_unless_the_script_counts_them(
    first: list[int], second: list[int], counted: list[int]
) -> None:
    offsets = StepOffsets()
    for step in first:
        assert offsets.apply(logged(step)) == logged(step)
    offsets.apply(make_window(1, 25))
    assert offsets.begin([1]) == 25
    assert [offsets.apply(logged(step)) for step in second] == [*map(logged, counted)]
    stacks = Stacks(time=1.0, rank=1, threads=[], step=3)
    for event in (make_window(1, 3), Finished(time=1.0, rank=1, step=3), stacks):
        assert offsets.apply(event) == structs.replace(event, step=28)
    assert offsets.apply(make_window(0, 3)) == make_window(0, 3)
