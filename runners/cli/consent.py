"""The question whether to execute the code of a record that the user has not launched."""

from __future__ import annotations

import sys

from distrain.runners.cli.terminal import print_message
from distrain.runners.config.trust import describe, require_trust
from distrain.runners.errors import UntrustedError
from distrain.runners.session import Session


def ensure_trust(session: Session, given: bool = False) -> None:
    """Ask in a terminal whether the code of a session is trusted; `given` answers yes.

    Raises UntrustedError if it is not, or if nobody can be asked.
    """
    lines = session.untrusted_code()
    if not lines:
        return
    name = f"{session.kind} {session.id} ({session.dir})"
    if not given:
        if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):  # it may be closed
            require_trust(name, lines)
        print_message(describe(name, lines))
        print("Trust it, and execute it from now on? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise UntrustedError("not trusted; nothing was started")
    session.trust()
