"""The command `distrain-tui`: its arguments, its terminal, its exit code."""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from distrain.runners.errors import DistrainError
from distrain.runners.session import Session
from distrain.runners.system.encoding import require_utf8
from distrain.runners.system.limits import require_proc
from distrain.runners.system.processes import raise_descriptor_limit
from distrain.tui.app import DistrainApp

if TYPE_CHECKING:
    from distrain.runners.groups import Group


def main() -> int:
    """Run the command `distrain-tui` and return its exit code."""
    arguments = _parse_arguments()
    streams = (sys.stdin, sys.stdout, sys.stderr)  # it draws on stderr; a closed one is None
    if not all(stream and stream.isatty() for stream in streams):
        message = "distrain-tui needs a terminal; use `distrain watch` without one"
        print(message, file=sys.stderr)
        return 2
    # Also under nohup: without its terminal the app has to end.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        require_proc()
        require_utf8(sys.argv[1:])
        session = None if arguments.run is None else _find(arguments.run, arguments.runs_dir)
        wants_tour = session is None and not arguments.readonly
        app = DistrainApp(arguments.runs_dir, arguments.readonly, session, wants_tour)
    except DistrainError as error:
        for line in str(error).splitlines():
            print(f"distrain-tui: {line}", file=sys.stderr)
        return error.exit_code
    raise_descriptor_limit()
    read_terminal_safely()
    write_terminal_safely()
    try:
        app.run(mouse=not arguments.no_mouse)
    except KeyboardInterrupt:  # the terminal is restored, but a thread does not end
        os._exit(128 + signal.SIGINT)
    return app.return_code or 0


def read_terminal_safely() -> None:
    """Read the terminal through `TerminalDecoder`. Textual decodes it strictly, and the error would
    end the app.
    """
    from textual.drivers import linux_driver

    from distrain.tui.data.terminal_input import TerminalDecoder

    vars(linux_driver)["getincrementaldecoder"] = lambda encoding: TerminalDecoder


def write_terminal_safely() -> None:
    """Write "?" for what the encoding of the terminal lacks: Python's escapes such as \\u25b2 have
    another width.
    """
    if isinstance(sys.__stderr__, io.TextIOWrapper):  # what Textual writes to
        sys.__stderr__.reconfigure(errors="replace")


def _find(name: str, runs_dir: Path | None) -> Session | Group:
    from distrain.runners.lookup import find_any  # loads benches, which the table does not need

    return find_any(name, runs_dir)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="distrain-tui", description="Pick a preset, launch it, watch every rank."
    )
    parser.add_argument("run", nargs="?", help="run, bench or group to open: id, name or latest")
    parser.add_argument("--runs-dir", type=Path, help="default: $DISTRAIN_RUNS_DIR, else ./runs")
    parser.add_argument("--readonly", action="store_true", help="watch only, change nothing")
    parser.add_argument(
        "--no-mouse", action="store_true", help="leave mouse events to the terminal"
    )
    return parser.parse_args()
