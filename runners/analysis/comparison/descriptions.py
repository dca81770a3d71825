"""Table cells and short texts of a comparison, the same on the command line and in the app."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from distrain.runners import formatting
from distrain.runners.analysis.comparison import sentences
from distrain.runners.analysis.comparison.model import Candidate, Comparison, Difference
from distrain.runners.analysis.interval import Interval


def result_cells(candidate: Candidate, comparison: Comparison) -> list[str]:
    """Return name, rounds, rate with interval, and ratio with interval. The problem of a
    candidate takes the place of the last.
    """
    rate = candidate.rate
    ratio = candidate.ratio
    if ratio is not None:
        ratio_cell = sentences.format_ratio(ratio.value)
        interval_cell = sentences.format_interval(ratio)
    else:
        ratio_cell = "1×" if candidate.name == comparison.baseline else ""
        interval_cell = ""
    return [
        formatting.single_line(candidate.name),
        str(len(candidate.rates)),
        formatting.round_rate(median_rate(candidate)),
        format_rates(rate) if rate else formatting.MISSING,
        ratio_cell,
        formatting.single_line(candidate.problem) or interval_cell,
    ]


def median_rate(candidate: Candidate) -> float | None:
    """Return the median rate, also if there are too few measurements for an interval."""
    if candidate.rate is not None:
        return candidate.rate.value
    return median(candidate.rates) if candidate.rates else None


def format_rates(interval: Interval) -> str:
    """Return the ends of an interval of rates: "1,270–1,290"."""
    return f"{formatting.round_rate(interval.low)}–{formatting.round_rate(interval.high)}"


def format_difference(difference: Difference, names: Sequence[str]) -> str:
    """Return a setting with each candidate's value: "ranks: single 1, ddp 2"."""
    values = [
        f"{name} {sentences.format_setting(value)}"
        for name, value in zip(names, difference.values, strict=True)
    ]
    return f"{difference.key}: {', '.join(values)}"


def format_settings(equal: dict[str, str]) -> str:
    """Return the settings that all candidates share: "model mlp, data digits"."""
    return ", ".join(f"{key} {value}" for key, value in equal.items())
