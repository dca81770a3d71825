"""Which charts a run can show, and which of them are shown first."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from distrain.runners.records.snapshot import Snapshot
from distrain.runners.records.state import RunState
from distrain.tui.data.chart_catalog import CHART_KINDS, GPU_CHARTS, LOGGED_CHART
from distrain.tui.data.chart_source import DEFAULT_CHARTS
from distrain.tui.data.run_comparison import COMPARISON_CHARTS, ComparisonFrame

MOST_PLOTS = len(DEFAULT_CHARTS)
_MACHINE = ("gpu busy", "gpu memory", "cpu", "memory", "host cpu", "host memory")
_OF_SCRIPTS = ("evaluation", "throughput", "phases")
_LEAST_OF_SCRIPTS = 2  # of these, next to many logged names


def offered_charts(snapshot: Snapshot, is_script: bool, known: Collection[str]) -> list[str]:
    """Return the charts that have values, or that may get some while the run is live.

    `known` are those in CHART_KINDS that have values. What a script has logged comes first.
    """
    expected = _expected_charts(snapshot.state, is_script)
    logged = logged_charts(snapshot.logged_names)
    return [*logged, *(name for name in CHART_KINDS if name in known or name in expected)]


def _expected_charts(state: RunState, is_script: bool) -> set[str]:
    if not state.live:
        return set()
    has_gpus = state.plan is not None and state.plan.devices[0].kind == "cuda"
    expected = set(_MACHINE if is_script else CHART_KINDS)
    return expected if has_gpus else expected.difference(GPU_CHARTS)


def compared_charts(frame: ComparisonFrame) -> list[str]:
    """Return what `offered_charts` does, for several runs."""
    has_live_preset = any(run.row.live and not run.is_script for run in frame.runs)
    charts = [name for name in COMPARISON_CHARTS if has_live_preset or name in frame.known_charts]
    return [*logged_charts(frame.logged_names), *charts]


def logged_charts(names: Iterable[str]) -> list[str]:
    return [LOGGED_CHART + name for name in names]


def first_charts(offered: Collection[str], preferred: Iterable[str]) -> tuple[str, ...]:
    """Return the charts to show: the preferred ones, then others. There may be fewer than panes."""
    wanted = dict.fromkeys([*preferred, *offered])
    return tuple(name for name in wanted if name in offered)[:MOST_PLOTS]


def charts_of_scripts(offered: Iterable[str]) -> list[str]:
    """Return charts in the order of preference for a script: what it logs, then its speed."""
    offered = list(offered)
    logged = [name for name in offered if name.startswith(LOGGED_CHART)]
    measured = [name for name in _OF_SCRIPTS if name in offered]
    first = MOST_PLOTS - len(measured[:_LEAST_OF_SCRIPTS])
    return [*logged[:first], *measured, *logged[first:], "lr", *_MACHINE]
