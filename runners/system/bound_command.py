"""A command that ends with the process that started it, however that ends, with all its children.

Executed as a program, this file is the leader of the session of the command:
`python bound_command.py DESCRIPTOR COMMAND …`. It imports nothing that takes time.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from functools import cache
from threading import Event, Thread
from time import sleep
from typing import Any

GRACE_S = 3.0  # from SIGINT to SIGKILL
SENT_TO_ALL = (signal.SIGINT, signal.SIGTERM)  # to all processes of the session


def bind(command: Sequence[str]) -> dict[str, Any]:
    """Return arguments of `subprocess.Popen` for a command that ends with this process.

    It leads a session, whose processes get SIGINT and then SIGKILL when this process is gone. A
    session that the command starts, such as that of a supervisor, is not affected.
    """
    lifeline = _lifeline()
    return {
        "args": [sys.executable, "-I", "-S", __file__, str(lifeline), *command],
        "pass_fds": (lifeline,),
        "start_new_session": True,
    }


@cache
def _lifeline() -> int:
    """Return the end of a pipe that is at its end when this process is gone: it has the other."""
    reader, _ = os.pipe()
    return reader


def main() -> int:
    """Execute the command and return its exit code."""
    lifeline, command = int(sys.argv[1]), sys.argv[2:]
    os.set_inheritable(lifeline, False)
    for number in SENT_TO_ALL:
        signal.signal(number, signal.SIG_IGN)
    try:
        pid = os.posix_spawnp(command[0], command, os.environ, setsigdef=SENT_TO_ALL)
    except OSError as error:
        print(f"cannot execute {command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    is_ending = Event()
    end = Thread(target=_end_session, args=(lifeline, is_ending), daemon=True)
    end.start()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if is_ending.is_set():
        end.join()
    return code if code >= 0 else 128 - code


def _end_session(lifeline: int, is_ending: Event) -> None:
    """Wait until the process that started the command is gone, and end all processes."""
    os.read(lifeline, 1)
    is_ending.set()
    os.killpg(0, signal.SIGINT)
    sleep(GRACE_S)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
