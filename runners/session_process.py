"""Starting the process that owns a session, and why it did not start."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from distrain.runners.records.logs import read_end
from distrain.runners.system import processes
from distrain.runners.system.limits import explain
from distrain.runners.system.python_path import hidden_module

LOG_END = 1 << 14  # bytes of a log that are read for its last line
NEEDED_SPACE = 1 << 20  # bytes, without which a supervisor may not start


def start(
    program: str,
    module: str,
    *arguments: str,
    log: Path,
    cwd: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run a module that detaches itself once it is ready; return why it did not start, or "".

    `program` is what the sentence calls it.
    """
    try:
        code = processes.start(module, *arguments, cwd=cwd, environment=environment)
    except OSError as error:
        return f"{program} did not start: {explain(error)}"
    return f"{program} did not start: {_last_line(log, environment)}" if code else ""


def _last_line(log: Path, environment: Mapping[str, str] | None) -> str:
    """Return the last line of a log; where it is empty, there may have been no space for it."""
    with suppress(OSError):
        if lines := read_end(log, LOG_END).decode(errors="replace").strip().splitlines():
            return lines[-1]
    try:
        with tempfile.TemporaryFile(dir=log.parent) as file:
            file.write(bytes(NEEDED_SPACE))
    except OSError as error:
        return explain(error)
    return hidden_module(environment) or "its log is empty"
