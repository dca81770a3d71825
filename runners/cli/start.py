"""Starting a session: follow it to its end, or with --detach print its id."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable

from distrain.runners.cli.run_result import EXIT_CODES
from distrain.runners.cli.signals import Signals
from distrain.runners.cli.terminal import print_json, print_message
from distrain.runners.session import Followed, Session


def start_session(arguments: Namespace, start: Callable[[], Session]) -> int:
    """Call `start`, and follow the session that it returns unless --detach was given."""
    # Signals are caught before the start: a Ctrl-C in that moment must stop the session.
    with Signals() as signals:
        session = start()
        if not arguments.detach:
            from distrain.runners.cli.follow import follow  # loaded while the ranks start

            return follow(
                session, signals, stream=sys.stderr, can_stop=True, as_json=arguments.json
            )
        if not detach(session, signals):
            return EXIT_CODES["stopped"]
    _print_start(session, arguments.json)
    return 0


def detach(session: Followed, signals: Signals) -> bool:
    """Let a session that was started go on, or stop it and return False if there was a Ctrl-C.

    A later Ctrl-C changes nothing: the id is printed, and the exit code is 0.
    """
    signals.is_detached = True
    if not signals.interrupts:
        return True
    session.stop(now=True)
    print_message(f"stopped {session.id} before detaching")
    return False


def _print_start(session: Session, as_json: bool) -> None:
    from distrain.runners.cli.presentation import present

    for notice in present(session).notices():
        print_message(f"note: {notice}", "warning")
    if as_json:
        print_json({f"{session.kind}_id": session.id, "dir": str(session.dir)})
    else:
        print(session.id)
