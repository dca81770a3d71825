"""A bench as a row of the table of runs, and as its own screen reads it."""

from __future__ import annotations

import time
from typing import NamedTuple

from runners.bench import Bench, BenchState
from runners.bench.duration import Left, left, rounds_wanted
from runners.bench.state import RUNS, STATE
from runners.bench.wording import at
from runners.comparison import Comparison
from tui.data.rows import BENCH, Row


class Look(NamedTuple):
    """A bench at one moment; `left` while it is live."""

    state: BenchState
    comparison: Comparison
    left: Left | None
    time: float


class Looker:
    """Looks at one bench again and again; for one thread, as it loads numpy.

    What was measured is worked out anew only where there is more of it.
    """

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self._seen: object = None
        self._measured: object = None
        self._comparison: Comparison | None = None
        self._wanted = 0

    def changed(self) -> bool:
        """Whether it looks otherwise than at the last call; of a live one, how long it takes."""
        stat = (self.bench.dir / STATE).stat()
        now = stat.st_mtime_ns, stat.st_size
        changed, self._seen = now != self._seen, now
        return changed or self._comparison is None or self.bench.is_live

    def look(self) -> Look:
        """The bench as it is now; raises DistrainError where it cannot be read."""
        state = self.bench.state
        measured = (state.measurements, state.out, state.rounds, state.warnings, self.bench.name)
        if self._comparison is None or measured != self._measured:
            self._measured, self._comparison = measured, self.bench.comparison()
            self._wanted = rounds_wanted(self.bench.definition, state)
        expected = left(self.bench.definition, state, self._wanted) if state.live else None
        return Look(state, self._comparison, expected, time.time())


class OneRun(NamedTuple):
    """A run of a bench; without a rate it is under way."""

    folder: str
    round: int
    rate: float | None


def runs_of(look: Look, contestant: str) -> list[OneRun]:
    """The runs of a contestant, the newest first."""
    done = [each for each in look.state.measurements if each.contestant == contestant]
    found = [OneRun(each.run_id, each.round, each.rate) for each in reversed(done)]
    now = look.state.now
    if now and now.contestant == contestant and now.run_id not in {run.folder for run in found}:
        found = [OneRun(now.run_id, now.round, None)] * bool(now.run_id) + found
    return [run._replace(folder=f"{RUNS}/{run.folder}") for run in found]


def bench_row(bench: Bench) -> Row:
    """What the columns of the table mean for a bench: `step` are rounds, `seconds` of work."""
    state, meta, configs = bench.state, bench.meta, list(bench.definition.configs.values())
    labels = (device.label for plan in state.plans.values() for device in plan.devices)
    under_way = time.time() - state.now.began if state.live and state.now else 0.0
    return Row(
        kind=BENCH,
        id=bench.id,
        created=state.created,
        status=state.status,
        live=state.live,
        name=bench.name,
        notes=meta.notes,
        tags=tuple(meta.tags),
        pinned=meta.pinned,
        reason=(state.live and at(bench.definition, state)) or state.reason,
        strategy="bench",
        launcher=", ".join(bench.definition.configs),
        devices=tuple(dict.fromkeys(labels)),
        model=_common([config.model.name for config in configs]),
        data=_common([config.data.name for config in configs]),
        step=state.now.round if state.live and state.now else state.rounds,
        most=bench.definition.rules.repeats,
        seconds=sum(each.took for each in state.measurements) + under_way,
        detailed=True,
    )


def _common(names: list[str]) -> str:
    return names[0] if len(set(names)) == 1 else "several"
