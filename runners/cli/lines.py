"""A run as plain lines, for pipes and logs: one per thing that happened, and progress at times."""

from __future__ import annotations

import time
from typing import TextIO

from runners import jobs, words
from runners.cli.ending import combination, evaluation_line
from runners.events import (
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
from runners.snapshot import Follower, Snapshot


class Lines:
    """Writes "04:41:17  what        how" lines; progress at most every `every` seconds."""

    def __init__(self, stream: TextIO, every: float) -> None:
        self._stream = stream
        self._every = every
        self._status = ""
        self._told = ""
        self._waits: list[str] = []
        self._due = 0.0

    def show(self, follower: Follower, news: list[Event]) -> None:
        state = follower.state
        if state.live and not self._status:
            self._state(follower, state.created)
            self._waiting(state.waiting_for)
        for event in news:
            if said := in_words(event):
                self._line(getattr(event, "time", time.time()), *said)
        self._state(follower, state.ended or time.time())
        self._waiting(state.waiting_for)
        if not state.live:
            return
        if time.monotonic() >= self._due:
            snapshot = follower.snapshot()
            if (text := progress(snapshot)) and text != self._told:
                self._told = text
                self._line(snapshot.time, "progress", text)
            self._due = time.monotonic() + self._every

    def say(self, text: str) -> None:
        self._line(time.time(), "you", text)

    def close(self) -> None:
        """Nothing to put away."""

    def _state(self, follower: Follower, since: float) -> None:
        state = follower.state
        if state.status == self._status:
            return
        first, self._status = not self._status, state.status
        what = f"{follower.record.id}  {combination(follower.record.summary())}" if first else ""
        self._line(since, state.status, state.reason or what or jobs.standing(state))

    def _waiting(self, reasons: list[str]) -> None:
        for text in reasons:
            if text not in self._waits:
                self._line(time.time(), "waiting", text)
        self._waits = reasons

    def _line(self, moment: float, what: str, text: str) -> None:
        print(f"{words.clock(moment)}  {what:<10}  {text}", file=self._stream, flush=True)


def in_words(event: Event) -> tuple[str, str] | None:
    """An event as (what, how) in one line; None for what is only plumbing."""
    match event:
        case Facts():
            return "training", ", ".join(
                [
                    f"{words.count(event.train_samples)} samples",
                    f"{words.count(event.steps_per_epoch)} steps an epoch",
                    f"{words.count(event.total_steps)} steps in all",
                    f"{words.count(event.parameters)} parameters",
                ]
            )
        case Evaluation():
            metrics = {name: metric.value for name, metric in event.metrics.items()}
            figures = evaluation_line({**metrics, "samples": event.samples})
            return "evaluation", f"epoch {event.epoch}  step {event.step:,}  {figures}"
        case Saved():
            best = "  best so far" if event.best else ""
            return (
                "checkpoint",
                f"step {event.step:,}  {event.path}  {words.size(event.bytes)}{best}",
            )
        case Attempt():
            reason = f": {event.reason}" if event.reason else ""
            return "attempt", f"goes on after step {event.step:,}, was at {event.lost:,}{reason}"
        case Notice():
            return event.level if event.level == "warning" else "notice", event.text
        case Job():
            return "job", jobs.told(event, event.time)
        case NonFinite():
            return (
                "warning",
                f"the loss of rank {event.rank} is {event.loss} at step {event.step:,}",
            )
        case Failure(collateral=True):
            return "collateral", f"rank {event.rank}: {event.error}"
        case Failure(usage=False):
            first = event.message.partition("\n")[0]
            return "failure", f"rank {event.rank}: {event.error}: {first}"
    return None


def progress(now: Snapshot) -> str:
    """ "step 120/360  33 %  loss 0.1234  5,432 samples/s  ETA 12.3 s"."""
    if now.total_steps is None or now.fraction is None:
        return ""
    parts = [
        f"step {now.step:,}/{now.total_steps:,}",
        words.percent(now.fraction),
        f"loss {words.figure(now.loss)}",
        words.rate(now.samples_per_s),
    ]
    if now.eta:
        parts.append(f"ETA {words.duration(now.eta)}")
    return "  ".join(parts)
