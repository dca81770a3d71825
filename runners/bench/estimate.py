"""How long a bench takes: a guess before its first run, then by the duration of its runs."""

from __future__ import annotations

import time
from math import ceil, isfinite
from statistics import median
from typing import NamedTuple

from distrain.runners.bench.definition import Definition
from distrain.runners.bench.state import BenchState

OVERHEAD_S = 8.0  # of a run in addition to what is measured; a guess until a run has ended
MIN_ROUNDS_KNOWN = 3  # rounds from which the width of intervals is extrapolated


class RemainingTime(NamedTuple):
    """Seconds until the end: at least, at most, and expected by the width of the intervals."""

    least: float
    most: float
    likely: float


def estimate_remaining(
    definition: Definition, state: BenchState, rounds: int | None = None
) -> RemainingTime | None:
    """Return how long a live bench still takes, or one that has not started in total.

    `rounds` is the result of `estimate_rounds`, if it is known already. None if steps are measured,
    or the time to a target, and no run has shown how long they take.
    """
    rules = definition.rules
    if _is_length_open(definition) and not state.measurements:
        return None
    if rounds is None:
        rounds = estimate_rounds(definition, state)
    round_s = sum(_run_duration(name, definition, state) for name in definition.configs)
    done_s = _done_in_current_round(definition, state)

    def remaining_s(total_rounds: int) -> float:
        rounds_left = max(0, min(total_rounds, rules.repeats) - state.rounds)
        return max(0.0, rounds_left * round_s - done_s)

    least = remaining_s(rules.min_rounds)
    return RemainingTime(least, remaining_s(rules.repeats), max(least, remaining_s(rounds)))


def estimate_rounds(definition: Definition, state: BenchState) -> int:
    """Return the rounds after which the intervals are narrow enough.

    Their width falls with the square root of the number of rounds.
    """
    rules = definition.rules
    done = state.rounds
    if done < MIN_ROUNDS_KNOWN:
        return (rules.min_rounds + rules.repeats) // 2
    from distrain.runners.bench.results import widest_interval  # loads numpy

    width = widest_interval(definition, state)
    if not isfinite(width):
        return rules.repeats
    return ceil(done * (width / rules.precision) ** 2)


def _is_length_open(definition: Definition) -> bool:
    """Return whether the rules do not say how long a run takes."""
    return definition.rules.steps is not None or definition.target is not None


def _run_duration(name: str, definition: Definition, state: BenchState) -> float:
    if name in state.excluded:
        return 0.0
    durations = [each.duration_s for each in state.measurements if each.candidate == name]
    if not durations and _is_length_open(definition):
        durations = [each.duration_s for each in state.measurements]
    if not durations:
        return OVERHEAD_S + definition.rules.seconds
    return median(durations)


def _done_in_current_round(definition: Definition, state: BenchState) -> float:
    """Return the seconds of work that are done in the current round."""
    current = state.current
    if current is None:
        return 0.0
    finished = current.order[: current.number - 1]
    finished_s = sum(_run_duration(name, definition, state) for name in finished)
    elapsed_s = max(0.0, time.time() - current.began)
    return finished_s + min(elapsed_s, _run_duration(current.candidate, definition, state))
