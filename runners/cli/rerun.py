"""`rerun`: start the config of a run, or the definition of a bench, again."""

from __future__ import annotations

from argparse import Namespace

from distrain.runners.cli.config_changes import config_changes
from distrain.runners.cli.consent import ensure_trust
from distrain.runners.cli.start import start_session
from distrain.runners.lookup import find


def execute(arguments: Namespace) -> int:
    session = find(arguments.run, arguments.runs_dir)
    changes = config_changes(arguments)
    session.rerun_configs()  # raises, before any question, if it cannot be started again at all
    ensure_trust(session, arguments.trust)
    queue = arguments.queue or None
    return start_session(arguments, lambda: session.rerun(changes, arguments.name, queue=queue))
