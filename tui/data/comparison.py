"""Several runs beside each other: their curves in one chart, and what their configs differ in."""

from __future__ import annotations

import json
import time
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf, nan
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from runners import words
from runners.comparison import Interval
from runners.config import flat
from runners.errors import DistrainError
from runners.events import Evaluation
from runners.record import Record
from runners.rollup import Curve, Reading
from runners.snapshot import Follower
from runners.state import told_apart
from tui import marks
from tui.data.chart import Chart, Line
from tui.data.growth import Growth
from tui.data.plots import PLOTS, View
from tui.data.rows import Row, ended_row, headline, live_row
from tui.marks import RUN_MARK, Mark

RAN = "ran on: "
JUDGED_S = 10.0  # between two judgements of runs that are live


class Compared(NamedTuple):
    """One of the runs: `name` and `mark` are its own among them; what it ran on is in `setting`;
    `rate` (samples/s) is that of its steady part, `ratio` this over that of the first one.
    """

    row: Row
    name: str
    curve: Curve
    evaluations: Sequence[Evaluation]
    began: float
    setting: dict[str, str] | None
    mark: Mark = RUN_MARK
    rate: float | None = None
    ratio: Interval | None = None


class Comparison(NamedTuple):
    """Everything that the screen shows at one moment; `problems` are runs that cannot be read,
    `verdicts` what may be said of the runs, `unequal` what makes that worth little.
    """

    runs: Sequence[Compared]
    charts: dict[str, Chart]
    problems: Sequence[str] = ()
    verdicts: Sequence[str] = ()
    unequal: str = ""


class Setting(NamedTuple):
    """A key of the configs and its value in each run, None where a run has no such key."""

    key: str
    values: tuple[str | None, ...]

    @property
    def differs(self) -> bool:
        return len(set(self.values)) > 1


def settings(runs: Sequence[dict[str, str] | None]) -> list[Setting]:
    """Every key that one of the runs has: the config in order, then what it ran on."""
    keys = {key for run in runs for key in run or {}}
    ordered = sorted(keys, key=lambda key: (key.startswith(RAN), "." in key, key))
    return [Setting(key, tuple((run or {}).get(key) for run in runs)) for key in ordered]


def setting_of(record: Record) -> dict[str, str]:
    """A run's config by dotted keys, and the machine, devices, code and versions it ran with.

    Raises DistrainError where there is no config to be read.
    """
    state = record.state
    plan, origin = state.plan, state.provenance
    ran = {
        "host": state.host,
        "devices": ", ".join(device.label for device in plan.devices) if plan else "",
        "commit": str((origin.get("git") or {}).get("commit") or "")[:12],
        **(origin.get("versions") or {}),
    }
    config = {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in flat(record.config.to_dict()).items()
    }
    return config | {f"{RAN}{key}": str(value) for key, value in ran.items() if value}


def names(rows: Sequence[Row]) -> list[str]:
    """What to call each run so that no two are called alike."""
    return told_apart([(row.name, row.id) for row in rows])


# --- charts ---------------------------------------------------------------------------------------


Values = Callable[[Compared, str], tuple[Sequence[float], Sequence[float]]]


def _column(name: str) -> Values:
    def values(run: Compared, axis: str) -> tuple[Sequence[float], Sequence[float]]:
        if not len(run.curve):
            return (), ()
        return _since(run, axis, run.curve[axis]), run.curve[name]

    return values


def _metric(name: str) -> Values:
    def values(run: Compared, axis: str) -> tuple[Sequence[float], Sequence[float]]:
        found = [each for each in run.evaluations if name in each.metrics]
        x = [float(getattr(each, axis)) for each in found]
        y = [each.metrics[name].value for each in found]
        return _since(run, axis, x), [nan if value is None else value for value in y]

    return values


def _since(run: Compared, axis: str, x: Sequence[float]) -> Sequence[float]:
    """Times count from each run's start, for runs of different days lie over each other."""
    return array("d", [at - run.began for at in x]) if axis == "time" else x


CHARTS = {  # each is one of PLOTS, and gives a run's x and y
    "loss": _column("loss"),
    "throughput": _column("samples_per_s"),
    "evaluation": _metric(""),
    "lr": _column("lr"),
    "eval loss": _metric("loss"),
}


def chart(name: str, runs: Sequence[Compared], view: View) -> Chart:
    """One chart with a line for each run; raises KeyError for a name that CHARTS has not."""
    plot, values = PLOTS[name], CHARTS[name]
    title, worded = plot.title, plot.worded
    if name == "evaluation" and (metric := common_metric(runs)):
        title, values = f"evaluation: {metric}", _metric(metric)
        worded = partial(words.metric_value, metric)
    lines = []
    for run in runs:
        x, y = values(run, view.axis)
        if len(x):
            lines.append(Line(run.name, run.mark, x, y))
    return Chart(
        title=title,
        lines=lines,
        x_axis="duration" if view.axis == "time" else view.axis,
        unit=plot.unit,
        worded=worded,
        span=view.span,
        empty=plot.hint,
    )


