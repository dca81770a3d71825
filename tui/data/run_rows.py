"""A run or bench as a row of the runs table, and the order of such rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from distrain.runners import formatting
from distrain.runners.analysis.run_keys import STATUSES, KnownKeys, RunKey, Value, sort_value
from distrain.runners.records import job_status
from distrain.runners.records.flat_config import NO_CONFIG, FlatConfig
from distrain.runners.records.run_folder import RunFolder
from distrain.runners.records.run_ids import short_id
from distrain.runners.records.state import RunState

if TYPE_CHECKING:
    from distrain.runners.records.snapshot import Snapshot

RUN, BENCH = "run", "bench"


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """A run or bench in the table. None and "" stand for unknown values.

    `fraction` is the completed part of a live run, `metrics` those of its last evaluation and
    `metric` the main one with its `value`, `group` the id of its sweep, `seconds` its duration so
    far, `started` and `ended` Unix times, `job` the state of its Slurm job, and `detailed` whether
    its `config` was read. `samples_per_s` is the rate of the last seconds of a live run, and the
    mean of an ended one. For a bench `step` counts rounds, `most` is the most rounds it may have,
    and `launcher` lists its candidates.
    """

    kind: str = RUN
    id: str
    created: float
    status: str
    live: bool = False
    stalled: bool = False
    recovering: bool = False
    name: str = ""
    notes: str = ""
    tags: tuple[str, ...] = ()
    pinned: bool = False
    group: str = ""
    reason: str = ""
    strategy: str = ""
    launcher: str = ""
    precision: str = ""
    job: str = ""
    ranks: int | None = None
    devices: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    model: str = ""
    data: str = ""
    step: int | None = None
    most: int | None = None
    fraction: float | None = None
    eta: float | None = None
    samples_per_s: float | None = None
    metric: str = ""
    value: float | None = None
    metrics: Mapping[str, float | None] = MappingProxyType({})
    config: FlatConfig = NO_CONFIG
    seconds: float | None = None
    started: float | None = None
    ended: float | None = None
    detailed: bool = False

    @property
    def short(self) -> str:
        """Return the id without its date: "ddp-x7k2"."""
        return short_id(self.id)

    @property
    def current_status(self) -> str:
        """The status, or "stalled" or "recovering" as in the snapshot of a live run."""
        if self.stalled and self.status != "stopping":
            return "stalled"
        return "recovering" if self.recovering else self.status

    @property
    def search_text(self) -> str:
        """Return the text that the filter searches, in lower case."""
        texts = (self.id, self.name, self.notes, *self.tags, self.current_status, self.strategy)
        return " ".join(
            (*texts, self.job, self.launcher, self.precision, self.model, self.data)
        ).casefold()

    def value_of(self, key: RunKey) -> Value:
        """Return the value of a key; None where the run has none."""
        match key.kind:
            case "config":
                return self.config.get(key.name)
            case "metric":
                return self.metrics.get(key.name)
        return _FACTS[key.name](self)


_FACTS: dict[str, Callable[[RunRow], Value]] = {
    "status": lambda row: row.current_status,
    "tag": lambda row: row.tags,
    "name": lambda row: row.name,
    "note": lambda row: row.notes,
    "group": lambda row: row.group or None,
    "host": lambda row: row.hosts,
    "kind": lambda row: row.kind,
    "id": lambda row: row.id,
    "age": lambda row: time.time() - row.created,
    "duration": lambda row: row.seconds,
    "steps": lambda row: row.step,
    "ranks": lambda row: row.ranks,
}


def headline(metrics: Iterable[str]) -> str:
    """Return the main metric of an evaluation: the loss only if there is no other."""
    return next(iter(formatting.sort_metrics(metrics)), "")


def known_keys(rows: Iterable[RunRow]) -> KnownKeys:
    """Return the keys that some of these rows have."""
    metrics: set[str] = set()
    positions: dict[int, Iterable[str]] = {}  # configs of the same keys share them
    for row in rows:
        metrics.update(row.metrics)
        positions[id(row.config.positions)] = row.config.positions
    return KnownKeys(metrics, {key for keys in positions.values() for key in keys})


# --- order ----------------------------------------------------------------------------------------

SORTS: dict[str, Callable[[RunRow], Any]] = {
    "name": lambda row: (row.name or row.short).casefold(),
    "status": lambda row: (
        STATUSES.index(status) if (status := row.current_status) in STATUSES else None
    ),
    "strategy": lambda row: (row.strategy, row.ranks or 0) if row.strategy else None,
    "setup": lambda row: f"{row.launcher} {row.precision}".strip(),
    "model": lambda row: f"{row.model} {row.data}".strip(),
    "progress": lambda row: row.step,
    "samples/s": lambda row: row.samples_per_s,
    "metric": lambda row: row.value,
    "duration": lambda row: row.seconds,
    "age": lambda row: row.created,
    "group": lambda row: row.group,
    "host": lambda row: row.hosts,
    "tags": lambda row: row.tags,
    "notes": lambda row: row.notes.casefold(),
}
NUMBERS = ("progress", "samples/s", "metric", "duration", "age")
EARLIER_SORTS = {"how": "setup", "took": "duration"}  # keys of SORTS in settings saved before
CONFIG, METRIC = "config:", "metric:"  # before the key in the name of a column


def column_key(column: str) -> RunKey | None:
    """Return the key of a column of a config or metric key; None for the columns of SORTS."""
    if column.startswith(CONFIG):
        return RunKey("config", column.removeprefix(CONFIG))
    if column.startswith(METRIC):
        return RunKey("metric", column.removeprefix(METRIC))
    return None


def column_value(row: RunRow, column: str) -> Any:
    """Return what a column sorts and groups by; None or empty where the run has no value."""
    if key := column_key(column):
        return sort_value(row.value_of(key))
    return SORTS[column](row)


def is_column(name: str) -> bool:
    return name in SORTS or column_key(name) is not None


def sort_rows(rows: Iterable[RunRow], by: str = "age", descending: bool = True) -> list[RunRow]:
    """Sort rows: pinned ones first, those without a value last, newest first among equals.

    `by` is the name of a column; "age" descending is the newest first.
    """
    by = by if is_column(by) else "age"
    known: list[tuple[Any, RunRow]] = []
    unknown: list[RunRow] = []
    for row in sorted(rows, key=lambda row: (row.created, row.id), reverse=True):
        value = column_value(row, by)
        if value in (None, "", ()):
            unknown.append(row)
        else:
            known.append((value, row))
    known.sort(key=itemgetter(0), reverse=descending)
    return sorted([*(row for _, row in known), *unknown], key=lambda row: not row.pinned)


# --- one row --------------------------------------------------------------------------------------


def ended_row(folder: RunFolder, state: RunState, summary: dict[str, Any] | None = None) -> RunRow:
    """Return the row of an ended run; reads only its small files."""
    summary = state.summary or summary or {}
    found = summary.get("eval") or {}
    metric = headline(found)
    plan = state.plan
    return RunRow(
        **_common_fields(folder, state),
        reason=state.reason,
        strategy=summary.get("strategy", ""),
        launcher=summary.get("launcher", ""),
        precision=plan.precision if plan else summary.get("precision") or "",
        model=state.facts.model if state.facts else "",
        data=state.facts.data if state.facts else "",
        step=summary.get("steps"),
        samples_per_s=summary.get("samples_per_s"),
        metric=metric,
        value=found.get(metric),
        metrics={name: value for name, value in found.items() if name != "samples"},
        seconds=state.ended - state.started if state.ended and state.started else None,
    )


def live_row(now: Snapshot, folder: RunFolder, flat: FlatConfig = NO_CONFIG) -> RunRow:
    """Return the row of a live run. `flat` is its config, which its snapshots do not change."""
    state = now.state
    config = folder.config
    found = now.last
    metric = headline(found.metrics) if found else ""
    return RunRow(
        **_common_fields(folder, state),
        live=state.live,
        stalled=state.current_stall is not None,
        recovering=now.current_status == "recovering",
        reason=(now.stall.describe(now.time) if now.stall else "")
        or state.reason
        or _pending(now)
        or "; ".join(state.waiting_for),
        strategy=config.strategy,
        launcher=config.launcher,
        precision=state.plan.precision if state.plan else config.precision,
        model=formatting.printable(config.script.name) or state.trained(config)[0],
        data="" if config.is_script else state.trained(config)[1],
        step=now.step or None,
        fraction=now.fraction,
        eta=now.eta,
        samples_per_s=now.samples_per_s,
        metric=metric,
        value=found.metrics[metric].value if found and metric else None,
        metrics={name: each.value for name, each in found.metrics.items()} if found else {},
        seconds=now.time - state.started if state.started else None,
        config=flat,
        detailed=True,
    )


def _pending(now: Snapshot) -> str:
    """Return the state of a job that is not running; "" for any other run."""
    job = now.state.job
    return (
        job_status.describe(job, now.time)
        if job is not None and job_status.is_waiting(now.state)
        else ""
    )


def _common_fields(folder: RunFolder, state: RunState) -> dict[str, Any]:
    plan = state.plan
    meta = folder.meta
    return {
        "id": folder.id,
        "created": state.created,
        "started": state.started,
        "ended": state.ended,
        "status": state.status,
        "name": meta.name,
        "notes": meta.notes,
        "tags": tuple(meta.tags),
        "pinned": meta.pinned,
        "group": state.group,
        "job": state.job.state if state.job else "",
        "ranks": plan.world_size if plan else None,
        "hosts": tuple(state.hosts or filter(None, (state.host,))),
        "devices": tuple(device.label for device in plan.devices) if plan else (),
    }
