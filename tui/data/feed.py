"""Reads one run for a screen: a frozen Frame at each look, at a cost that does not grow."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable
from math import isnan
from typing import Any, Generic, NamedTuple, TypeVar

import psutil

from runners.config import RunConfig
from runners.diagnosis import Diagnosis, diagnose
from runners.events import Event, GpuSample, HostSample
from runners.record import Record
from runners.rollup import Curve, Series
from runners.series import GPU, HOST
from runners.snapshot import Follower, Snapshot
from tui.data.chart import Chart
from tui.data.growth import Growth
from tui.data.plots import Look, View, chart

HISTORY_S = 120.0
HISTORY_POINTS = 64
DIAGNOSE_S = 3.0  # of a live run: it moves slowly, and is a reading of its own


T = TypeVar("T", GpuSample, HostSample)


class Gauge(NamedTuple, Generic[T]):
    """A GPU or the host: its last sample, and curves of the last HISTORY_S seconds.

    `lost` where it gave figures and gives none any more.
    """

    sample: T
    history: Curve
    lost: bool = False


class Frame(NamedTuple):
    """Everything about a run at one moment.

    `news` are the events since the frame before, `names` what processes on the GPUs are called;
    `diagnosis` may be DIAGNOSE_S old.
    """

    snapshot: Snapshot
    config: RunConfig
    charts: dict[str, Chart]
    gpus: list[Gauge[GpuSample]]
    host: Gauge[HostSample] | None
    news: list[Event]
    names: dict[int, str]
    diagnosis: Diagnosis


class Feed:
    """Looks at one record again and again; for one thread."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self._follower = Follower(record)
        self._growth = Growth(record)
        self._look: Look | None = None
        self._owed = False
        self._names: dict[int, str] = {}
        self._last: dict[str, dict[int, Gauge[Any]]] = {}
        self._diagnosis: tuple[float, bool, Diagnosis] | None = None

    def changed(self) -> bool:
        """Whether there is anything to see since the last call: how long ranks take to start is
        news as well.
        """
        owed, self._owed = self._owed, False
        state = self._follower.state
        starting = state.facts is None and state.status in ("starting", "running")
        return self._growth.changed() or owed or starting

    def look(self, view: View) -> Frame:
        """The run as it is now; raises DistrainError where the record cannot be read."""
        news = self._follower.news()
        look = self._look = self._looked(view)
        host = self._gauges(HOST, "cpu", "memory_used")
        gpus = self._gauges(GPU, "utilisation", "memory_used", "power", "temperature")
        return Frame(
            snapshot=self._follower.snapshot(),
            config=self.record.config,
            charts={name: chart(name, look) for name in view.plots},
            gpus=gpus,
            host=host[0] if host else None,
            news=news,
            names=self._named(pid for gauge in gpus for pid in gauge.sample.processes),
            diagnosis=self._diagnosed(),
        )

    def _diagnosed(self) -> Diagnosis:
        now, live, last = time.monotonic(), self._follower.state.live, self._diagnosis
        if last is None or last[1] != live or (live and now - last[0] >= DIAGNOSE_S):
            last = self._diagnosis = (now, live, diagnose(self.record))
        return last[2]

    def _looked(self, view: View) -> Look:
        """A new reading; the last one, for a start, where just the x axis or the plots are others:
        a key need not wait for the disk.
        """
        look, last = Look(self.record, view, self._follower.evaluations), self._look
        if last and view != last.view and view.shows_all_of(last.view):
            look.steps, self._owed = last.steps, True
        return look

    def _named(self, pids: Iterable[int]) -> dict[int, str]:
        """What processes are called; those that have gone keep their names.

        Once the run has ended, or on another host, a number may be another process's.
        """
        state = self.record.state
        here = state.live and state.host == socket.gethostname()
        for pid in pids:
            if here and pid not in self._names:
                try:
                    self._names[pid] = psutil.Process(pid).name()
                except psutil.Error:
                    self._names[pid] = "process"
        return dict(self._names)

    def _gauges(self, series: Series[T], *columns: str) -> list[Gauge[T]]:
        """The gauges of a series; one without a new sample is as it was."""
        before, now = self._last.get(series.name, {}), {}
        for key, sample in self.record.latest(series).items():
            gauge = before.get(key)
            if gauge is None or gauge.sample != sample:
                gauge = self._gauge(series, key, sample, columns)
            now[key] = gauge
        self._last[series.name] = now
        return list(now.values())

    def _gauge(self, series: Series[T], key: int, sample: T, columns: tuple[str, ...]) -> Gauge[T]:
        silent = all(getattr(sample, column) is None for column in columns)
        start = None if silent else sample.time - HISTORY_S
        history = self.record.curve(
            series, key, columns=columns, points=HISTORY_POINTS, axis="time", start=start
        )
        known = (value for column in columns for value in history[column] if not isnan(value))
        return Gauge(sample, history, lost=silent and any(True for _ in known))
