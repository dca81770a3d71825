"""`watch`: follow a run, a bench or a group; Ctrl-C only leaves."""

from __future__ import annotations

import sys
from argparse import Namespace

from distrain.runners.cli.follow import RECOVERED, follow
from distrain.runners.cli.signals import Signals
from distrain.runners.cli.terminal import print_message
from distrain.runners.lookup import find_any


def execute(arguments: Namespace) -> int:
    session = find_any(arguments.run, arguments.runs_dir)
    if arguments.trust:
        session.trust()
    with Signals() as signals:
        if session.recover():
            print_message(RECOVERED)
        return follow(session, signals, stream=sys.stdout, every=arguments.every)
