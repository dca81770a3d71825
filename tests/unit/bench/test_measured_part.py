"""Which part of a run is measured, from the windows in its record."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrain.runners.analysis.comparison.figures import compute_figures
from distrain.runners.bench.definition import Rules
from distrain.runners.bench.measured_part import STALL_S, MeasuredPart, Patience, find_measured_part
from distrain.runners.protocol.events import ScriptSettings
from distrain.runners.records.reader import Record
from tests.support.records import RunBuilder, make_window

SLOW_AT_FIRST = [1.0] * 3 + [0.1] * 47  # seconds of each step


def record(folder: Path, seconds: list[float], *, samples: str = "") -> Record:
    """Write two ranks of a script with a window per step of eight samples; rank 1 is behind."""
    run = RunBuilder(folder, world=2, begun=False, script={"path": "train.py"})
    if samples:
        sources = {"steps": "distrain.step()", "samples": samples}
        run.writer.add(ScriptSettings(time=0.0, rank=0, sources=sources))
    for rank, count in ((0, len(seconds)), (1, len(seconds) - 2)):
        for step, duration in enumerate(seconds[:count], 1):
            window = make_window(rank, step, samples=8, seconds=duration, data=duration / 4)
            run.writer.add(window)
    return run.end("stopped").record


def test_as_many_steps_after_the_warm_up_as_the_rules_ask_for(tmp_path: Path) -> None:
    part = find_measured_part(record(tmp_path, SLOW_AT_FIRST), Rules(steps=20))
    assert (part.warm_after, part.until, part.steps, part.windows) == (3, 23, 20, 20)
    assert part.seconds == pytest.approx(2.0)
    assert part.warmup_s == pytest.approx(3.0)
    assert part.steady
    assert part.complete


def test_or_as_much_time(tmp_path: Path) -> None:
    part = find_measured_part(record(tmp_path, SLOW_AT_FIRST), Rules(seconds=1.55))
    assert (part.warm_after, part.until) == (3, 19)


def test_a_script_is_measured_without_its_first_window_and_after_its_end_without_the_last(
    tmp_path: Path,
) -> None:
    """Nobody knows when its first step began, nor what it did after its last one."""
    seconds = [0.1] * 30 + [9.0]
    part = find_measured_part(record(tmp_path, seconds), Rules(steps=200), has_ended=True)
    assert (part.steps, part.until, part.last_step) == (29, 30, 31)
    assert not part.complete


def test_rates_are_of_the_measured_steps_and_of_all_ranks(tmp_path: Path) -> None:
    found = record(tmp_path, SLOW_AT_FIRST, samples="distrain.step()")
    part = find_measured_part(found, Rules(steps=47))
    figures = compute_figures(found, part.warm_after, part.until)
    assert figures.steps == 45  # of the rank that is behind
    assert figures.rate == pytest.approx(2 * 8 / 0.1)
    assert figures.step_rate == pytest.approx(1 / 0.1)
    assert figures.samples_per_step == pytest.approx(16)
    assert figures.phases == {"data": pytest.approx(0.25), "other": pytest.approx(0.75)}
    assert figures.overlap is None


def test_unknown_samples_have_no_rate(tmp_path: Path) -> None:
    figures = compute_figures(record(tmp_path, SLOW_AT_FIRST), 3, 23)
    assert (figures.rate, figures.samples_per_step) == (None, None)
    assert figures.step_rate == pytest.approx(10)


def part(steps: int, *, complete: bool) -> MeasuredPart:
    return MeasuredPart(0, 0, 0.0, 0, 0.0, 0, steady=False, complete=complete, last_step=steps)


def test_a_run_is_not_waited_for_without_end() -> None:
    patience = Patience(Rules(steps=200))
    queued_s = 5000.0  # is asked first when the run has its devices
    assert not patience.is_over(part(0, complete=False), queued_s)
    assert not patience.is_over(part(0, complete=False), queued_s + STALL_S)
    assert patience.is_over(part(0, complete=False), queued_s + STALL_S + 1)


def test_fast_steps_are_waited_for_until_there_are_enough_windows() -> None:
    patience = Patience(Rules(steps=200))
    assert not patience.is_over(part(2500, complete=False), 1.0)
    assert patience.is_over(part(6000, complete=True), 2.0), "no steady pace in ten times as many"


def test_time_is_limited_from_the_first_step() -> None:
    patience = Patience(Rules(seconds=5))
    assert not patience.is_over(part(0, complete=False), 0.0)
    assert not patience.is_over(part(1, complete=False), 500.0)
    assert not patience.is_over(part(2, complete=False), 600.0)
    assert patience.is_over(part(3, complete=False), 611.0)
