"""Which run of a group is best by its last evaluation, in words that claim no more than that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import NamedTuple

from distrain.runners import formatting
from distrain.runners.protocol.events import Facts


class BestRun(NamedTuple):
    """The best of several runs; `runs` are the indices of those with the best value.

    `metric` is "" where no run has been evaluated, `runs` is empty where nothing is known to be
    best. `sentence` tells either.
    """

    metric: str
    runs: Sequence[int]
    sentence: str


def best_metric(
    chosen: str | None, direction: str | None, facts: Facts | None
) -> tuple[str | None, str | None]:
    """Return the metric by which a run chooses its best checkpoint, and "max" or "min".

    `chosen` and `direction` are `checkpoint.best` and `checkpoint.best_is`; without them it is the
    metric that the task names in its `facts`. None where it names none but the loss, as by default.
    """
    if facts and facts.best and (chosen or facts.best != "loss"):
        return facts.best, facts.best_is or None
    return chosen, direction


def find_best(
    names: Sequence[str],
    evaluations: Sequence[Mapping[str, float | None]],
    *,
    chosen: str | None = None,
    direction: str | None = None,
    is_live: bool = False,
) -> BestRun:
    """Compare the last evaluations of runs by a metric, empty where there was none.

    `chosen` and `direction` are what `best_metric` returns, by default the main metric and what its
    name tells. `names` are those in the sentence; with `is_live` it says that
    the runs have not ended.
    """
    is_evaluated = any(chosen in each for each in evaluations)
    metric = chosen if chosen and is_evaluated else _common_metric(evaluations)
    if not metric:
        return BestRun("", (), "no run has been evaluated yet" if is_live else "")
    direction = direction or formatting.best_is(metric)
    values = {
        n: value
        for n, each in enumerate(evaluations)
        if (value := each.get(metric)) is not None and isfinite(value)
    }
    if direction is None or not values:
        why = "no run has a finite value" if direction else "it is not known which value is best"
        return BestRun(metric, (), f"no best run by {metric}: {why}")
    best = (max if direction == "max" else min)(values.values())
    runs = [n for n, value in values.items() if value == best]
    who = " and ".join(names[n] for n in runs)
    so_far = " so far" if is_live else ""
    others = f" of {len(values)}" if len(values) > 1 else ""
    text = f"best{so_far}{others}: {who}, {formatting.metric(metric, best)}"
    return BestRun(metric, runs, f"{text} (last evaluation; one run each, n = 1)")


def _common_metric(evaluations: Sequence[Mapping[str, float | None]]) -> str:
    """Return the main metric of those that most runs have; the loss only if there is no other."""
    counts = Counter(name for each in evaluations for name in each)
    most = max(counts.values(), default=0)
    names = formatting.sort_metrics(name for name, count in counts.items() if count == most)
    return next(iter(names), "")
