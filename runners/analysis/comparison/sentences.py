"""The result sentences of a comparison, the same for runs and for a bench."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from distrain.runners import formatting
from distrain.runners.analysis.comparison.model import Candidate, Comparison, Unit
from distrain.runners.analysis.interval import Interval

Ratio = Callable[[Candidate, Candidate], Interval | None]
"""Return the rate of the first as a multiple of the second's; None if it is not known."""

NOISE_UNKNOWN = "one run each, so no statement about noise"
NO_DIFFERENCE = "no significant difference"
MAX_NAMED = 3  # unequal settings in one sentence; the others are counted


def describe_results(
    candidates: Sequence[Candidate], baseline: str, ratio: Ratio, unit: Unit = "samples/s"
) -> list[str]:
    """Return all result sentences: the fastest first, then each candidate and the baseline."""
    fastest = describe_fastest(candidates, ratio, unit)
    base = next((candidate for candidate in candidates if candidate.name == baseline), None)
    if base is None:
        return fastest
    ratios = []
    for candidate in candidates:
        found = None if candidate is base else ratio(candidate, base)
        if found is not None:
            ratios.append(describe_ratio(candidate.name, baseline, found))
    if fastest and all(each.startswith(NO_DIFFERENCE) for each in [*fastest, *ratios]):
        # All sentences give the same result; that of two has the tolerance too.
        return ratios if len(ratios) == 1 else fastest
    return [*fastest, *ratios]


def describe_fastest(
    candidates: Sequence[Candidate], ratio: Ratio, unit: Unit = "samples/s"
) -> list[str]:
    """Return one sentence that names the fastest candidate and those not significantly slower.

    Empty if fewer than two have a rate. Where too little was measured of another one, which may be
    faster, it names those that are compared.
    """
    rated = [candidate for candidate in candidates if candidate.rate is not None]
    if len(rated) < 2:
        return []
    fastest = max(rated, key=lambda each: each.rate.value if each.rate else 0.0)
    others = [candidate for candidate in rated if candidate is not fastest]
    similar = []
    for other in others:
        found = ratio(fastest, other)
        if found is None or found.contains(1.0):
            similar.append(other.name)
    if len(similar) == len(others) == 1:
        return [f"{NO_DIFFERENCE} between {fastest.name} and {similar[0]}"]
    if len(similar) == len(others):  # which does not tell whether these differ from each other
        highest = f"{fastest.name} (the highest median)"
        return [f"{NO_DIFFERENCE} between {highest} and any of {join_names(similar)}"]
    rate = formatting.rate(fastest.rate.value if fastest.rate else None, unit)
    is_partial = any(each.rates and each.rate is None for each in candidates)
    among = f" of {join_names([each.name for each in rated])}" if is_partial else ""
    sentence = f"fastest{among}: {fastest.name} with {rate} (median)"
    if similar:
        sentence += f"; {NO_DIFFERENCE} to {join_names(similar)}"
    return [sentence]


def describe_best(
    candidates: Sequence[Candidate], chosen: str | None = None, direction: str | None = None
) -> list[str]:
    """Return one sentence on the metric by which candidates of one run each are compared.

    `chosen` and `direction` are what `best_metric` returns. Without them, or where fewer than two
    have that metric, it is the main one that they have in common. Empty if fewer than two have it.
    """
    known = Counter(name for each in candidates for name in _finite(each.metrics))
    metric = chosen or ""
    if known[metric] < 2:
        common = [name for name, count in known.items() if count == max(known.values())]
        metric, direction = next(iter(formatting.sort_metrics(common)), ""), None
    ranked = [each for each in candidates if metric in _finite(each.metrics)]
    if len(ranked) < 2:
        return []
    direction = direction or formatting.best_is(metric)
    ranked.sort(key=lambda each: each.metrics[metric] or 0.0, reverse=direction == "max")
    first, second, last = ranked[0], ranked[1], ranked[-1]
    shown = [formatting.metric_value(metric, each.metrics[metric]) for each in ranked]
    if shown[0] == shown[-1]:
        text = f"{join_names([each.name for each in ranked])} are equal by {metric}: {shown[0]}"
    elif direction is None:
        text = (
            f"{metric} is lowest in {first.name} ({shown[0]}), highest in {last.name} ({shown[-1]})"
        )
    elif shown[0] == shown[1]:
        ties = [each.name for each, value in zip(ranked, shown, strict=True) if value == shown[0]]
        text = f"{join_names(ties)} are best by {metric}: {shown[0]}"
    else:
        next_best = f" ({second.name})" if len(ranked) > 2 else ""
        text = f"{first.name} is best by {metric}: {shown[0]} against {shown[1]}{next_best}"
    return [f"{text}; {NOISE_UNKNOWN}"]


