"""Read a bench for its screen, and as a row of the runs table."""

from __future__ import annotations

import time
from typing import NamedTuple

from distrain.runners import formatting
from distrain.runners.analysis.comparison.model import Comparison
from distrain.runners.bench.estimate import RemainingTime, estimate_remaining, estimate_rounds
from distrain.runners.bench.folder import RUNS, STATE
from distrain.runners.bench.handle import Bench
from distrain.runners.bench.progress import describe_current_run
from distrain.runners.bench.state import BenchState
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import DistrainError
from distrain.tui.data.run_rows import BENCH, RunRow


class BenchFrame(NamedTuple):
    """A bench at one moment; `left` is None once it has ended. `waiting_for` is what the current
    run waits for in the queue, `obstacle` why it stands still; empty if it does not.
    """

    state: BenchState
    comparison: Comparison
    left: RemainingTime | None
    time: float
    waiting_for: str = ""
    obstacle: str = ""

    @property
    def status(self) -> str:
        """The status, "queued" while the current run waits for its devices."""
        return shown_status(self.state, self.waiting_for)


def shown_status(state: BenchState, waiting_for: str) -> str:
    """Return the status of a bench, "queued" while its current run waits for something."""
    return "queued" if waiting_for and state.status == "running" else state.status


def queue_reason(bench: Bench) -> str:
    """Return what the current run of a bench waits for in the queue; empty if it does not."""
    try:
        run = bench.current_run
        state = run.record.state if run else None
    except DistrainError:  # it is being written or removed
        return ""
    if state is None or state.status != "queued":
        return ""
    return "; ".join(state.waiting_for) or "waiting in the queue"


class BenchFeed:
    """Reads one bench repeatedly, in a thread because it loads numpy. Not thread-safe.

    Results are computed only when there are new measurements.
    """

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self._last_stamp: object = None
        self._measured: object = None
        self._comparison: Comparison | None = None
        self._rounds_wanted = 0

    def has_changed(self) -> bool:
        """Return whether the bench has changed since the last call; True while it is live, because
        its elapsed time changes, and while its state is missing: `read` says why.
        """
        try:
            stat = (self.bench.dir / STATE).stat()
        except OSError:
            self._last_stamp = None
            return True
        # A process that was killed writes nothing more, so compare whether it is alive as well.
        live = self.bench.is_live
        stamp = stat.st_mtime_ns, stat.st_size, live, self.bench.name
        changed = stamp != self._last_stamp
        self._last_stamp = stamp
        return changed or self._comparison is None or live

    def read(self) -> BenchFrame:
        """Return the bench as it is now; raises DistrainError if it cannot be read."""
        state = self.bench.state
        measured = (
            state.measurements,
            state.excluded,
            state.rounds,
            state.warnings,
            self.bench.name,
        )
        if self._comparison is None or measured != self._measured:
            self._measured = measured
            self._comparison = self.bench.comparison()
            self._rounds_wanted = estimate_rounds(self.bench.definition, state)
        expected = None
        if state.live:
            expected = estimate_remaining(self.bench.definition, state, self._rounds_wanted)
        waiting_for = queue_reason(self.bench) if state.live else ""
        obstacle = self.bench.obstacle
        return BenchFrame(state, self._comparison, expected, time.time(), waiting_for, obstacle)


class BenchRun(NamedTuple):
    """A run of a bench; `rate` is in the unit of the bench, and None while the run is live."""

    folder: str
    round: int
    rate: float | None


def runs_of(frame: BenchFrame, candidate: str) -> list[BenchRun]:
    """Return the runs of a candidate, the newest first."""
    measured = [each for each in frame.state.measurements if each.candidate == candidate]
    unit = frame.state.unit
    runs = [BenchRun(each.run_id, each.round, each.speed(unit)) for each in reversed(measured)]
    now = frame.state.current
    is_measuring = now is not None and now.candidate == candidate and bool(now.run_id)
    if now and is_measuring and now.run_id not in {run.folder for run in runs}:
        runs.insert(0, BenchRun(now.run_id, now.round, None))
    return [run._replace(folder=f"{RUNS}/{run.folder}") for run in runs]


def bench_row(bench: Bench) -> RunRow:
    """Return the row of a bench: `step` counts rounds, `seconds` the time of its runs."""
    state = bench.state
    meta = bench.meta
    trained = [_trained(state, name, config) for name, config in bench.definition.configs.items()]
    labels = (device.label for plan in state.plans.values() for device in plan.devices)
    waiting_for = queue_reason(bench) if state.live else ""
    under_way = time.time() - state.current.began if state.live and state.current else 0.0
    return RunRow(
        kind=BENCH,
        id=bench.id,
        created=state.created,
        ended=state.ended,
        status=shown_status(state, waiting_for),
        live=state.live,
        name=bench.name,
        notes=meta.notes,
        tags=tuple(meta.tags),
        pinned=meta.pinned,
        reason=waiting_for
        or bench.obstacle
        or (state.live and describe_current_run(bench.definition, state))
        or state.reason,
        strategy="bench",
        launcher=", ".join(bench.definition.configs),
        devices=tuple(dict.fromkeys(labels)),
        model=formatting.printable(_common([model for model, _ in trained])),
        data=formatting.printable(_common([data for _, data in trained])),
        step=state.current.round if state.live and state.current else state.rounds,
        most=bench.definition.rules.repeats,
        seconds=sum(each.duration_s for each in state.measurements) + under_way,
        detailed=True,
    )


def _trained(state: BenchState, candidate: str, config: RunConfig) -> tuple[str, str]:
    """Return the names of network and data: those of a measured task's classes, if it has own."""
    if config.is_script:
        return config.script.name, ""
    measured = (each.declared for each in state.measurements if each.candidate == candidate)
    own = next(measured, {})
    model, data = (config.model.name, config.data.name) if own else config.trained
    return own.get("model") or model, own.get("data") or data


def _common(names: list[str]) -> str:
    return names[0] if len(set(names)) == 1 else "several"
