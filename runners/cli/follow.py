"""Following a session until it ends. The session continues whatever happens to this process."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import time
from typing import TextIO

from distrain.runners.cli.presentation import present
from distrain.runners.cli.signals import Signals
from distrain.runners.cli.terminal import print_message
from distrain.runners.cli.views import Presentation, View
from distrain.runners.errors import DistrainError
from distrain.runners.session import Followed

TICK_S = 0.05  # between two checks for a signal or the end of the session
UPDATE_SHARE = 5  # updates take at most this part of the time: the ranks need the cores
RECOVERED = "the supervisor was gone and has been restarted; recorded events were merged"


def follow(
    session: Followed,
    signals: Signals,
    *,
    stream: TextIO,
    every: float = 5.0,
    can_stop: bool = False,
    as_json: bool = False,
) -> int:
    """Show the session until it ends, and return its exit code.

    With `can_stop`, Ctrl-C stops the session; otherwise it only leaves. `every` is the time in
    seconds between two progress lines in a pipe.
    """
    presentation = present(session)
    view = presentation.view(stream, every, stream if as_json else sys.stdout)
    try:
        exit_code = _follow_until_end(session, presentation, view, signals, can_stop)
    except OSError as error:
        if can_stop and signals.interrupts:  # Ctrl-C also ends a reader, such as tee
            with contextlib.suppress(DistrainError):
                session.stop(now=signals.interrupts > 1)
        if error.errno != errno.EIO:
            if can_stop:
                # stderr may have a reader that stdout has not
                with contextlib.suppress(OSError, DistrainError):
                    _print_leaving(session)
            raise
        exit_code = _leave_after_signal(signal.SIGHUP)  # the terminal closed before the signal
    finally:
        with contextlib.suppress(OSError):
            view.close()
    if exit_code is None:
        return presentation.print_result(as_json)
    if exit_code in (0, 130) or can_stop:
        _print_leaving(session)
    return exit_code


def _print_leaving(session: Followed) -> None:
    hint = f": `distrain watch {session.id}` follows it" if session.is_live else ""
    print_message(f"leaving; the {session.kind} is {session.status}{hint}")


def _follow_until_end(
    session: Followed, presentation: Presentation, view: View, signals: Signals, can_stop: bool
) -> int | None:
    """Return None once the session has ended, or an exit code to leave with before that."""
    answered = 0  # of the interrupts
    next_update = 0.0
    while True:
        if signals.ended_by is not None:
            return _leave_after_signal(signals.ended_by)
        if signals.interrupts > answered:
            answered += 1
            if not can_stop:
                return 0
            if answered > presentation.stop_requests:
                return 130
            _stop(session, presentation, view, answered)
        began = time.monotonic()
        if began >= next_update or not session.is_live:
            was_live = view.update()
            if session.recover():
                view.message(RECOVERED)
            elif not was_live:
                return None
            duration = time.monotonic() - began
            next_update = began + max(view.interval_s, duration * UPDATE_SHARE)
        time.sleep(TICK_S)


def _stop(session: Followed, presentation: Presentation, view: View, interrupt: int) -> None:
    now = interrupt > 1
    effect = presentation.describe_stop(now)
    if interrupt < presentation.stop_requests:
        hint = "Ctrl-C again ends it at once"
    else:
        hint = "Ctrl-C again only leaves"
    view.message(f"stopping: {effect}; {hint}")
    try:
        session.stop(now=now)
    except DistrainError as error:
        # If it ended in the meantime, the next update shows how.
        if session.is_live:
            view.message(str(error))


def _leave_after_signal(number: int) -> int:
    if number == signal.SIGHUP:  # the terminal is gone, and stdout and stderr with it
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    return 128 + number
