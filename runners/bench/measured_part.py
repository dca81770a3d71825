"""Which part of a run is measured: what follows its warm-up, until there is enough of it."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from distrain.runners.analysis.comparison.figures import reports_samples
from distrain.runners.analysis.statistics import find_steady_start
from distrain.runners.bench.definition import Rules
from distrain.runners.protocol.events import Window
from distrain.runners.records.reader import Record
from distrain.runners.records.timeseries.series import STEPS

MIN_WINDOWS = 12  # that are needed to judge what is steady
TIMEOUT_FACTOR = 10.0  # times what is to be measured; then the run is measured as it is
TIMEOUT_EXTRA_S = 60.0  # in addition, for compilers and the like
STALL_S = 600.0  # without a step, after which a run is not waited for


class MeasuredPart(NamedTuple):
    """What a run has done after its warm-up, as far as it is measured.

    The warm-up ended after step `warm_after`. If no steady pace was found (`steady`), it is the
    first half of the run. What followed until step `until` are `steps`, `seconds` and `windows`;
    `complete` is whether that is all that the rules ask for. `last_step` is the last one reported.
    """

    warm_after: int
    until: int
    warmup_s: float
    steps: int
    seconds: float
    windows: int
    steady: bool
    complete: bool
    last_step: int


def find_measured_part(
    record: Record, rules: Rules | None, *, has_ended: bool = False
) -> MeasuredPart:
    """Return where the warm-up ended, and what followed until there is as much as the rules ask.

    Ranks train in step, so the windows of rank 0 suffice. The first window of a script counts as
    warm-up, because nobody knows when its first step began. The last window of one that `has_ended`
    is left out, because it may contain what the script did after its last step.
    """
    rows = [STEPS.struct(row) for row in record.raw(STEPS, 0)]
    amount = attrgetter("samples" if reports_samples(record) else "steps")
    windows = [window for window in rows if amount(window)]
    last_step = windows[-1].step if windows else 0
    if has_ended and record.config.is_script:
        windows = windows[:-1]
    start = find_steady_start([window.seconds / amount(window) for window in windows])
    first = len(windows) // 2 if start is None else start
    if windows and record.config.is_script:
        first = max(first, 1)
    wanted = _count_windows(windows[first:], rules)
    measured = windows[first:][:wanted]
    return MeasuredPart(
        warm_after=windows[first - 1].step if first else 0,
        until=measured[-1].step if measured else 0,
        warmup_s=sum(window.seconds for window in windows[:first]),
        steps=sum(window.steps for window in measured),
        seconds=sum(window.seconds for window in measured),
        windows=len(measured),
        steady=start is not None,
        complete=wanted is not None,
        last_step=last_step,
    )


def _count_windows(windows: Sequence[Window], rules: Rules | None) -> int | None:
    """Return after how many windows there is as much as the rules ask for; None if there is not."""
    if rules is None:
        return None
    steps = 0
    seconds = 0.0
    for count, window in enumerate(windows, 1):
        steps += window.steps
        seconds += window.seconds
        is_long_enough = seconds >= rules.seconds if rules.steps is None else steps >= rules.steps
        if is_long_enough and count >= windows_wanted(rules):
            return count
    return None


def windows_wanted(rules: Rules | None) -> int:
    """Return how many windows are needed to judge what is steady; each has at least one step."""
    steps = rules.steps if rules else None
    return MIN_WINDOWS if steps is None else min(MIN_WINDOWS, steps)


class Patience:
    """How long to wait for a run that does not become steady, or takes no more steps."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._first_step: float | None = None
        self._last_step = 0
        self._last_change: float | None = None

    def is_over(self, part: MeasuredPart, now: float) -> bool:
        """Return whether not to wait any longer; called while the run trains, at `now` seconds."""
        if self._last_change is None:
            self._last_change = now
        if part.last_step != self._last_step:
            self._last_step = part.last_step
            self._last_change = now
            self._first_step = self._first_step or now
        if now - self._last_change > STALL_S:
            return True
        if self._first_step is None:
            return False
        if self._rules.steps is not None:
            return part.complete and part.last_step > TIMEOUT_FACTOR * self._rules.steps
        return now - self._first_step > TIMEOUT_FACTOR * self._rules.seconds + TIMEOUT_EXTRA_S