def _finite(metrics: Mapping[str, float | None]) -> dict[str, float]:
    return {
        name: value for name, value in metrics.items() if value is not None and math.isfinite(value)
    }


def describe_ratio(name: str, baseline: str, ratio: Interval) -> str:
    """Return "ddp is 1.52× single (95 % CI 1.47–1.58)", or that no difference is significant."""
    if ratio.contains(1.0):
        return f"{NO_DIFFERENCE} between {name} and {baseline} (within {_tolerance(ratio)})"
    return f"{name} is {format_ratio(ratio.value)} {baseline} (95 % CI {format_interval(ratio)})"


def describe_time_ratio(name: str, baseline: str, target: str, ratio: Interval) -> str:
    """Return the same sentence for the time to a target: "ddp takes 0.81× as long as …"."""
    if ratio.contains(1.0):
        return (
            f"{NO_DIFFERENCE} between {name} and {baseline} in the time to {target} "
            f"(within {_tolerance(ratio)})"
        )
    return (
        f"{name} takes {format_ratio(ratio.value)} as long as {baseline} to reach {target} "
        f"(95 % CI {format_interval(ratio)})"
    )


def describe_unequal(comparison: Comparison) -> str:
    """Return the sentence that names unequal settings; empty if there are none."""
    differences = comparison.unequal
    if not differences:
        return ""
    named = []
    for difference in differences[:MAX_NAMED]:
        values = dict.fromkeys(format_setting(value) for value in difference.values)
        named.append(f"{difference.key} ({', '.join(values)})")
    if len(differences) > MAX_NAMED:
        named.append(f"{len(differences) - MAX_NAMED} more")
    verb = "differs" if len(differences) == 1 else "differ"
    return f"unequal comparison: {join_names(named)} {verb}"


def describe_unchecked(unchecked: Sequence[str]) -> str:
    """Return the sentence on what scripts have not declared; empty if there are none."""
    if not unchecked:
        return ""
    return f"not checked, because the scripts do not declare it: {join_names(unchecked)}"


def format_ratio(ratio: float) -> str:
    """Return a ratio with its sign: "1.52×", "12.3×", "0.031×"."""
    return f"{_round_ratio(ratio)}×"


def format_interval(interval: Interval) -> str:
    """Return the ends of the interval of a ratio: "1.47–1.58"."""
    return f"{_round_ratio(interval.low)}–{_round_ratio(interval.high)}"


def format_setting(value: str | None) -> str:
    """Return the value of a setting on one line."""
    return "unset" if value is None else formatting.single_line(value)


def join_names(names: Sequence[str]) -> str:
    """Return "a, b and c"."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _round_ratio(ratio: float) -> str:
    if ratio >= 10:
        return f"{ratio:.1f}"
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.3f}"


def _tolerance(ratio: Interval) -> str:
    """Return the distance from 1 to the farther end of the interval, rounded up."""
    percent = round(100 * max(ratio.high - 1, 1 - ratio.low), 6)
    if percent >= 1:
        return f"±{math.ceil(percent)} %"
    return f"±{max(math.ceil(10 * percent), 1) / 10} %"
