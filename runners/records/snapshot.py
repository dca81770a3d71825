"""Snapshots: frozen figures of a run at one moment, for viewers.

A Follower reads one record repeatedly, live or ended, at a cost that does not grow with the run.
Viewers show its snapshots and hold no data of their own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from distrain.runners import formatting
from distrain.runners.protocol.events import (
    OTHER,
    OVERLAPPING,
    PHASES,
    Attempt,
    Evaluation,
    Event,
    GpuSample,
    RankSample,
    Saved,
    Window,
)
from distrain.runners.records.evaluation_history import EvaluationHistory
from distrain.runners.records.ranks import FAILED, INTERRUPTED, RankInfo
from distrain.runners.records.reader import Record
from distrain.runners.records.stall import Stall
from distrain.runners.records.state import RunState
from distrain.runners.records.timeseries.run_curve import add_rates
from distrain.runners.records.timeseries.series import GPU, PROCS, STEPS

RECENT_S = 3.0  # what "now" covers for loss, rates and shares
LAST_PART = 0.1  # of a short run that has ended, for its loss
MOST_VALUES = 32  # of a script that logs many names
PACE_S = 60.0  # what the pace is measured over, evaluations and checkpoints included
_OF_ALL_STEPS = ("timed_samples", "timed_seconds", "seconds", *PHASES, *OVERLAPPING)
_NEEDED = ("evaluation", "saved", "attempt")  # kinds of events that figures are computed from
_SUMS = ("loss_sum", "loss_samples", *_OF_ALL_STEPS)


class RankNow(msgspec.Struct, frozen=True, kw_only=True):
    """One rank over the last RECENT_S seconds; None where nothing is known (yet).

    Once the run has ended, `samples_per_s` and `shares` cover all its steps, and a rank that
    was neither finished, failed nor interrupted has the phase "gone". `shares` are the fractions of
    its time by phase, the rest as "other"; "overlap" is the fraction in which gradients were
    communicated during backward, and is part of that phase's. `cpu` is in percent of one core;
    `rss` (bytes of host memory) and `processes` include loader workers; `gpu` is the utilisation in
    percent, `gpu_memory` the bytes used of the device.
    """

    info: RankInfo
    loss: float | None = None
    samples_per_s: float | None = None
    shares: dict[str, float] = {}
    cpu: float | None = None
    rss: float | None = None
    processes: int | None = None
    gpu: float | None = None
    gpu_memory: float | None = None


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The run over the last RECENT_S seconds; rates of one that has ended cover all its steps.

    `epoch` is the current one, counted from 1 (0 before the first step). `fraction` is the part of
    all steps that is done, including those before a resume. `eta` is the seconds to the end at
    the pace of the last minute, at most to the limit of `train.max_time_s`; it is unknown in a
    stall, and then `samples_per_s` is 0. `last` is the last evaluation, `best` the one at which the
    best checkpoint was saved. `repeated_steps` were discarded because ranks were restarted; until
    step `repeats_until` is done again, the run is recovering (0: it is not). `logged_names` are all
    names that a script or a task has logged, `logged` the last values of the first MOST_VALUES.
    """

    time: float
    run_id: str
    name: str
    state: RunState
    ranks: list[RankNow] = []
    step: int = 0
    total_steps: int | None = None
    epoch: int = 0
    fraction: float | None = None
    eta: float | None = None
    loss: float | None = None
    samples_per_s: float | None = None
    last: Evaluation | None = None
    best: Evaluation | None = None
    repeated_steps: int = 0
    repeats_until: int = 0
    logged_names: Sequence[str] = ()
    logged: dict[str, float | None] = {}

    @property
    def stall(self) -> Stall | None:
        """The stall that lasts, if there is one."""
        return self.state.current_stall

    @property
    def has_epochs(self) -> bool:
        """Whether the training data have epochs, which is unknown at first; a stream has none."""
        return self.state.has_epochs

    @property
    def throughput(self) -> str:
        """The rate with its unit, which is that of the task: "51,200 tokens/s"."""
        facts = self.state.facts
        if facts is None or self.samples_per_s is None:
            return formatting.rate(self.samples_per_s)
        return formatting.rate(self.samples_per_s * facts.items_per_sample, f"{facts.item}s/s")

    @property
    def current_status(self) -> str:
        """The status, "stalled" without progress, "recovering" after a restart of the ranks."""
        status = self.state.current_status
        return "recovering" if status == "running" and self.repeats_until else status


