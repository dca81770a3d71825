"""How long a bench takes: before it begins a guess, later by what its runs took."""

from __future__ import annotations

import time
from math import ceil, isfinite
from statistics import median
from typing import NamedTuple

from runners.bench.definition import Definition
from runners.bench.state import BenchState

START_S = 8.0  # until a run's first step, its warm-up and its end: a guess until one was measured


class Left(NamedTuple):
    """Seconds until the end: at least, at most, and by how narrow the intervals are by now."""

    least: float
    most: float
    likely: float


def left(definition: Definition, state: BenchState, wanted: int | None = None) -> Left:
    """What is left of a bench that goes on, or would take from its beginning; `wanted` are its
    `rounds_wanted`, where they are known.
    """
    rules = definition.rules
    round_s = sum(_run_s(name, definition, state) for name in definition.configs)
    under_way = _done_of_round(definition, state)
    rounds = [
        _between(count, state.rounds, rules.repeats) for count in (rules.least, rules.repeats)
    ]
    wanted = rounds_wanted(definition, state) if wanted is None else wanted
    likely = _between(wanted, state.rounds, rules.repeats)
    least, most, expected = (max(0.0, n * round_s - under_way) for n in (*rounds, likely))
    return Left(least, most, max(least, expected))


def _between(rounds: int, done: int, most: int) -> int:
    """How many rounds there are still to do, of so many wanted."""
    return max(0, min(rounds, most) - done)


def rounds_wanted(definition: Definition, state: BenchState) -> int:
    """Rounds until the intervals are narrow: their width falls with the root of the number."""
    rules, done = definition.rules, state.rounds
    if done < 3:
        return (rules.least + rules.repeats) // 2
    from runners.bench.results import precision  # numpy, which a guess does without

    width = precision(definition, state)
    return ceil(done * (width / rules.precision) ** 2) if isfinite(width) else rules.repeats


def _run_s(name: str, definition: Definition, state: BenchState) -> float:
    if name in state.out:
        return 0.0
    took = [each.took for each in state.measurements if each.contestant == name]
    return median(took) if took else START_S + definition.rules.seconds


def _done_of_round(definition: Definition, state: BenchState) -> float:
    """Seconds of work that the round under way has behind it."""
    now = state.now
    if now is None:
        return 0.0
    before = now.order[: now.order.index(now.contestant)]
    limit = _run_s(now.contestant, definition, state)
    finished = sum(_run_s(name, definition, state) for name in before)
    return finished + min(max(0.0, time.time() - now.began), limit)
