"""A comparison in words and cells: the same in the command line and in the app."""

from __future__ import annotations

from collections.abc import Sequence

from runners import words
from runners.comparison import Comparison, Contestant, Difference, Interval, verdicts


def cells(contestant: Contestant, comparison: Comparison) -> list[str]:
    """Name, rounds, samples/s and its interval, ratio and its interval; the problem of one that is
    out takes the place of the last.
    """
    rate, ratio = contestant.rate, contestant.ratio
    is_baseline = contestant.name == comparison.baseline
    return [
        words.line(contestant.name),
        str(len(contestant.rates)),
        words.round_rate(rate.value if rate else None),
        rates(rate) if rate else words.MISSING,
        verdicts.times(ratio.value) if ratio else "1×" if is_baseline else "",
        words.line(contestant.problem) or (verdicts.span(ratio) if ratio else ""),
    ]


def rates(interval: Interval) -> str:
    """The ends of an interval of samples/s."""
    return f"{words.round_rate(interval.low)}–{words.round_rate(interval.high)}"


def difference(found: Difference, names: Sequence[str]) -> str:
    """A key and what each contestant has for it: "ranks: single 1, ddp 2"."""
    values = ", ".join(
        f"{name} {verdicts.value(value)}" for name, value in zip(names, found.values, strict=True)
    )
    return f"{found.key}: {values}"


def settings(equal: dict[str, str]) -> str:
    """What all have in common: "model mlp, data digits"."""
    return ", ".join(f"{key} {value}" for key, value in equal.items())