class Follower:
    """Reads what is new in a record since the last call.

    `evaluations` are all so far, except those that were discarded since; `gpus` are the last
    samples at the last snapshot.
    """

    def __init__(self, record: Record) -> None:
        self.record = record
        self.state = record.state
        self.evaluations = EvaluationHistory()
        self.gpus: dict[int, GpuSample] = {}
        self._best: list[Evaluation] = []
        self._last_event = 0
        self._restarted = 0.0
        self._repeated_steps = 0
        self._lost_step = 0  # the last step before the restart

    def new_events(self, kinds: Collection[str] | None = None) -> list[Event]:
        """Return the events since the last call, in order, after reading `state` again.

        `kinds` are the types on the wire of those that are wanted, by default all. Once `state` is
        no longer live, these are the last ones.
        """
        self.state = self.record.state
        events: list[Event] = []
        read = None if kinds is None else {*_NEEDED, *kinds}
        for number, event in self.record.events(after_id=self._last_event, kinds=read):
            self._last_event = number
            self._apply(event)
            if kinds is None or event.__struct_config__.tag in kinds:
                events.append(event)
        return events

    def _apply(self, event: Event) -> None:
        match event:
            case Evaluation():
                self.evaluations.append(event)
            case Saved(best=True) if self.evaluations:
                self._best.append(self.evaluations[-1])
            case Attempt():
                self._restarted = event.time
                self._repeated_steps += event.lost - event.step
                self._lost_step = event.lost
                self.evaluations.discard_after(event.last_kept)
                self._best = [each for each in self._best if each.step <= event.last_kept]

    def snapshot(self) -> Snapshot:
        """Return the figures now, with the events up to the last `new_events`."""
        with self.record.one_moment():
            return self._snapshot()

    def _snapshot(self) -> Snapshot:
        windows = self.record.latest(STEPS)
        facts = self.state.facts
        rows = self._ranks(windows)
        ranks = [now for now, _ in rows]
        start_step = facts.start_step if facts else 0
        total_steps = facts.last_step if facts else None
        step = max(start_step, min((now.info.step for now in ranks), default=0))
        names = [*self.record.logged()]
        return Snapshot(
            time=time.time(),
            run_id=self.record.id,
            name=self.record.name,
            state=self.state,
            ranks=ranks,
            step=step,
            total_steps=total_steps,
            epoch=max((now.info.epoch + 1 for now in ranks if now.info.step), default=0),
            fraction=_fraction(step, total_steps),
            eta=self._eta(step, total_steps, windows.get(0)),
            loss=_loss([sums for _, sums in rows]),
            samples_per_s=add_rates(now.samples_per_s for now in ranks),
            last=self.evaluations[-1] if self.evaluations else None,
            best=self._best[-1] if self._best else None,
            repeated_steps=self._repeated_steps,
            repeats_until=self._lost_step if step < self._lost_step else 0,
            logged_names=names,
            logged=self.record.last_logged(names[:MOST_VALUES]) if names else {},
        )

    def _ranks(self, windows: dict[int, Window]) -> list[tuple[RankNow, dict[str, float]]]:
        """Return each rank with the sums that its figures are computed from."""
        usage = self.record.latest(PROCS)
        self.gpus = self.record.latest(GPU)
        gpus = {sample.uuid: sample for sample in self.gpus.values()}
        totals = {} if self.state.live else self.record.totals(STEPS)
        recent = self._recent_sums(windows, totals)
        rows = []
        for info in self.record.ranks(windows):
            if not (self.state.live or info.finished or info.phase in (FAILED, INTERRUPTED)):
                info.phase = "gone"
            sums = dict(recent.get(info.rank, {}))
            if info.rank in totals:
                sums |= {name: totals[info.rank][name] for name in _OF_ALL_STEPS}
            gpu = gpus.get(info.device_uuid)
            now = _rank_now(info, sums, usage.get(info.rank), gpu)
            if self.state.current_stall and now.samples_per_s is not None:
                now = msgspec.structs.replace(now, samples_per_s=0.0)
            if self.record.config.is_script:
                now = msgspec.structs.replace(now, shares=measured_shares(now.shares))
            rows.append((now, sums))
        return rows

    def _recent_sums(
        self, windows: dict[int, Window], totals: dict[int, dict[str, Any]]
    ) -> dict[int, dict[str, float]]:
        """Return sums over the last seconds in which each rank reported."""
        starts = {}
        for rank, window in windows.items():
            length = totals.get(rank, {}).get("seconds") or math.inf
            starts[rank] = window.time - min(RECENT_S, LAST_PART * length)
        recent = self.record.totals(STEPS, _SUMS, starts)
        return {
            rank: {name: value or 0.0 for name, value in sums.items()}
            for rank, sums in recent.items()
        }

    def _eta(self, step: int, total_steps: int | None, last: Window | None) -> float | None:
        """Return the seconds to the end at the pace of rank 0, whose last window is `last`."""
        if not total_steps or not self.state.live or self.state.stall or last is None:
            return None
        start = max(last.time - PACE_S, self._restarted, self.state.stall_ended or 0.0)
        curve = self.record.curve(
            STEPS, 0, columns=("steps", "seconds"), axis="time", start=start, points=64
        )
        steps = sum(curve["steps"])
        if not steps:  # none since the ranks were restarted, or since the end of the stall
            return None
        # The time of a point is that of its end.
        seconds = last.time - curve["time"][0] + curve["seconds"][0]
        if seconds <= 0:  # the clock was set back
            return None
        left = (total_steps - step) * seconds / steps
        limit, facts = self.record.config.train.max_time_s, self.state.facts
        if limit is not None and facts is not None:
            left = min(left, max(0.0, facts.time + limit - time.time()))
        return left


