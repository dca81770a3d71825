"""Looking on while a run trains: `watch`, and what `run` does after the launch.

Only a viewer: the run goes on whatever becomes of it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import time
from argparse import Namespace
from typing import Protocol, TextIO

from runners import runs
from runners.bench import Bench
from runners.cli import benching, ending
from runners.cli.lines import Lines
from runners.cli.signals import Signals
from runners.cli.text import is_terminal, print_json, say
from runners.errors import DistrainError
from runners.events import Event
from runners.finding import find
from runners.snapshot import Follower

TICK_S = 0.05  # how soon a signal or the end of the run is seen
REPAINT_S = 0.25
MOST_OF_US = 5  # looking takes at most one part in so many of the time: the ranks need the cores

STOPPING = (
    "stopping: every rank leaves at the same step and a checkpoint is written; "
    "Ctrl-C again to end it now"
)
UNQUEUED = "taking it out of the queue; it never starts"
TAKEN_UP = "its supervisor was gone; what its job recorded meanwhile is merged"
NOW = "ending it now, without a checkpoint; Ctrl-C again only leaves this view"


class View(Protocol):
    """What a run looks like while it trains."""

    def show(self, follower: Follower, news: list[Event]) -> None: ...
    def say(self, text: str) -> None: ...
    def close(self) -> None: ...


def watch(arguments: Namespace) -> int:
    """Follow a run or a bench that is there; Ctrl-C leaves with exit code 0."""
    run = find(arguments.run, arguments.runs_dir)
    with Signals() as signals:
        if isinstance(run, Bench):
            return benching.follow(run, signals, stream=sys.stdout)
        if run.recover():
            say(TAKEN_UP)
        return follow(run, signals, stream=sys.stdout, every=arguments.every)


def follow(
    run: runs.Run,
    signals: Signals,
    *,
    stream: TextIO = sys.stderr,
    every: float = 5.0,
    stops: bool = False,
    as_json: bool = False,
) -> int:
    """Show a run until it ends and give its exit code; with `stops`, Ctrl-C stops it."""
    view = _view(stream, every)
    try:
        left = _look_on(run, signals, view, stops)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        left = _gone(signal.SIGHUP)  # the terminal was closed before its signal came
    finally:
        with contextlib.suppress(OSError):
            view.close()
    if left is None:
        return _ended(run, as_json)
    if left in (0, 130):
        say(f"leaving; the run is {run.record.status}, `distrain watch {run.id}` looks on")
    return left


def _look_on(run: runs.Run, signals: Signals, view: View, stops: bool) -> int | None:
    """None once the run has ended, else the code to leave with before that."""
    follower, answered, due = Follower(run.record), 0, 0.0
    while True:
        if signals.ended_by is not None:
            return _gone(signals.ended_by)
        if signals.interrupts > answered:
            answered += 1
            if not stops or answered > 2:
                return 130 if stops else 0
            _ask(run, view, now=answered == 2)
        began = time.monotonic()
        if began >= due or not run.is_live:
            view.show(follower, follower.news())
            if run.recover():  # before the run reads as ended, or after
                view.say(TAKEN_UP)
            elif not follower.state.live:
                return None
            took = time.monotonic() - began
            due = began + max(REPAINT_S, took * MOST_OF_US)
        time.sleep(TICK_S)


def _ask(run: runs.Run, view: View, now: bool) -> None:
    queued = run.record.status == "queued"
    view.say(UNQUEUED if queued else NOW if now else STOPPING)
    try:
        run.stop(now=now)
    except DistrainError as error:
        # It ended on its own in the meantime: the next look tells how.
        if run.is_live:
            view.say(str(error))


def _gone(number: int) -> int:
    # Nobody may be there any more to read a word of ours, and stdout may be no more.
    if number == signal.SIGHUP:
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    return 128 + number


def _ended(run: runs.Run, as_json: bool) -> int:
    state, facts = run.record.state, run.summary()
    usage = state.error is not None and state.error.usage
    if as_json:
        print_json(facts)
    elif not usage:
        print(ending.in_a_few_lines(run.record, facts), flush=True)
    ending.explain_failure(run.record, state)
    return ending.exit_code(state)


def _view(stream: TextIO, every: float) -> View:
    if not is_terminal(stream):
        return Lines(stream, every)
    from runners.cli.live import Live  # rich takes a while that a pipe need not wait

    return Live(stream)
