"""A comparison as text for a terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log
from textwrap import fill

import msgspec

from distrain.runners import formatting
from distrain.runners.analysis.comparison import sentences
from distrain.runners.analysis.comparison import table as comparison_table
from distrain.runners.analysis.comparison.chart_style import needs_log_scale
from distrain.runners.analysis.comparison.curves import LOGGED_PREFIX
from distrain.runners.analysis.comparison.model import CandidateCurve, Comparison
from distrain.runners.analysis.comparison.table import MAX_LOGGED_COLUMNS
from distrain.runners.cli import terminal
from distrain.runners.cli.terminal import (
    TextColumn,
    align_columns,
    format_fields,
    format_table,
    paint,
)

BARS = "▁▂▃▄▅▆▇█"
CURVE_WIDTH = 32  # characters
TEXT_WIDTH = 79


def format_json(comparison: Comparison) -> str:
    """Return the comparison as JSON, with the sentence that calls it unequal as `unequal`."""
    data = {"unequal": sentences.describe_unequal(comparison), **msgspec.to_builtins(comparison)}
    return terminal.format_json(data) + "\n"


def format_comparison(comparison: Comparison) -> str:
    """Return the page for a person."""
    diagnoses = [
        f"{each.name}: {each.diagnosis}" for each in comparison.candidates if each.diagnosis
    ]
    equal = format_fields(
        (key, formatting.single_line(value)) for key, value in comparison.equal.items()
    )
    parts = [
        paint(sentences.describe_unequal(comparison), "warning"),
        paint(sentences.describe_unchecked(comparison.unchecked), "warning"),
        paint(comparison.title, "bold"),
        _format_list(comparison.results),
        _format_candidates(comparison),
        _format_section("curves", _format_curves(comparison)),
        _format_section("differences", _format_differences(comparison)),
        _format_section("equal", equal),
        _format_section("diagnosis", _format_list(diagnoses)),
        _format_section("warnings", _format_list(comparison.warnings)),
        paint(fill(comparison_table.INTERVAL_NOTES[comparison.kind], TEXT_WIDTH), "dim"),
    ]
    return "\n\n".join(part for part in parts if part)


def _format_section(title: str, body: str) -> str:
    return f"{paint(title, 'bold')}\n{body}" if body else ""


def _format_list(texts: Sequence[str]) -> str:
    return "\n".join(f"  {formatting.single_line(text)}" for text in texts)


def _format_candidates(comparison: Comparison) -> str:
    heads, rows = comparison_table.make_table(comparison)
    columns = [TextColumn(head.name, head.right, head.spare) for head in heads]
    return format_table(columns, rows, indent="  ")


def _format_differences(comparison: Comparison) -> str:
    differences = comparison_table.setting_rows(comparison)
    if not differences:
        return ""
    names = [each.name for each in comparison.candidates]
    rows = [[row.mark, row.key, *row.values] for row in differences]
    header, *lines = align_columns([TextColumn(name) for name in ("", "", *names)], rows)
    return "\n".join([f"  {paint(header, 'dim')}", *(f"  {line}" for line in lines)])


# --- curves ---------------------------------------------------------------------------------------


def _format_curves(comparison: Comparison) -> str:
    """Return the loss, the first metric of the evaluations and what scripts have logged first.

    Each has its first and last point, which are means, and bars in between.
    """
    rows = []
    for name in _shown_curves(comparison):
        candidates = [each for each in comparison.candidates if name in each.curves]
        bar_of = _make_scale([each.curves[name] for each in candidates])
        for each in candidates:
            curve = each.curves[name]
            values = [value for value in curve.values if value is not None]
            if values:
                first = formatting.figure(values[0])
                last = formatting.figure(values[-1])
                rows.append([name, each.name, first, _format_bars(curve, bar_of), last])
    if not rows:
        return ""
    columns = [
        TextColumn("curve"),
        TextColumn(""),
        TextColumn("first point", right=True),
        TextColumn(""),
        TextColumn("last point", right=True),
    ]
    header, *lines = align_columns(columns, rows)
    return "\n".join([f"  {paint(header, 'dim')}", *(f"  {line}" for line in lines)])


def _shown_curves(comparison: Comparison) -> list[str]:
    names = dict.fromkeys(name for each in comparison.candidates for name in each.curves)
    shown = ["loss"] if "loss" in names else []
    shown += [name for name in names if name.startswith("eval ")][:1]
    return shown + [name for name in names if name.startswith(LOGGED_PREFIX)][:MAX_LOGGED_COLUMNS]


def _make_scale(curves: Sequence[CandidateCurve]) -> Callable[[float], str]:
    """Return the function that gives the bar of a value; these curves share its scale."""
    transform = log if needs_log_scale(curves) else float
    values = [transform(value) for curve in curves for value in curve.values if value is not None]
    low = min(values, default=0.0)
    high = max(values, default=0.0)
    half = high / 2 - low / 2  # the whole range may be infinite
    last = len(BARS) - 1
    return lambda value: BARS[round((transform(value) / 2 - low / 2) / half * last) if half else 0]


def _format_bars(curve: CandidateCurve, bar_of: Callable[[float], str]) -> str:
    """Return a bar for the mean of each of up to CURVE_WIDTH equal parts of the curve."""
    count = len(curve.values)
    parts = min(CURVE_WIDTH, count)
    bars = ""
    for part in range(parts):
        values = curve.values[part * count // parts : (part + 1) * count // parts]
        known = [value for value in values if value is not None]
        bars += bar_of(_mean(known)) if known else " "
    return bars


def _mean(values: Sequence[float]) -> float:
    """Return a mean that lies within the values, also where their sum is rounded or infinite."""
    return min(max(sum(values) / len(values), min(values)), max(values))