def _rank_now(
    info: RankInfo, sums: dict[str, float], usage: RankSample | None, gpu: GpuSample | None
) -> RankNow:
    seconds = sums.get("seconds")
    return RankNow(
        info=info,
        loss=_loss([sums]),
        samples_per_s=_ratio(sums, "timed_samples", "timed_seconds"),
        shares=_shares(sums, seconds) if seconds else {},
        cpu=usage.cpu if usage else None,
        rss=usage.rss if usage else None,
        processes=usage.processes if usage else None,
        gpu=gpu.utilisation if gpu else None,
        gpu_memory=gpu.memory_used if gpu else None,
    )


def _fraction(step: int, total_steps: int | None) -> float | None:
    if total_steps is None:
        return None
    return min(1.0, step / total_steps) if total_steps else 1.0


def _shares(sums: dict[str, float], seconds: float) -> dict[str, float]:
    parts = {name: sums[name] / seconds for name in PHASES}
    # Rounding may make the sum of a device's phases longer than the window.
    return parts | {OTHER: max(0.0, 1 - sum(parts.values())), "overlap": sums["overlap"] / seconds}


def measured_shares(shares: Mapping[str, float]) -> dict[str, float]:
    """Return the shares of a script that were measured; none if only the rest is known."""
    measured = {name: share for name, share in shares.items() if share}
    return measured if measured.keys() - {OTHER} else {}


def _loss(rows: list[dict[str, float]]) -> float | None:
    samples = sum(sums.get("loss_samples", 0) for sums in rows)
    return sum(sums.get("loss_sum", 0) for sums in rows) / samples if samples else None


def _ratio(sums: dict[str, float], numerator: str, denominator: str) -> float | None:
    return sums[numerator] / sums[denominator] if sums.get(denominator) else None
