"""The part of an axis that a chart shows after a zoom or pan; None for all of it."""

from __future__ import annotations

from math import log10

from distrain.tui.plotting.chart_layout import ChartLayout

Span = tuple[float, float]

_LEAST_X = {"step": 2.0, "time": 4.0, "duration": 4.0}
_LEAST_X_PART = 1e-6  # of the whole x axis
_LEAST_Y = 2e-12
_LEAST_Y_PART = 2e-9  # of the values: closer ones have no ticks, and in the end no difference


def zoom_x(
    layout: ChartLayout, whole: Span | None, factor: float, about: float | None
) -> Span | None:
    """Return the x span scaled around a visible x, else around its middle.

    `whole` is the x axis when zoomed out.
    """
    chart = layout.chart
    if layout.extent is None:
        return chart.span
    low, high, _ = layout.x
    whole = whole or (low, high)
    least = _LEAST_X.get(chart.x_axis, _LEAST_X_PART * (whole[1] - whole[0]))
    if factor < 1 and (high - low) * factor < least:
        return chart.span
    if about is None or not low <= about <= high:
        about = _middle((low, high))
    return _unless_all(_scale((low, high), factor, about), whole)


def pan_x(layout: ChartLayout, whole: Span | None, direction: int) -> Span | None:
    """Return the x span moved by half its width to the right (1) or left (-1).

    Its middle stays within the data.
    """
    span = layout.chart.span
    return _move(span, direction / 2, whole or span) if span else None


def zoom_y(layout: ChartLayout, factor: float) -> Span | None:
    """Return the y range scaled around its middle."""
    if layout.chart.stacked:
        return None
    visible = _y_ends(layout)
    scaled = _unless_all(_scale(visible, factor, _middle(visible)), _y_ends(_zoomed_out_y(layout)))
    least = max(_LEAST_Y, _LEAST_Y_PART * max(map(abs, visible)))
    if scaled and factor < 1 and scaled[1] - scaled[0] < least:
        return layout.look.y_span
    return _y_values(scaled, layout) if scaled else None


def pan_y(layout: ChartLayout, direction: int) -> Span | None:
    """Return the y range moved by a quarter up (1) or down (-1).

    Its middle stays within the whole axis.
    """
    if layout.look.y_span is None:
        return None
    whole = _y_ends(_zoomed_out_y(layout))
    return _y_values(_move(_y_ends(layout), direction / 4, whole), layout)


def _zoomed_out_y(layout: ChartLayout) -> ChartLayout:
    look = layout.look._replace(y_span=None)
    return ChartLayout(layout.chart, layout.width, layout.height, look)


def _y_ends(layout: ChartLayout) -> Span:
    """Return the ends of the y axis; of a log axis their logarithms."""
    low, high, is_log = layout.y
    return (log10(low), log10(high)) if is_log else (low, high)


def _y_values(ends: Span, layout: ChartLayout) -> Span:
    low, high = ends
    return (10**low, 10**high) if layout.y.log else ends


def _middle(span: Span) -> float:
    return (span[0] + span[1]) / 2


def _scale(span: Span, factor: float, about: float) -> Span:
    low, high = span
    return about - (about - low) * factor, about + (high - about) * factor


def _unless_all(span: Span, whole: Span) -> Span | None:
    return None if span[0] <= whole[0] and span[1] >= whole[1] else span


def _move(span: Span, widths: float, whole: Span) -> Span:
    """Return the span moved by so many of its widths; its middle stays within the whole axis."""
    low, high = span
    middle, half = _middle(span), (high - low) / 2
    first, last = whole
    to = max(min(first, middle), min(middle + widths * (high - low), max(last, middle)))
    return to - half, to + half
