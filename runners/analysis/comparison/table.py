"""The table of a comparison, with the same columns in the terminal, in Markdown and in the report.

A column in which no candidate has a figure is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from distrain.runners import formatting
from distrain.runners.analysis.comparison import sentences
from distrain.runners.analysis.comparison.descriptions import format_rates, median_rate
from distrain.runners.analysis.comparison.model import Candidate, Comparison
from distrain.runners.analysis.interval import Interval

INTERVAL_NOTES = {
    "runs": (
        "95 % intervals: the time after warm-up, without what was not steady at first, is divided "
        "into up to 20 consecutive stretches of equal length. A rate is the median of the "
        "stretches, its interval a smoothed bootstrap of that median. It shows how steady one run "
        "was, not how much two launches of the same config differ."
    ),
    "bench": (
        "95 % intervals: every candidate is launched once in each round. A rate is the median of "
        "the rounds, a ratio the median of the ratios within each round. The intervals are "
        "smoothed bootstraps of these medians; those of the ratios hold for all ratios together."
    ),
}
MAX_LOGGED_COLUMNS = 6  # columns of what scripts have logged
PHASE_LABELS = {"comm": "comm wait"}


class TableHead(NamedTuple):
    """A column. Where there is no room, columns with the highest `spare` are left out first."""

    name: str
    cell: Callable[[Candidate], str]
    right: bool = True
    spare: int = 0


def make_table(comparison: Comparison) -> tuple[list[TableHead], list[list[str]]]:
    """Return the columns that have a figure, and a row of cells for each candidate."""
    heads = [TableHead("run", lambda each: each.name, right=False), *_heads(comparison)]
    rows = [[head.cell(candidate) for head in heads] for candidate in comparison.candidates]
    kept = [column for column in range(len(heads)) if any(row[column] for row in rows)]
    cells = [
        [formatting.single_line(row[column]) or formatting.MISSING for column in kept]
        for row in rows
    ]
    return [heads[column] for column in kept], cells


class SettingRow(NamedTuple):
    """A setting that differs; `mark` is "≠" if that is unfair, "?" if it was not checked."""

    mark: str
    key: str
    values: list[str]


def setting_rows(comparison: Comparison) -> list[SettingRow]:
    """Return a row for each difference."""
    return [
        SettingRow(
            "" if each.fair and each.checked else "≠" if each.checked else "?",
            each.key,
            [sentences.format_setting(value) for value in each.values],
        )
        for each in comparison.differences
    ]


def describe_candidate(candidate: Candidate) -> str:
    """Return "ddp torchrun fp32"."""
    parts = (candidate.strategy, candidate.launcher, candidate.precision)
    return " ".join(part for part in parts if part)


def phase_label(phase: str) -> str:
    return PHASE_LABELS.get(phase, phase)


def _heads(comparison: Comparison) -> list[TableHead]:
    candidates = comparison.candidates
    phases = dict.fromkeys(name for each in candidates for name in each.phases)
    metrics = formatting.sort_metrics(
        dict.fromkeys(name for each in candidates for name in each.metrics)
    )
    heads = [
        TableHead("setup", describe_candidate, right=False, spare=6),
        TableHead("ranks", _ranks),
        TableHead(comparison.unit, lambda each: _present(formatting.round_rate, median_rate(each))),
        TableHead("95 % CI", lambda each: format_rates(each.rate) if each.rate else "", spare=1),
    ]
    if len(candidates) > 1:
        baseline = comparison.baseline
        heads.append(TableHead(f"× {baseline}", partial(_ratio, baseline)))
    heads.append(TableHead("efficiency", lambda each: _percent(each.efficiency), spare=5))
    for index, name in enumerate(metrics):
        label = name if formatting.is_accuracy(name) else f"eval {name}"
        heads.append(TableHead(label, partial(_metric, name), spare=2 if index else 0))
    logged = dict.fromkeys(name for each in candidates for name in each.logged)
    for index, name in enumerate([*logged][:MAX_LOGGED_COLUMNS]):
        heads.append(TableHead(f"{name} (last)", partial(_logged, name), spare=2 if index else 0))
    heads.append(TableHead(f"to {comparison.target or 'target'}", _time_to_target, spare=1))
    heads += [TableHead(phase_label(name), partial(_phase, name), spare=4) for name in phases]
    return [
        *heads,
        TableHead("comm overlap", lambda each: _present(formatting.percent, each.overlap), spare=4),
        TableHead("CPU", lambda each: _present(_utilisation, each.cpu), spare=7),
        TableHead("memory", lambda each: _present(formatting.size, each.host_memory), spare=8),
        TableHead("GPU", lambda each: _present(_utilisation, each.gpu), spare=3),
        TableHead(
            "GPU memory", lambda each: _present(formatting.size, each.device_memory), spare=3
        ),
        TableHead(
            "J/sample", lambda each: _present(formatting.figure, each.joules_per_sample), spare=3
        ),
    ]


def _ranks(candidate: Candidate) -> str:
    return formatting.count(candidate.world_size) if candidate.world_size else ""


def _ratio(baseline: str, candidate: Candidate) -> str:
    if candidate.ratio is None:
        return "baseline" if candidate.name == baseline else ""
    return _ratio_with_interval(candidate.ratio)


def _ratio_with_interval(ratio: Interval) -> str:
    return f"{sentences.format_ratio(ratio.value)} ({sentences.format_interval(ratio)})"


def _percent(interval: Interval | None) -> str:
    return "" if interval is None else formatting.percent(interval.value)


def _time_to_target(candidate: Candidate) -> str:
    if candidate.seconds_to_target is None:
        return ""
    duration = formatting.duration(candidate.seconds_to_target.value)
    if candidate.target_ratio is None:
        return duration
    return f"{duration}, {_ratio_with_interval(candidate.target_ratio)}"


def _metric(name: str, candidate: Candidate) -> str:
    value = candidate.metrics.get(name)
    return "" if value is None else formatting.metric_value(name, value)


def _logged(name: str, candidate: Candidate) -> str:
    return _present(formatting.figure, candidate.logged.get(name))


def _phase(name: str, candidate: Candidate) -> str:
    return _present(formatting.percent, candidate.phases.get(name))


def _utilisation(percent: float | None) -> str:
    return formatting.percent(None if percent is None else percent / 100)


def _present(format_figure: Callable[[float | None], str], figure: float | None) -> str:
    return "" if figure is None else format_figure(figure)
