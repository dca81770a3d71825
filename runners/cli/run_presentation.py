"""What commands show of a run."""

from __future__ import annotations

from typing import Any, ClassVar, TextIO

from distrain.runners.cli import run_page, run_result
from distrain.runners.cli.run_lines import RunLines
from distrain.runners.cli.terminal import is_terminal, print_json
from distrain.runners.cli.views import View
from distrain.runners.runs import Run

STOP = "every rank stops after the same step and a checkpoint is written"
STOP_UNSAVED = (
    "every rank stops after the same step; no checkpoint is written, because checkpoint.keep is 0"
)
STOP_STALLED = "it is stalled, and stops with a checkpoint only if it goes on"
STOP_NOW = "it ends at once, without a checkpoint"
STOP_SCRIPT = "its processes are asked to stop, or else interrupted as by Ctrl-C"
STOP_OBSERVED = "its program is asked to stop"
STOP_SCRIPT_NOW = "it ends at once"
STOP_WAITING = "it ends before it has begun to train"
LEAVE_QUEUE = "it leaves the queue and never starts"


class RunPresentation:
    """Shows a run as lines or a picture while it is live, and as a page at any time."""

    stop_requests: ClassVar[int] = 2  # with a checkpoint, then at once

    def __init__(self, run: Run) -> None:
        self._run = run

    def view(self, stream: TextIO, every: float, output: TextIO) -> View:
        if self._run.record.config.is_script:
            from distrain.runners.cli.script_lines import ScriptLines

            return ScriptLines(self._run.record, stream, every, output)
        if not is_terminal(stream):
            return RunLines(self._run.record, stream, every)
        from distrain.runners.cli.run_picture import RunPicture  # rich is slow to load

        return RunPicture(self._run.record, stream)

    def print_result(self, as_json: bool) -> int:
        self._run.wait_for_supervisor()  # whoever called may now delete the folder
        record = self._run.record
        state = record.state
        summary = record.summary(state)
        is_usage_error = state.error is not None and state.error.usage
        if as_json:
            print_json(summary)
        elif not is_usage_error:
            print(run_result.format_result(record, summary), flush=True)
        run_result.print_failure(record, state)
        return run_result.exit_code(state)

    def page(self) -> str:
        return run_page.format_page(self._run.record)

    def data(self) -> dict[str, Any]:
        return run_page.collect_data(self._run.record)

    def describe_stop(self, now: bool) -> str:
        if self._run.status == "queued":
            return LEAVE_QUEUE
        if self._run.is_observed:
            return STOP_OBSERVED
        record = self._run.record
        if record.state.waiting_for:  # for hosts to join
            return STOP_WAITING
        if record.config.is_script:
            return STOP_SCRIPT_NOW if now else STOP_SCRIPT
        if now:
            return STOP_NOW
        if not record.config.saves_at_stop:
            return STOP_UNSAVED
        return STOP_STALLED if record.state.current_stall else STOP

    def notices(self) -> list[str]:
        plan = self._run.record.state.plan
        return plan.notices if plan else []
