"""`stop`: ask a run or a bench to end."""

from __future__ import annotations

import time
from argparse import Namespace

from distrain.runners.cli.presentation import present
from distrain.runners.cli.terminal import print_message
from distrain.runners.lookup import find_any
from distrain.runners.session import POLL_S


def execute(arguments: Namespace) -> int:
    """Ask the session to stop; with --wait, return when it has ended."""
    session = find_any(arguments.run, arguments.runs_dir)
    effect = present(session).describe_stop(arguments.now)
    session.stop(now=arguments.now)
    print_message(f"stopping {session.id}: {effect}")
    if arguments.wait:
        while session.attend():
            time.sleep(POLL_S)
        print_message(f"{session.status}: {session.reason}")
    return 0
