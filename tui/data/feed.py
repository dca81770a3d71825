"""Reads one run for a screen: a frozen Frame at each look, at a cost that does not grow."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable
from math import isnan
from typing import Any, NamedTuple

import psutil

from runners.config import RunConfig
from runners.diagnosis import Diagnosis, diagnose
from runners.events import Attempt, Event
from runners.record import Record
from runners.rollup import Series
from runners.series import GPU, HOST
from runners.snapshot import Follower, Snapshot
from tui.data.chart import Chart
from tui.data.growth import Growth
from tui.data.nodes import Gauge, Node, T, nodes
from tui.data.plots import Look, View, chart

HISTORY_S = 120.0
HISTORY_POINTS = 64
DIAGNOSE_S = 3.0  # of a live run: it moves slowly, and is a reading of its own
RANKS_A_SECOND = 32  # that are read for plots, histories and diagnosis,
LEAST_PATIENCE_S = 0.5  # unless they are so few that each look may read them


class Frame(NamedTuple):
    """Everything about a run at one moment.

    `nodes` are its machines with their ranks and gauges. `news` are the events since the frame
    before, `names` what processes on the GPUs are called, by host and pid; `diagnosis` and, of many
    ranks, `charts` may be a few seconds old.
    """

    snapshot: Snapshot
    config: RunConfig
    charts: dict[str, Chart]
    nodes: list[Node]
    news: list[Event]
    names: dict[tuple[int, int], str]
    diagnosis: Diagnosis


class Feed:
    """Looks at one record again and again; for one thread."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self._follower = Follower(record)
        self._growth = Growth(record)
        self._look: Look | None = None
        self._owed = False
        self._names: dict[tuple[int, int], str] = {}
        self._last: dict[str, dict[int, Gauge[Any]]] = {}
        self._diagnosis: tuple[float, bool, Diagnosis] | None = None
        self._charts: dict[str, Chart] = {}
        self._read = (0.0, False)  # when every rank was read, and whether it was live

    def changed(self) -> bool:
        """Whether there is anything to see since the last call: how long ranks take to start is
        news as well.
        """
        owed, self._owed = self._owed, False
        state = self._follower.state
        starting = state.facts is None and state.status in ("starting", "running")
        # The time that is left of a job goes on by itself.
        scheduled = state.job is not None and state.live
        return self._growth.changed() or owed or starting or scheduled

    def look(self, view: View) -> Frame:
        """The run as it is now; raises DistrainError where the record cannot be read."""
        news = self._follower.news()
        again = any(isinstance(event, Attempt) for event in news)
        now, due = self._follower.snapshot(), self._is_due(again)
        hosts = self._gauges(HOST, due, "cpu", "memory_used")
        gpus = self._gauges(GPU, due, "utilisation", "memory_used", "power", "temperature")
        pids = ((gauge.sample.host, pid) for gauge in gpus for pid in gauge.sample.processes)
        return Frame(
            snapshot=now,
            config=self.record.config,
            charts=self._drawn(view, due),
            nodes=nodes(now.state, now.ranks, hosts, gpus),
            news=news,
            names=self._named(pids),
            diagnosis=self._diagnosed(due),
        )

    def _is_due(self, again: bool) -> bool:
        """Whether what is read of every rank for plots, histories and diagnosis is to be read anew:
        of few ranks always, of many once in a while, and when the run has ended or its ranks were
        started `again`.
        """
        now, state = time.monotonic(), self._follower.state
        patience = state.plan.world_size / RANKS_A_SECOND if state.plan else 0.0
        then, live = self._read
        few, changed = patience < LEAST_PATIENCE_S, again or live != state.live
        due = few or changed or now - then >= patience
        if due:
            self._read = (now, state.live)
        else:
            self._owed = True
        return due

    def _diagnosed(self, due: bool) -> Diagnosis:
        now, live, last = time.monotonic(), self._follower.state.live, self._diagnosis
        if last is None or last[1] != live or (due and live and now - last[0] >= DIAGNOSE_S):
            last = self._diagnosis = (now, live, diagnose(self.record))
        return last[2]

    def _drawn(self, view: View, due: bool) -> dict[str, Chart]:
        if due or self._look is None or view != self._look.view:
            look = self._look = self._looked(view)
            self._charts = {name: chart(name, look) for name in view.plots}
        return self._charts

    def _looked(self, view: View) -> Look:
        """A new reading; the last one, for a start, where just the x axis or the plots are others:
        a key need not wait for the disk.
        """
        look, last = Look(self.record, view, self._follower.evaluations), self._look
        if last and view != last.view and view.shows_all_of(last.view):
            look.steps, self._owed = last.steps, True
        return look

    def _named(self, pids: Iterable[tuple[int, int]]) -> dict[tuple[int, int], str]:
        """What processes are called; those that have gone keep their names.

        Once the run has ended, or on another host, a number may be another process's.
        """
        state, me = self.record.state, socket.gethostname()
        names = state.hosts or [state.host]
        for host, pid in pids:
            here = state.live and host < len(names) and names[host] == me
            if here and (host, pid) not in self._names:
                try:
                    self._names[host, pid] = psutil.Process(pid).name()
                except psutil.Error:
                    self._names[host, pid] = "process"
        return dict(self._names)

    def _gauges(self, series: Series[T], due: bool, *columns: str) -> list[Gauge[T]]:
        """The gauges of a series with the history of the first column; one without a new sample
        is as it was, and so are histories that are not yet `due`.
        """
        before: dict[int, Gauge[T]] = self._last.get(series.name, {})
        latest = self.record.latest(series)
        found, starts = {}, {}
        for key, sample in latest.items():
            gauge = before.get(key)
            if gauge is not None and (gauge.sample == sample or not due):
                found[key] = gauge._replace(sample=sample)
            else:
                starts[key] = sample.time - HISTORY_S
        silent = [key for key in starts if not _has_any(latest[key], columns)]
        ever = self.record.curves(series, silent, columns=columns, points=HISTORY_POINTS)
        histories = self.record.curves(
            series, starts, columns=columns[:1], points=HISTORY_POINTS, axis="time", start=starts
        )
        for key, history in (histories | ever).items():
            known = (value for name in columns for value in ever[key][name]) if key in ever else ()
            lost = any(not isnan(value) for value in known)
            found[key] = Gauge(latest[key], history, lost)
        self._last[series.name] = {key: found[key] for key in latest}
        return list(self._last[series.name].values())


def _has_any(sample: Any, columns: Iterable[str]) -> bool:
    return any(getattr(sample, column) is not None for column in columns)
