"""Read a run for its screen: a frozen RunFrame at each call, at a cost that does not grow."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Set
from math import isnan
from typing import Any, NamedTuple

import psutil

from distrain.runners.analysis.diagnosis import Diagnosis, diagnose
from distrain.runners.config.schema import RunConfig
from distrain.runners.protocol.events import Attempt, Notice
from distrain.runners.records.reader import Record
from distrain.runners.records.snapshot import Follower, Snapshot
from distrain.runners.records.timeseries.rollup import Series
from distrain.runners.records.timeseries.series import GPU, HOST
from distrain.tui.data.change_detector import ChangeDetector
from distrain.tui.data.chart import Chart
from distrain.tui.data.chart_catalog import CHART_KINDS, PROBE_POINTS, draw_chart
from distrain.tui.data.chart_source import ChartSource, ChartView
from distrain.tui.data.failure import FailureDetails, read_failure
from distrain.tui.data.node_status import Gauge, NodeStatus, T, node_statuses

HISTORY_S = 120.0
HISTORY_POINTS = 64
DIAGNOSE_S = 3.0  # between two diagnoses of a live run, which change slowly
RANKS_PER_S = 32  # most ranks to read for charts, histories and diagnosis
LEAST_INTERVAL_S = 0.5  # runs whose interval would be shorter are read at each call


class RunFrame(NamedTuple):
    """Everything about a run at one moment.

    `process_names` are the names of processes on the GPUs by host and pid. `known_charts` are the
    names in CHART_KINDS that have values. `diagnosis` and, with many ranks, the charts may be a few
    seconds old. `warnings` are the notices of that level, each once, the first one first.
    """

    snapshot: Snapshot
    config: RunConfig
    charts: dict[str, Chart]
    nodes: list[NodeStatus]
    process_names: dict[tuple[int, int], str]
    diagnosis: Diagnosis
    failure: FailureDetails | None
    known_charts: Set[str] = frozenset()
    warnings: tuple[str, ...] = ()


class RunFeed:
    """Reads one record repeatedly. Not thread-safe."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self._follower = Follower(record)
        self._detector = ChangeDetector(record)
        self._source: ChartSource | None = None
        self._has_skipped_reading = False
        self._process_names: dict[tuple[int, int], str] = {}
        self._gauges_before: dict[str, dict[int, Gauge[Any]]] = {}
        self._diagnosis: tuple[float, bool, Diagnosis] | None = None
        self._charts: dict[str, Chart] = {}
        self._known_charts: set[str] = set()
        self._failure: FailureDetails | None = None
        self._warnings: dict[str, None] = {}  # as an ordered set
        # The time of the last full reading, and whether the run was live.
        self._full_read = (0.0, False)

    def has_changed(self) -> bool:
        """Return whether a new frame would differ from the last one."""
        skipped = self._has_skipped_reading
        self._has_skipped_reading = False
        state = self._follower.state
        # The screen counts the seconds until the first step.
        starting = state.facts is None and state.status in ("starting", "running")
        # The remaining time of a job decreases without an event.
        scheduled = state.job is not None and state.live
        return self._detector.has_changed() or skipped or starting or scheduled

    def read(self, view: ChartView) -> RunFrame:
        """Return the run as it is now; raises DistrainError if the record cannot be read."""
        events = self._follower.new_events(kinds=("notice", "attempt"))
        restarted = any(isinstance(event, Attempt) for event in events)
        notices = (event for event in events if isinstance(event, Notice))
        self._warnings |= dict.fromkeys(each.text for each in notices if each.level == "warning")
        snapshot = self._follower.snapshot()
        due = self._is_full_reading_due(restarted)
        hosts = self._gauges(HOST, self.record.latest(HOST), due, "cpu", "memory_used")
        names = ("utilisation", "memory_used", "power", "temperature")
        gpus = self._gauges(GPU, self._follower.gpus, due, *names)
        pids = ((gauge.sample.host, pid) for gauge in gpus for pid in gauge.sample.processes)
        return RunFrame(
            snapshot=snapshot,
            config=self.record.config,
            charts=self._draw_charts(view, due),
            nodes=node_statuses(snapshot.state, snapshot.ranks, hosts, gpus),
            process_names=self._name_processes(pids),
            diagnosis=self._diagnose(due),
            failure=self._read_failure(),
            known_charts=self._find_charts(due),
            warnings=tuple(self._warnings),
        )

    def _is_full_reading_due(self, restarted: bool) -> bool:
        """Return whether to read all ranks for charts, histories and diagnosis.

        Few ranks are read at each call. Many are read at intervals, and when the run has ended or
        its ranks were restarted.
        """
        now = time.monotonic()
        state = self._follower.state
        interval = state.plan.world_size / RANKS_PER_S if state.plan else 0.0
        last, was_live = self._full_read
        is_small = interval < LEAST_INTERVAL_S
        due = is_small or restarted or was_live != state.live or now - last >= interval
        if due:
            self._full_read = (now, state.live)
        else:
            self._has_skipped_reading = True
        return due

    def _diagnose(self, due: bool) -> Diagnosis:
        now = time.monotonic()
        live = self._follower.state.live
        last = self._diagnosis
        if last is None or last[1] != live or (due and live and now - last[0] >= DIAGNOSE_S):
            last = self._diagnosis = (now, live, diagnose(self.record))
        return last[2]

    def _read_failure(self) -> FailureDetails | None:
        """Read the log of a failed run once."""
        state = self._follower.state
        if state.error is None or state.live:
            self._failure = None
        elif self._failure is None:
            self._failure = read_failure(self.record)
        return self._failure

    def _draw_charts(self, view: ChartView, due: bool) -> dict[str, Chart]:
        if due or self._source is None or view != self._source.view:
            source = self._source = self._new_source(view)
            self._charts = {name: draw_chart(name, source) for name in view.plots}
        return self._charts

    def _find_charts(self, due: bool) -> Set[str]:
        """Return which charts have values; a chart that has had some is not read again for that."""
        if due:
            probe = ChartView(axis="time", points=PROBE_POINTS)
            source = ChartSource(self.record, probe, self._follower.evaluations)
            self._known_charts.update(
                name
                for name in CHART_KINDS.keys() - self._known_charts
                if any(line.has_values for line in CHART_KINDS[name].lines(source))
            )
        return frozenset(self._known_charts)

    def _new_source(self, view: ChartView) -> ChartSource:
        source = ChartSource(self.record, view, self._follower.evaluations)
        last = self._source
        if last and view != last.view and view.shows_all_of(last.view):
            # Only the x axis or the choice of charts changed: draw what was read before at once,
            # and read the record at the next call.
            source.steps = last.steps
            self._has_skipped_reading = True
        return source

    def _name_processes(self, pids: Iterable[tuple[int, int]]) -> dict[tuple[int, int], str]:
        """Return the names of processes by host and pid; processes that have ended keep theirs.

        Only processes of this host are looked up, and only while the run is live: later the
        system may have given a pid to another process.
        """
        state = self.record.state
        this_host = socket.gethostname()
        hosts = state.hosts or [state.host]
        for host, pid in pids:
            is_here = state.live and host < len(hosts) and hosts[host] == this_host
            if is_here and (host, pid) not in self._process_names:
                self._process_names[host, pid] = process_name(pid)
        return dict(self._process_names)

    def _gauges(
        self, series: Series[T], latest: dict[int, T], due: bool, *columns: str
    ) -> list[Gauge[T]]:
        """Return the gauges of these last samples, each with the history of the first of `columns`.

        A gauge without a new sample stays as it was, and so do histories that are not `due`.
        """
        before: dict[int, Gauge[T]] = self._gauges_before.get(series.name, {})
        found: dict[int, Gauge[T]] = {}
        starts: dict[int, float] = {}
        for key, sample in latest.items():
            gauge = before.get(key)
            if gauge is not None and (gauge.sample == sample or not due):
                found[key] = gauge._replace(sample=sample)
            else:
                starts[key] = sample.time - HISTORY_S
        without_values = [key for key in starts if not _has_any(latest[key], columns)]
        overall = self.record.curves(series, without_values, columns=columns, points=HISTORY_POINTS)
        histories = self.record.curves(
            series, starts, columns=columns[:1], points=HISTORY_POINTS, axis="time", start=starts
        )
        for key, history in (histories | overall).items():
            # A device that gives no value now is lost if it gave one before.
            lost = key in overall and any(
                not isnan(value) for name in columns for value in overall[key][name]
            )
            found[key] = Gauge(latest[key], history, lost)
        self._gauges_before[series.name] = {key: found[key] for key in latest}
        return list(self._gauges_before[series.name].values())


def process_name(pid: int) -> str:
    """Return the name of a process of this host, "process" if it has ended."""
    try:
        return str(psutil.Process(pid).name())
    except psutil.Error:
        return "process"


def _has_any(sample: Any, columns: Iterable[str]) -> bool:
    return any(getattr(sample, column) is not None for column in columns)