def common_metric(runs: Sequence[Compared]) -> str:
    """The metric that most of the runs have, the headline of the first ones among equals."""
    found = Counter(name for run in runs if run.evaluations for name in run.evaluations[-1].metrics)
    most = max(found.values(), default=0)
    return headline(name for name, count in found.items() if count == most)


# --- reading --------------------------------------------------------------------------------------


class Comparer:
    """Looks at several records again and again; for one thread. Only live ones are read anew."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._ones = [_One(record) for record in records]
        self._judgement: tuple[float, Judgement] = (-inf, Judgement())

    def changed(self) -> bool:
        """Whether anything was written since the last call: a few stats for each run."""
        changed = [one.changed() for one in self._ones]
        return any(changed)

    def look(self, view: View) -> Comparison:
        """The runs as they are now."""
        found = [one.look(view) for one in self._ones]
        rows = [run.row for run in found]
        told = zip(found, names(rows), marks.of_runs([row.id for row in rows]), strict=True)
        judged = self._judged(any(row.live for row in rows))
        runs = [
            run._replace(
                name=name,
                mark=mark,
                rate=judged.rates.get(run.row.id),
                ratio=judged.ratios.get(run.row.id),
            )
            for run, name, mark in told
        ]
        problems = [one.problem for one in self._ones if one.problem]
        charts = {name: chart(name, runs, view) for name in view.plots}
        return Comparison(runs, charts, problems, judged.verdicts, judged.unequal)

    def _judged(self, live: bool) -> Judgement:
        """As it was a moment ago, for it reads more than a picture does; once, of ended runs."""
        made, found = self._judgement
        if time.monotonic() - made >= (JUDGED_S if live else inf):
            found = judgement([one.record for one in self._ones])
            self._judgement = time.monotonic(), found
        return found


class Judgement(NamedTuple):
    """What `distrain compare` says of the runs; `rates` and `ratios` by their ids."""

    verdicts: Sequence[str] = ()
    unequal: str = ""
    rates: Mapping[str, float | None] = MappingProxyType({})
    ratios: Mapping[str, Interval | None] = MappingProxyType({})


def judgement(records: Sequence[Record]) -> Judgement:
    """Nothing of runs that cannot be compared."""
    from runners.comparison import of_runs, table, verdicts  # numpy, which no other screen needs

    try:
        found = of_runs.compare(records)
    except DistrainError:
        return Judgement()
    ids = [Path(each.folders[0]).name for each in found.contestants]
    rates = map(table.median, found.contestants)
    ratios = (each.ratio for each in found.contestants)
    return Judgement(
        [*found.verdicts, *found.warnings],
        verdicts.unequal(found),
        dict(zip(ids, rates, strict=True)),
        dict(zip(ids, ratios, strict=True)),
    )


class _One:
    def __init__(self, record: Record) -> None:
        self.record = record
        self.problem = ""
        self._follower = Follower(record)
        self._growth = Growth(record)
        self._read: tuple[View | None, Compared] | None = None

    def changed(self) -> bool:
        changed = self._growth.changed()
        if changed and self._read is not None:
            self._read = None, self._read[1]
        return changed

    def look(self, view: View) -> Compared:
        wanted = view._replace(plots=())
        if self._read is None or self._read[0] != wanted:
            try:
                self._read = wanted, self._anew(view)
            except DistrainError as error:  # it stays as it was read last
                if self._read is None:
                    raise
                self.problem, self._read = str(error), (wanted, self._read[1])
        return self._read[1]

    def _anew(self, view: View) -> Compared:
        record, state, self.problem = self.record, self.record.state, ""
        began = state.started or state.created
        row, setting, curve = ended_row(record, state), None, Curve({})
        try:
            self._follower.news()
            setting = setting_of(record)
            if state.live:
                row = live_row(self._follower.snapshot(), record)
            elif state.summary is None:
                row = ended_row(record, state, record.summary())
            curve = record.overall(**_reading(view, began))
        except DistrainError as error:
            self.problem = str(error)
        return Compared(row, "", curve, tuple(self._follower.evaluations), began, setting)


def _reading(view: View, began: float) -> Reading:
    reading: Reading = {"points": view.points, "axis": view.axis}
    if view.span is not None:
        offset = began if view.axis == "time" else 0.0
        reading |= {"start": view.span[0] + offset, "end": view.span[1] + offset}
    return reading
