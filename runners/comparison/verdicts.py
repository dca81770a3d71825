"""Verdicts: what may be said of ratios, in the same words for runs and for a bench."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from runners import words
from runners.comparison import Comparison, Contestant, Interval

Ratio = Callable[[Contestant, Contestant], Interval | None]
"""How many times the second one's rate the first one's is; None where nobody can tell."""

TOLD = 3  # unequal settings in the sentence; the others are counted


def against(name: str, baseline: str, ratio: Interval) -> str:
    """ "ddp is 1.52× single (95 % CI 1.47–1.58)", or that no difference was found."""
    if ratio.holds(1.0):
        return f"no difference found between {name} and {baseline} (within ±{_reach(ratio)} %)"
    return f"{name} is {times(ratio.value)} {baseline} (95 % CI {span(ratio)})"


def in_time(name: str, baseline: str, target: str, ratio: Interval) -> str:
    """The same of the time to a target: "ddp takes 0.81× as long as single to top1 95.00 % …"."""
    if ratio.holds(1.0):
        return (
            f"no difference found between {name} and {baseline} in the time to {target} "
            f"(within ±{_reach(ratio)} %)"
        )
    return (
        f"{name} takes {times(ratio.value)} as long as {baseline} to {target} "
        f"(95 % CI {span(ratio)})"
    )


def said(contestants: Sequence[Contestant], baseline: str, ratio: Ratio) -> list[str]:
    """All verdicts: the fastest first, then each against the baseline."""
    base = next((each for each in contestants if each.name == baseline), None)
    others = [each for each in contestants if each is not base]
    found = fastest(contestants, ratio)
    if base is not None:
        ratios = [(each.name, ratio(each, base)) for each in others]
        found += [against(name, baseline, known) for name, known in ratios if known is not None]
    return found


def fastest(contestants: Sequence[Contestant], ratio: Ratio) -> list[str]:
    """Which one is the fastest, and which could not be told apart from it; nothing of one alone."""
    rated = [each for each in contestants if each.rate is not None]
    if len(rated) < 2:
        return []
    best = max(rated, key=lambda each: each.rate.value if each.rate else 0.0)
    others = [each for each in rated if each is not best]
    ratios = [(each.name, ratio(best, each)) for each in others]
    near = [name for name, found in ratios if found is None or found.holds(1.0)]
    if len(near) == len(others):
        return [f"no fastest here: {listed([best.name, *near])} could not be told apart"]
    rate = words.rate(best.rate.value if best.rate else None)
    tie = f"; {listed(near)} could not be told apart from it" if near else ""
    return [f"fastest here: {best.name} with {rate}{tie}"]


def unequal(comparison: Comparison) -> str:
    """The sentence that calls an unequal comparison one; empty for an equal one."""
    found = comparison.unequal
    if not found:
        return ""
    told = [
        f"{each.key} ({', '.join(dict.fromkeys(map(value, each.values)))})" for each in found[:TOLD]
    ]
    if len(found) > TOLD:
        told.append(f"{len(found) - TOLD} more")
    verb = "differs" if len(found) == 1 else "differ"
    return f"unequal comparison: {listed(told)} {verb}"


def times(ratio: float) -> str:
    """ "1.52×", "12.3×", "0.031×"."""
    return f"{_figure(ratio)}×"


def span(interval: Interval) -> str:
    """The ends of the interval of a ratio: "1.47–1.58"."""
    return f"{_figure(interval.low)}–{_figure(interval.high)}"


def listed(names: Sequence[str]) -> str:
    """ "a, b and c"."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def _figure(ratio: float) -> str:
    return f"{ratio:.{1 if ratio >= 10 else 2 if ratio >= 0.1 else 3}f}"


def _reach(ratio: Interval) -> str:
    """The farther end in percent, rounded up, so that what is claimed was found."""
    percent = round(100 * max(ratio.high - 1, 1 - ratio.low), 6)
    return str(math.ceil(percent)) if percent >= 1 else f"{max(math.ceil(10 * percent), 1) / 10}"


def value(text: str | None) -> str:
    """A setting's value, of one line."""
    return "unset" if text is None else words.line(text)
