"""A run as a row of a table, and the order and filter of such rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from runners import jobs, words
from runners.record import Record
from runners.snapshot import Snapshot
from runners.state import RunState, short_id

_STATUSES = ("queued", "starting", "running", "stopping", "failed", "stopped", "completed")


RUN, BENCH = "run", "bench"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A run in a list, or a bench; None and "" are unknown. `detailed` says that its config was
    read.

    `fraction` is the part of a live run that is done, `metric` the headline of its last
    evaluation with its `value`, `seconds` what it took so far, `job` the state of the scheduler's
    job. Of a bench `step` are rounds, of
    `most` at most, and `launcher` its contestants.
    """

    kind: str = RUN
    id: str
    created: float
    status: str
    live: bool = False
    name: str = ""
    notes: str = ""
    tags: tuple[str, ...] = ()
    pinned: bool = False
    reason: str = ""
    strategy: str = ""
    launcher: str = ""
    precision: str = ""
    job: str = ""
    ranks: int | None = None
    devices: tuple[str, ...] = ()
    model: str = ""
    data: str = ""
    step: int | None = None
    most: int | None = None
    fraction: float | None = None
    eta: float | None = None
    samples_per_s: float | None = None
    metric: str = ""
    value: float | None = None
    seconds: float | None = None
    detailed: bool = False

    @property
    def short(self) -> str:
        """The id without its date, which lists tell otherwise: "ddp-x7k2"."""
        return short_id(self.id)

    @property
    def words(self) -> str:
        """Everything that a filter looks at, in lower case."""
        texts = (self.id, self.name, self.notes, *self.tags, self.status, self.strategy)
        return " ".join(
            (*texts, self.job, self.launcher, self.precision, self.model, self.data)
        ).casefold()


def headline(metrics: Iterable[str]) -> str:
    """The metric that stands for an evaluation, never the loss where there is another."""
    return next(iter(words.shares_first(metrics)), "")


# --- order and filter -----------------------------------------------------------------------------

SORTS: dict[str, Callable[[Row], Any]] = {
    "name": lambda row: (row.name or row.short).casefold(),
    "status": lambda row: _STATUSES.index(row.status) if row.status in _STATUSES else None,
    "strategy": lambda row: (row.strategy, row.ranks or 0) if row.strategy else None,
    "how": lambda row: f"{row.launcher} {row.precision}".strip(),
    "model": lambda row: f"{row.model} {row.data}".strip(),
    "progress": lambda row: row.step,
    "samples/s": lambda row: row.samples_per_s,
    "metric": lambda row: row.value,
    "took": lambda row: row.seconds,
    "age": lambda row: row.created,
    "tags": lambda row: row.tags,
    "notes": lambda row: row.notes.casefold(),
}
NUMBERS = ("progress", "samples/s", "metric", "took", "age")


def ordered(rows: Iterable[Row], by: str = "age", descending: bool = True) -> list[Row]:
    """Pinned ones first, those without a value last, newest first among equals.

    `by` is a key of SORTS; "age" descending is the newest first.
    """
    key = SORTS.get(by, SORTS["age"])
    newest = sorted(rows, key=lambda row: (row.created, row.id), reverse=True)
    known = [row for row in newest if key(row) not in (None, "", ())]
    unknown = [row for row in newest if key(row) in (None, "", ())]
    known.sort(key=key, reverse=descending)
    return sorted([*known, *unknown], key=lambda row: not row.pinned)


def matching(rows: Iterable[Row], text: str) -> list[Row]:
    """The rows that contain every word of a text."""
    wanted = text.casefold().split()
    return [row for row in rows if all(word in row.words for word in wanted)] if wanted else [*rows]


# --- one row --------------------------------------------------------------------------------------


def ended_row(record: Record, state: RunState, summary: dict[str, Any] | None = None) -> Row:
    """The row of a run that is over, by its small files."""
    summary = state.summary or summary or {}
    found = summary.get("eval") or {}
    metric, plan = headline(found), state.plan
    return Row(
        **_told(record, state),
        reason=state.reason,
        strategy=summary.get("strategy", ""),
        launcher=summary.get("launcher", ""),
        precision=plan.precision if plan else summary.get("precision", ""),
        step=summary.get("steps"),
        samples_per_s=summary.get("samples_per_s"),
        metric=metric,
        value=found.get(metric),
        seconds=state.ended - state.started if state.ended and state.started else None,
    )


def live_row(now: Snapshot, record: Record) -> Row:
    """The row of a run that is under way."""
    state, config, found = now.state, record.config, now.last
    metric = headline(found.metrics) if found else ""
    return Row(
        **_told(record, state),
        live=state.live,
        reason=state.reason or _pending(now) or "; ".join(state.waiting_for),
        strategy=config.strategy,
        launcher=config.launcher,
        precision=state.plan.precision if state.plan else config.precision,
        model=config.model.name,
        data=config.data.name,
        step=now.step or None,
        fraction=now.fraction,
        eta=now.eta,
        samples_per_s=now.samples_per_s,
        metric=metric,
        value=found.metrics[metric].value if found and metric else None,
        seconds=now.time - state.started if state.started else None,
        detailed=True,
    )


def _pending(now: Snapshot) -> str:
    """What is said of a job that does not run; nothing of others."""
    job = now.state.job
    return jobs.told(job, now.time) if job is not None and jobs.waits(now.state) else ""


def _told(record: Record, state: RunState) -> dict[str, Any]:
    plan, meta = state.plan, record.meta
    return {
        "id": record.id,
        "created": state.created,
        "status": state.status,
        "name": meta.name,
        "notes": meta.notes,
        "tags": tuple(meta.tags),
        "pinned": meta.pinned,
        "job": state.job.state if state.job else "",
        "ranks": plan.world_size if plan else None,
        "devices": tuple(device.label for device in plan.devices) if plan else (),
    }
