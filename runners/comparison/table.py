"""The table of a comparison: the same columns and the same words in the terminal, in Markdown and
in the report. A column in which nobody has a figure is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median as middle
from typing import NamedTuple

from runners import words
from runners.comparison import Comparison, Contestant, Interval, verdicts

INTERVALS = {
    "runs": (
        "Intervals (95 %): the time after warm-up, less what was not steady yet, is cut into up to "
        "20 consecutive stretches of equal length; a rate is the median of theirs, its interval a "
        "smoothed bootstrap of that median. They tell how steady one run was, not how much two "
        "launches of the same differ."
    ),
    "bench": (
        "Intervals (95 %): every contestant is run once in each round; a rate is the median of the "
        "rounds and a ratio the median of the rounds' ratios, their intervals smoothed bootstraps "
        "of these medians, of all ratios together."
    ),
}


class Head(NamedTuple):
    """A column; `spare` ones go first where there is no room, the highest of them first."""

    name: str
    cell: Callable[[Contestant], str]
    right: bool = True
    spare: int = 0


def table(comparison: Comparison) -> tuple[list[Head], list[list[str]]]:
    """The columns that somebody has a figure in, and a row for each contestant."""
    heads = [Head("run", lambda each: each.name, right=False), *_heads(comparison)]
    rows = [[head.cell(each) for head in heads] for each in comparison.contestants]
    kept = [i for i in range(len(heads)) if any(row[i] for row in rows)]
    cells = [[words.line(row[i]) or words.MISSING for i in kept] for row in rows]
    return [heads[i] for i in kept], cells


def _heads(comparison: Comparison) -> list[Head]:
    phases = dict.fromkeys(name for each in comparison.contestants for name in each.phases)
    metrics = words.shares_first(
        dict.fromkeys(name for each in comparison.contestants for name in each.metrics)
    )
    return [
        Head("how", how, right=False, spare=6),
        Head("ranks", lambda each: words.count(each.world_size) if each.world_size else ""),
        Head("samples/s", _rate),
        Head("95 % CI", _ends, spare=1),
        *([_to_baseline(comparison)] if len(comparison.contestants) > 1 else []),
        Head("efficiency", lambda each: _percent(each.efficiency), spare=5),
        *(
            Head(
                name if words.is_share(name) else f"eval {name}",
                partial(_metric, name),
                spare=2 if i else 0,
            )
            for i, name in enumerate(metrics)
        ),
        Head(f"to {comparison.target or 'target'}", _to_target, spare=1),
        *(Head(name, partial(_share, name), spare=4) for name in phases),
        Head("hidden comm", lambda each: _present(words.percent, each.overlap), spare=4),
        Head("CPU", lambda each: _present(_load, each.cpu), spare=7),
        Head("memory", lambda each: _present(words.size, each.host_memory), spare=8),
        Head("GPU", lambda each: _present(_load, each.gpu), spare=3),
        Head("GPU memory", lambda each: _present(words.size, each.device_memory), spare=3),
        Head("J/sample", lambda each: _present(words.figure, each.joules_per_sample), spare=3),
    ]


def _to_baseline(comparison: Comparison) -> Head:
    return Head(f"× {comparison.baseline}", partial(_ratio, comparison.baseline))


def how(each: Contestant) -> str:
    """ "ddp torchrun fp32"."""
    return " ".join(filter(None, (each.strategy, each.launcher, each.precision)))


def median(each: Contestant) -> float | None:
    """Samples/s, also where there are too few rounds for an interval."""
    if each.rate is not None:
        return each.rate.value
    return middle(each.rates) if each.rates else None


def _rate(each: Contestant) -> str:
    return _present(words.round_rate, median(each))


def _ends(each: Contestant) -> str:
    if each.rate is None:
        return ""
    return f"{words.round_rate(each.rate.low)}–{words.round_rate(each.rate.high)}"


def _ratio(baseline: str, each: Contestant) -> str:
    if each.ratio is None:
        return "baseline" if each.name == baseline else ""
    return f"{verdicts.times(each.ratio.value)} ({verdicts.span(each.ratio)})"


def _percent(interval: Interval | None) -> str:
    return "" if interval is None else words.percent(interval.value)


def _to_target(each: Contestant) -> str:
    if each.seconds_to_target is None:
        return ""
    found, ratio = words.duration(each.seconds_to_target.value), each.target_ratio
    return f"{found}, {verdicts.times(ratio.value)} ({verdicts.span(ratio)})" if ratio else found


def _metric(name: str, each: Contestant) -> str:
    found = each.metrics.get(name)
    return "" if found is None else words.metric_value(name, found)


def _share(name: str, each: Contestant) -> str:
    return _present(words.percent, each.phases.get(name))


def _load(percent: float | None) -> str:
    return words.percent(None if percent is None else percent / 100)


def _present(worded: Callable[[float | None], str], figure: float | None) -> str:
    return "" if figure is None else worded(figure)


def settings(comparison: Comparison) -> Sequence[tuple[str, list[str], bool]]:
    """Rows of what differs: the key, each contestant's value, whether that is fair."""
    return [
        (each.key, [verdicts.value(text) for text in each.values], each.fair)
        for each in comparison.differences
    ]
