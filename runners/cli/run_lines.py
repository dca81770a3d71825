"""A run as plain lines for pipes and logs: a line for each event, and progress at intervals."""

from __future__ import annotations

import time
from typing import TextIO

from distrain.runners import formatting
from distrain.runners.cli.run_result import format_evaluation, format_setup
from distrain.runners.protocol.events import (
    Attempt,
    Evaluation,
    Event,
    Facts,
    Failure,
    Job,
    NonFinite,
    Notice,
    Saved,
)
from distrain.runners.records import job_status
from distrain.runners.records.reader import Record
from distrain.runners.records.snapshot import Follower, Snapshot
from distrain.runners.records.state import RunState


class RunLines:
    """Prints "04:41:17  event       description" lines, and progress every `every` seconds."""

    interval_s = 0.25

    def __init__(self, record: Record, stream: TextIO, every: float) -> None:
        self._follower = Follower(record)
        self._stream = stream
        self._every = every
        self._status = ""  # printed last
        self._reason = ""  # of the live run, printed last
        self._progress = ""  # printed last
        self._waiting_for: list[str] = []  # printed last
        self._next_progress = 0.0

    def update(self) -> bool:
        events = self._follower.new_events()
        state = self._follower.state
        if state.live and not self._status:
            self._print_status(state, state.created)
            self._print_waiting(state.waiting_for)
        for event in events:
            if line := self._describe(event):
                self._print(getattr(event, "time", time.time()), *line)
        self._print_status(state, state.ended or time.time())
        self._print_waiting(state.waiting_for)
        if state.live and state.reason != self._reason:
            self._reason = state.reason
            if state.reason:
                self._print(time.time(), "warning", state.reason)
        if state.live and time.monotonic() >= self._next_progress:
            self._print_progress()
            self._next_progress = time.monotonic() + self._every
        return state.live

    def message(self, text: str) -> None:
        self._print(time.time(), "distrain", text)

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def _print_status(self, state: RunState, since: float) -> None:
        if state.status == self._status:
            return
        has_own_line = bool(state.error) or state.live  # of the result, or a warning
        description = "" if has_own_line else state.reason
        if not description and not self._status:
            summary = self._follower.record.summary()
            description = f"{summary['run_id']}  {format_setup(summary)}"
        self._status = state.status
        self._print(since, state.status, description or job_status.job_and_nodes(state))

    def _print_waiting(self, reasons: list[str]) -> None:
        for reason in reasons:
            if reason not in self._waiting_for:
                self._print(time.time(), "waiting", reason)
        self._waiting_for = reasons

    def _print_progress(self) -> None:
        text = self._describe_progress()
        if text and text != self._progress:
            self._progress = text
            self._print(time.time(), "progress", text)

    def _describe(self, event: Event) -> tuple[str, str] | None:
        return describe_event(event)

    def _describe_progress(self) -> str:
        return format_progress(self._follower.snapshot())

    def _print(self, moment: float, event: str, description: str) -> None:
        line = f"{formatting.time_of_day(moment)}  {event:<10}  {description}"
        print(line.rstrip(), file=self._stream, flush=True)


def describe_event(event: Event) -> tuple[str, str] | None:
    """Return what happened and how in one line each, or None for events not meant for people."""
    match event:
        case Facts():
            epochs = [
                formatting.plural(event.train_samples, "sample"),
                f"{formatting.plural(event.steps_per_epoch, 'step')} per epoch",
            ]
            total = f"{formatting.plural(event.total_steps, 'step')} in total"
            return "training", ", ".join(
                [
                    *(epochs if event.train_samples else []),
                    *([] if event.last_step is None else [total]),
                    formatting.plural(event.parameters, "parameter"),
                ]
            )
        case Evaluation():
            metrics = {name: metric.value for name, metric in event.metrics.items()}
            figures = format_evaluation({**metrics, "samples": event.samples})
            epoch = f"epoch {event.epoch}  " if event.epoch else ""
            return "evaluation", f"{epoch}step {event.step:,}  {figures}"
        case Saved():
            size = formatting.size(event.bytes)
            best = "  best so far" if event.best else ""
            return "checkpoint", f"step {event.step:,}  {event.path}  {size}{best}"
        case Attempt():
            reason = f": {event.reason}" if event.reason else ""
            return "attempt", f"restarted after step {event.step:,}, was at {event.lost:,}{reason}"
        case Notice():
            return "warning" if event.level == "warning" else "notice", event.text
        case Job():
            return "job", job_status.describe(event, event.time)
        case NonFinite():
            return "warning", f"rank {event.rank}: the loss is {event.loss} at step {event.step:,}"
        case Failure(secondary=True):
            return "secondary", f"rank {event.rank}: {event.error}"
        case Failure(usage=False):
            first_line = event.message.partition("\n")[0]
            return "failure", f"rank {event.rank}: {event.error}: {first_line}"
    return None


def format_progress(snapshot: Snapshot) -> str:
    """Return "step 120/360  33 %  loss 0.1234  5,432 samples/s  ETA 12.3 s"."""
    if snapshot.state.facts is None:
        return ""
    steps = [f"step {snapshot.step:,}"]
    if snapshot.total_steps is not None and snapshot.fraction is not None:
        steps = [f"{steps[0]}/{snapshot.total_steps:,}", formatting.percent(snapshot.fraction)]
    parts = [*steps, f"loss {formatting.figure(snapshot.loss)}", snapshot.throughput]
    if snapshot.eta:
        parts.append(f"ETA {formatting.duration(snapshot.eta)}")
    return "  ".join(parts)
