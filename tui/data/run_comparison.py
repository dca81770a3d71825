"""Compare several runs: their curves in common charts, and the differences of their configs."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from distrain.runners import formatting
from distrain.runners.analysis.comparison.model import Unit
from distrain.runners.analysis.interval import Interval
from distrain.runners.config.field_types import SCRIPT
from distrain.runners.config.toml import flatten
from distrain.runners.errors import DistrainError
from distrain.runners.protocol.events import Facts
from distrain.runners.records.evaluation_history import EvaluationHistory
from distrain.runners.records.reader import Record
from distrain.runners.records.run_ids import display_names
from distrain.runners.records.snapshot import Follower
from distrain.runners.records.timeseries.curves import Curve, CurveQuery
from distrain.runners.records.timeseries.logged_curve import order_names
from distrain.tui.data.change_detector import ChangeDetector
from distrain.tui.data.chart import Chart, ChartLine
from distrain.tui.data.chart_catalog import LOGGED_CHART, chart_kind, empty_text
from distrain.tui.data.chart_source import ChartView
from distrain.tui.data.run_rows import RunRow, ended_row, headline, live_row
from distrain.tui.data.x_axis import XAxis
from distrain.tui.marks import RUN_MARK, Mark

RAN = "ran on: "
UNSET = "unset"
RESULT_S = 10.0  # between two comparisons of live runs


class ComparedRun(NamedTuple):
    """One of the runs. `name` and `mark` are unique among them.

    `settings` are its config and environment by key. `logged` are curves of what a script has
    logged, of those `logged_names` that are shown. `rate` is its median rate without warm-up, in
    the unit of the comparison, `ratio` that rate divided by the first run's.
    """

    row: RunRow
    name: str
    curve: Curve
    evaluations: EvaluationHistory
    began: float
    facts: Facts | None
    settings: dict[str, str] | None
    logged_names: Sequence[str] = ()
    logged: Mapping[str, Curve] = MappingProxyType({})
    mark: Mark = RUN_MARK
    rate: float | None = None
    ratio: Interval | None = None

    @property
    def is_script(self) -> bool:
        return (self.settings or {}).get("strategy") == SCRIPT

    @property
    def has_epochs(self) -> bool:
        """Whether it may be shown by epoch: neither scripts nor streams have epochs."""
        is_stream = self.facts is not None and not self.facts.has_epochs
        return not (self.is_script or is_stream)


class ComparisonFrame(NamedTuple):
    """Everything that the screen shows at one moment.

    `problems` are sentences on runs that cannot be read, `results` on what the comparison shows;
    `unequal` says why the runs are not comparable, `unchecked` what is not known of scripts; or
    they are "". `logged_names` are those of all runs.
    """

    runs: Sequence[ComparedRun]
    charts: dict[str, Chart]
    problems: Sequence[str] = ()
    results: Sequence[str] = ()
    unequal: str = ""
    unchecked: str = ""
    logged_names: Sequence[str] = ()
    known_charts: Set[str] = frozenset()
    unit: Unit = "samples/s"


class SettingValues(NamedTuple):
    """A key of the configs and its value in each run; None where a run does not have the key."""

    key: str
    values: tuple[str | None, ...]

    @property
    def differs(self) -> bool:
        # Where a run in the queue will run is not known yet, which is no difference.
        is_of_host = self.key.startswith(RAN)
        return len({value for value in self.values if value is not None or not is_of_host}) > 1


def setting_values(runs: Sequence[dict[str, str] | None]) -> list[SettingValues]:
    """Return all keys of the runs with their values: the config, then the environment."""
    keys = {key for run in runs for key in run or {}}
    ordered = sorted(keys, key=lambda key: (key.startswith(RAN), "." in key, key))
    return [SettingValues(key, tuple((run or {}).get(key) for run in runs)) for key in ordered]


def setting_text(run: ComparedRun, key: str) -> str:
    """Return the value of a key in a run, for display: a config may not set it."""
    settings = run.settings
    if settings is None or (key.startswith(RAN) and key not in settings):
        return formatting.MISSING  # not known
    return (settings[key] or "none") if key in settings else UNSET


def read_settings(record: Record) -> dict[str, str]:
    """Return a run's config by dotted keys, and its host, devices, commit and versions.

    What a script has declared is part of the config.

    Raises DistrainError if the config cannot be read.
    """
    state = record.state
    plan = state.plan
    origin = state.provenance
    ran = {
        "host": state.host,
        "devices": ", ".join(device.label for device in plan.devices) if plan else "",
        "commit": str((origin.get("git") or {}).get("commit") or "")[:12],
        **(origin.get("versions") or {}),
    }
    config = {
        key: (formatting.printable(value) if isinstance(value, str) else json.dumps(value))
        for key, value in flatten(record.config.to_dict()).items()
    }
    if record.config.is_script:
        declared = record.script_settings().config
        config |= {
            f"config.{formatting.single_line(name)}": formatting.single_line(str(value))
            for name, value in declared.items()
        }
    return config | {f"{RAN}{key}": str(value) for key, value in ran.items() if value}


def distinct_names(rows: Sequence[RunRow]) -> list[str]:
    """Return a name for each run, no two alike."""
    return display_names([(row.name, row.id) for row in rows])


# --- charts ---------------------------------------------------------------------------------------


Values = Callable[[ComparedRun, XAxis], tuple[Sequence[float], Sequence[float]]]


def _column(name: str) -> Values:
    def values(run: ComparedRun, axis: XAxis) -> tuple[Sequence[float], Sequence[float]]:
        if not len(run.curve):
            return (), ()
        return axis.values(run.curve[axis.column]), run.curve[name]

    return values


def _logged(name: str) -> Values:
    def values(run: ComparedRun, axis: XAxis) -> tuple[Sequence[float], Sequence[float]]:
        curve = run.logged.get(name)
        if curve is None or not len(curve):
            return (), ()
        return axis.values(curve[axis.column]), curve["value"]

    return values


def _metric(name: str) -> Values:
    def values(run: ComparedRun, axis: XAxis) -> tuple[Sequence[float], Sequence[float]]:
        x, y = run.evaluations.curve(name, axis.column)
        return axis.values(x), y

    return values


# Keys of CHART_KINDS, each with a function that returns the x and y values of a run.
COMPARISON_CHARTS = {
    "loss": _column("loss"),
    "throughput": _column("samples_per_s"),
    "evaluation": _metric(""),
    "lr": _column("lr"),
    "eval loss": _metric("loss"),
}


def draw_chart(name: str, runs: Sequence[ComparedRun], view: ChartView) -> Chart:
    """Draw a chart with a line per run: one of COMPARISON_CHARTS, or what scripts have logged.

    Raises KeyError for other names.
    """
    kind = chart_kind(name)
    is_logged = name.startswith(LOGGED_CHART)
    values = _logged(name) if is_logged else COMPARISON_CHARTS[name]
    title = kind.title
    format_value = kind.format_value
    if name == "evaluation" and (metric := common_metric(runs)):
        title = f"Evaluation: {metric}"
        values = _metric(metric)
        format_value = partial(formatting.metric_value, metric)
    axes = [XAxis(view.axis, run.facts, run.began) for run in runs]
    if is_logged and any(axis.of_logged != axis for axis in axes):
        axes = [axis._replace(name="step") for axis in axes]
    lines = []
    for run, axis in zip(runs, axes, strict=True):
        x, y = values(run, axis)
        if len(x):
            lines.append(ChartLine(run.name, run.mark, x, y))
    return Chart(
        title=title,
        lines=lines,
        x_axis="duration" if view.axis == "time" else axes[0].name if axes else view.axis,
        unit=kind.unit,
        format_value=format_value,
        span=view.span,
        empty_text=empty_text(kind, any(run.row.live for run in runs), view.span),
    )


def common_metric(runs: Sequence[ComparedRun]) -> str:
    """Return the metric that most runs have; among several, the one that stands for a run."""
    found = Counter(name for run in runs for name in run.evaluations.names)
    most = max(found.values(), default=0)
    return headline(name for name, count in found.items() if count == most)


# --- reading --------------------------------------------------------------------------------------


class ComparisonFeed:
    """Reads several records repeatedly, only changed ones in full. Not thread-safe.

    `marks` are those of the runs, in the same order.
    """

    def __init__(self, records: Sequence[Record], marks: Sequence[Mark]) -> None:
        self._marks = marks
        self._runs = [_RunReader(record) for record in records]
        # The time of the last comparison, and whether a run was live then.
        self._compared = (-inf, True)
        self._result = ComparisonResult()
        self._known_charts: set[str] = set()

    def has_changed(self) -> bool:
        """Return whether a run has changed since the last call: a few stats for each run."""
        changed = [run.has_changed() for run in self._runs]
        return any(changed)

    def read(self, view: ChartView) -> ComparisonFrame:
        """Return the runs as they are now."""
        unnamed = [run.read(view) for run in self._runs]
        rows = [run.row for run in unnamed]
        names = distinct_names(rows)
        result = self._compare(any(row.live for row in rows))
        runs = [
            run._replace(
                name=name,
                mark=mark,
                rate=result.rates.get(run.row.id),
                ratio=result.ratios.get(run.row.id),
            )
            for run, name, mark in zip(unnamed, names, self._marks, strict=True)
        ]
        problems = [run.problem for run in self._runs if run.problem]
        charts = {name: draw_chart(name, runs, view) for name in view.plots}
        for name in COMPARISON_CHARTS.keys() - self._known_charts:
            if any(line.has_values for line in draw_chart(name, runs, view).lines):
                self._known_charts.add(name)
        return ComparisonFrame(
            runs,
            charts,
            problems,
            result.results,
            result.unequal,
            result.unchecked,
            order_names(run.logged_names for run in runs),
            frozenset(self._known_charts),
            result.unit,
        )

    def _compare(self, live: bool) -> ComparisonResult:
        """Compare live runs at intervals, because that reads much, and ended runs once."""
        compared_at, was_live = self._compared
        is_due = time.monotonic() - compared_at >= RESULT_S if live else was_live
        if is_due:
            self._result = compare_records([run.record for run in self._runs])
            self._compared = time.monotonic(), live
        return self._result


class ComparisonResult(NamedTuple):
    """What `distrain compare` reports on the runs; `rates` and `ratios` by run id."""

    results: Sequence[str] = ()
    unequal: str = ""
    unchecked: str = ""
    rates: Mapping[str, float | None] = MappingProxyType({})
    ratios: Mapping[str, Interval | None] = MappingProxyType({})
    unit: Unit = "samples/s"


def compare_records(records: Sequence[Record]) -> ComparisonResult:
    """Compare runs; the result is empty if they cannot be compared."""
    from distrain.runners.analysis.comparison import descriptions, recorded_runs, sentences

    try:
        found = recorded_runs.compare(records)
    except DistrainError:
        return ComparisonResult()
    ids = [Path(each.folders[0]).name for each in found.candidates]
    rates = map(descriptions.median_rate, found.candidates)
    ratios = (each.ratio for each in found.candidates)
    return ComparisonResult(
        [*found.results, *found.warnings],
        sentences.describe_unequal(found),
        sentences.describe_unchecked(found.unchecked),
        dict(zip(ids, rates, strict=True)),
        dict(zip(ids, ratios, strict=True)),
        found.unit,
    )


class _RunReader:
    """Reads one of the runs if it has changed, or if another part of it is to be shown."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.problem = ""
        self._follower = Follower(record)
        self._detector = ChangeDetector(record)
        self._last: tuple[ChartView | None, ComparedRun] | None = None

    def has_changed(self) -> bool:
        changed = self._detector.has_changed()
        if changed and self._last is not None:
            self._last = None, self._last[1]
        return changed

    def read(self, view: ChartView) -> ComparedRun:
        logged = tuple(name for name in view.plots if name.startswith(LOGGED_CHART))
        wanted = view._replace(plots=logged)
        if self._last is None or self._last[0] != wanted:
            try:
                self._last = wanted, self._read_record(wanted)
            except DistrainError as error:  # the run stays as it was read last
                if self._last is None:
                    raise
                self.problem = str(error)
                self._last = wanted, self._last[1]
        return self._last[1]

    def _read_record(self, view: ChartView) -> ComparedRun:
        self.problem = ""
        record = self.record
        state = record.state
        began = state.started or state.created
        row = ended_row(record, state)
        settings = None
        curve = Curve({})
        names: Sequence[str] = ()
        logged: dict[str, Curve] = {}
        try:
            self._follower.new_events(kinds=())
            settings = read_settings(record)
            if state.live:
                row = live_row(self._follower.snapshot(), record)
            elif state.summary is None:
                row = ended_row(record, state, record.summary())
            axis = XAxis(view.axis, state.facts, began)
            curve = record.overall(**_curve_query(view, axis))
            names = [*record.logged()]
            query = _curve_query(view, axis.of_logged)
            for name in view.plots:
                logged[name] = record.logged_curve(name.removeprefix(LOGGED_CHART), **query)
        except DistrainError as error:
            self.problem = str(error)
        evaluations = self._follower.evaluations.copy()
        return ComparedRun(row, "", curve, evaluations, began, state.facts, settings, names, logged)


def _curve_query(view: ChartView, axis: XAxis) -> CurveQuery:
    query: CurveQuery = {"points": view.points, "axis": axis.column}
    if view.span is not None:
        query["start"], query["end"] = axis.limits(view.span)
    return query
