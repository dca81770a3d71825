"""A run of a script in a terminal or a pipe: what its ranks print, between lines of its own."""

from __future__ import annotations

import time
from typing import TextIO

from distrain.runners import formatting
from distrain.runners.cli.logs import LAST_BYTES, MOST_BYTES, LogPrinter
from distrain.runners.cli.run_lines import RunLines
from distrain.runners.protocol.events import Event, Failure
from distrain.runners.records.logs import rank_logs
from distrain.runners.records.reader import Record

LATE_S = 30.0  # after its start; then only the last lines of a run are printed
MOST_VALUES = 6  # in a line of progress
MOST_OF_A_NAME = 40  # characters of the name of such a value


class ScriptLines(RunLines):
    """Prints the lines of all ranks to `output`; of several ranks each with its rank in front."""

    def __init__(self, record: Record, stream: TextIO, every: float, output: TextIO) -> None:
        super().__init__(record, stream, every)
        self._record = record
        self._output = output
        self._printers: dict[int, LogPrinter] = {}
        self._is_late = time.time() - record.created > LATE_S

    def update(self) -> bool:
        is_live = self._record.state.live
        self._print_output(final=not is_live)
        super().update()
        return is_live

    def _describe(self, event: Event) -> tuple[str, str] | None:
        if isinstance(event, Failure):  # the rank has printed it, and the result names the first
            return None
        return super()._describe(event)

    def _describe_progress(self) -> str:
        now = self._follower.snapshot()
        parts = [f"step {now.step:,}"] if now.step else []
        if now.samples_per_s is not None:
            parts.append(formatting.rate(now.samples_per_s))
        values = [*now.logged.items()][:MOST_VALUES]
        parts += [f"{_short(name)} {formatting.logged_value(value)}" for name, value in values]
        hidden = len(now.logged_names) - len(values)
        if hidden > 0:
            parts.append(f"and {formatting.plural(hidden, 'more value')}")
        return "  ".join(parts)

    def _print_output(self, final: bool) -> None:
        plan = self._record.state.plan
        most = MOST_BYTES if self._output.isatty() else None
        for rank, path in rank_logs(self._record.dir).items():
            if rank not in self._printers:
                prefix = f"[rank {rank}] " if plan and plan.world_size > 1 else ""
                self._printers[rank] = LogPrinter(path, prefix, self._output)
                if self._is_late:
                    self._printers[rank].print_new(final, LAST_BYTES)
            self._printers[rank].print_new(final, most)
        self._output.flush()


def _short(name: str) -> str:
    return name if len(name) <= MOST_OF_A_NAME else f"{name[: MOST_OF_A_NAME - 1]}…"
