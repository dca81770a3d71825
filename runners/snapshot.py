"""How a run stands at a moment: frozen figures for a viewer, and what was said since the last.

A Follower reads one record again and again, live or ended, at a cost that does not grow with
the run. Viewers show its snapshots and hold no data of their own.
"""

from __future__ import annotations

import math
import time
from typing import Any

import msgspec

from runners.events import (
    BESIDE,
    OTHER,
    PHASES,
    Attempt,
    Evaluation,
    Event,
    GpuSample,
    RankSample,
    Saved,
    Window,
)
from runners.record import RankInfo, Record
from runners.series import GPU, PROCS, STEPS, rate_of_all
from runners.state import RunState

RECENT_S = 3.0  # what "now" means for loss, rates and shares
LAST_PART = 0.1  # of a short run that has ended, for its loss
PACE_S = 60.0  # what the pace is measured over, evaluations and checkpoints included
_WHOLE = ("timed_samples", "timed_seconds", "seconds", *PHASES, *BESIDE)
_SUMS = ("loss_sum", "loss_samples", *_WHOLE)


class RankNow(msgspec.Struct, frozen=True, kw_only=True):
    """One rank over the last RECENT_S seconds; None where nothing is known (yet). Once the run has
    ended, `samples_per_s` and `shares` are of all its steps, and the phase of a rank that did not
    end by itself is "gone".

    `shares` are parts of its time by phase, the rest as "other", and beside them "overlap", in
    which gradients travelled behind backward; `cpu` percent of one core, `rss` bytes of host
    memory and `processes` their number, loader workers included; `gpu` percent busy,
    `gpu_memory` bytes used of the device.
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
    """The run over the last RECENT_S seconds; as of RankNow, rates of one that has ended are of
    all its steps.

    `epoch` is the one under way, counted from 1 (0 before the first step); `fraction` the part
    of all steps that is done, those before a resumption included; `eta` seconds to the end by the
    pace of the last minute; `best` the evaluation that the best checkpoint was made at;
    `done_again` steps that were taken back when the ranks were started anew.
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
    done_again: int = 0


class Follower:
    """Reads what is new in a record since the last call.

    `evaluations` are all so far, without what was taken back since.
    """

    def __init__(self, record: Record) -> None:
        self.record = record
        self.state = record.state
        self._seen = 0
        self.evaluations: list[Evaluation] = []
        self._best: list[Evaluation] = []
        self._begun = 0.0
        self._done_again = 0

    def news(self) -> list[Event]:
        """Events since the last call, in order; brings `state` up to date first.

        Once `state` is no longer live, the news are the last ones.
        """
        self.state = self.record.state
        found: list[Event] = []
        for number, event in self.record.events(after_id=self._seen):
            self._seen = number
            found.append(event)
            self._note(event)
        return found

    def _note(self, event: Event) -> None:
        match event:
            case Evaluation():
                self.evaluations.append(event)
            case Saved(best=True) if self.evaluations:
                self._best.append(self.evaluations[-1])
            case Attempt():
                self._begun = event.time
                self._done_again += event.lost - event.step
                self.evaluations = [each for each in self.evaluations if each.step <= event.step]
                self._best = [each for each in self._best if each.step <= event.step]

    def snapshot(self) -> Snapshot:
        """The figures now, as of the last `news`."""
        windows = self.record.latest(STEPS)
        facts, rows = self.state.facts, self._ranks(windows)
        ranks = [now for now, _ in rows]
        begun, total = (facts.start_step, facts.total_steps) if facts else (0, None)
        step = max(begun, min((now.info.step for now in ranks), default=0))
        fraction = None
        if total is not None:
            fraction = min(1.0, step / total) if total else 1.0
        return Snapshot(
            time=time.time(),
            run_id=self.record.id,
            name=self.record.name,
            state=self.state,
            ranks=ranks,
            step=step,
            total_steps=total,
            epoch=max((now.info.epoch + 1 for now in ranks if now.info.step), default=0),
            fraction=fraction,
            eta=self._eta(total - step, windows.get(0)) if total and self.state.live else None,
            loss=_loss([sums for _, sums in rows]),
            samples_per_s=rate_of_all(now.samples_per_s for now in ranks),
            last=self.evaluations[-1] if self.evaluations else None,
            best=self._best[-1] if self._best else None,
            done_again=self._done_again,
        )

    def _ranks(self, windows: dict[int, Window]) -> list[tuple[RankNow, dict[str, float]]]:
        usage = self.record.latest(PROCS)
        gpus = {sample.uuid: sample for sample in self.record.latest(GPU).values()}
        totals = {} if self.state.live else self.record.totals(STEPS)
        recent = self._recent(windows, totals)
        found = []
        for info in self.record.ranks(windows):
            if not (self.state.live or info.finished or info.phase == "failed"):
                info.phase = "gone"
            gpu, whole = gpus.get(info.device_uuid), totals.get(info.rank, {})
            sums = recent.get(info.rank, {}) | {name: whole[name] for name in _WHOLE if whole}
            found.append((_rank_now(info, sums, usage.get(info.rank), gpu), sums))
        return found

    def _recent(
        self, windows: dict[int, Window], totals: dict[int, dict[str, Any]]
    ) -> dict[int, dict[str, float]]:
        """Sums over the last seconds in which each rank reported."""
        starts = {}
        for rank, window in windows.items():
            whole = totals.get(rank, {}).get("seconds") or math.inf
            starts[rank] = window.time - min(RECENT_S, LAST_PART * whole)
        curves = self.record.curves(STEPS, columns=_SUMS, axis="time", start=starts, points=2)
        return {
            rank: {name: sum(value for value in curve[name] if value == value) for name in _SUMS}
            for rank, curve in curves.items()
        }

    def _eta(self, steps_left: int, lead: Window | None) -> float | None:
        if lead is None:
            return None
        start = max(lead.time - PACE_S, self._begun)
        curve = self.record.curve(
            STEPS, 0, columns=("steps", "seconds"), axis="time", start=start, points=64
        )
        steps = sum(curve["steps"])
        if not steps:  # the ranks were started anew, and none has come to a step yet
            return None
        # A point's time is that of its end.
        seconds = lead.time - curve["time"][0] + curve["seconds"][0]
        return steps_left * seconds / steps


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


def _shares(sums: dict[str, float], seconds: float) -> dict[str, float]:
    parts = {name: sums[name] / seconds for name in PHASES}
    # The sum of a device's time line may be longer than the window by a rounding.
    return parts | {OTHER: max(0.0, 1 - sum(parts.values())), "overlap": sums["overlap"] / seconds}


def _loss(rows: list[dict[str, float]]) -> float | None:
    samples = sum(sums.get("loss_samples", 0) for sums in rows)
    return sum(sums.get("loss_sum", 0) for sums in rows) / samples if samples else None


def _ratio(sums: dict[str, float], above: str, below: str) -> float | None:
    return sums[above] / sums[below] if sums.get(below) else None
