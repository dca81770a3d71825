"""`logs`: what the processes of a run printed, at once or line by line until it ends."""

from __future__ import annotations

import os
import re
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import BinaryIO, TextIO

from distrain.runners import formatting
from distrain.runners.cli.terminal import print_message
from distrain.runners.errors import DistrainError
from distrain.runners.lookup import find_run
from distrain.runners.records.logs import log_path, open_log, rank_logs
from distrain.runners.runs import Run

POLL_S = 0.2
MOST_BYTES = 1 << 22  # that a terminal is given at once of each log, which takes about a second
LAST_BYTES = 1 << 16  # which are printed where others are left out
LONGEST_LINE = 1 << 20  # bytes; longer lines are divided
NAMED_LOGS = ("launcher", "job", "supervisor")


class _NoSuchLogError(DistrainError):
    title = "No such log"
    exit_code = 2


class LogPrinter:
    """Prints each line of a growing log once, with a prefix.

    Of what controls a terminal only colours are printed.
    """

    def __init__(self, path: Path, prefix: str, output: TextIO) -> None:
        self._path = path
        self._prefix = prefix
        self._output = output
        self._offset = 0
        self._partial = b""  # the last line, as long as its end is missing
        self.has_printed = False
        self.problem = ""  # why the log cannot be read, once this was printed

    def print_new(self, final: bool, most: int | None = None) -> None:
        """Print complete lines since the last call; with `final`, an incomplete last line too.

        Where more than `most` bytes (at least LAST_BYTES) are new, only the last lines are printed;
        a message tells how much was left out.
        """
        try:
            file = open_log(self._path)
        except FileNotFoundError:
            return
        except OSError as error:
            if not self.problem:
                self.problem = f"{self._path} cannot be read: {error.strerror}"
                print_message(f"distrain: {formatting.printable(self.problem)}")
            return
        with file:
            end = file.seek(0, os.SEEK_END)  # a program may write faster than this prints
            if most is not None and end - self._offset > most:
                self._skip_to_last_lines(file)
            file.seek(self._offset)
            while self._offset < end and (part := file.readline(LONGEST_LINE)):
                self._offset += len(part)
                self._add(part)
        if final and self._partial:
            self._add(b"\n")

    def _skip_to_last_lines(self, file: BinaryIO) -> None:
        file.seek(-LAST_BYTES, os.SEEK_END)
        file.readline(LAST_BYTES)
        size = formatting.size(file.tell() - self._offset)
        path = formatting.printable(str(self._path))
        self._output.flush()
        print_message(f"{self._prefix}… {size} left out; all of it is in {path}")
        self._offset = file.tell()
        self._partial = b""

    def _add(self, part: bytes) -> None:
        self._partial += part
        if self._partial.endswith(b"\n") or len(self._partial) >= LONGEST_LINE:
            line = self._partial.removesuffix(b"\n").decode(errors="replace")
            self._output.write(f"{self._prefix}{formatting.terminal_line(line)}\n")
            self._partial = b""
            self.has_printed = True


def execute(arguments: Namespace) -> int:
    """Print logs; Ctrl-C with --follow leaves with exit code 0. 1 if one cannot be read."""
    run = find_run(arguments.run, arguments.runs_dir)
    printers: dict[str, LogPrinter] = {}
    most: int | None = None  # all that was printed until now
    try:
        while True:
            is_live = arguments.follow and run.attend()
            for name in _log_names(run, arguments.rank):
                if name not in printers:
                    prefix = f"[{name.replace('-', ' ')}] " if arguments.rank is None else ""
                    printers[name] = LogPrinter(log_path(run.dir, name), prefix, sys.stdout)
                printers[name].print_new(not is_live, most)
            sys.stdout.flush()
            if not is_live:
                break
            most = MOST_BYTES if sys.stdout.isatty() else None
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        if not arguments.follow:
            raise
    if any(printer.problem for printer in printers.values()):
        return 1
    if not any(printer.has_printed for printer in printers.values()):
        if run.is_observed:
            reason = "its output is where its program was started"
        else:
            reason = f"no output in its logs: {', '.join(printers)}"
        print_message(f"run {run.id}: {reason}")
    return 0


def _log_names(run: Run, wanted: str | None) -> list[str]:
    """Return the names of log files without suffix: the wanted one, or launcher, job and ranks."""
    if wanted in NAMED_LOGS:
        return [wanted]
    if wanted is not None:
        return [f"rank-{_parse_rank(run, wanted)}"]
    plan = run.record.state.plan
    names = ["launcher"]
    if plan and plan.scheduled:
        names.append("job")
    return names + [path.stem for path in rank_logs(run.dir).values()]


def _parse_rank(run: Run, text: str) -> int:
    plan = run.record.state.plan
    world_size = plan.world_size if plan else None
    if re.fullmatch("[0-9]{1,9}", text):
        rank = int(text)
        if world_size is None or rank < world_size:
            return rank
    if world_size is None:
        ranks = "its ranks"
    elif world_size == 1:
        ranks = "rank 0"
    else:
        ranks = f"0 to {world_size - 1}"
    raise _NoSuchLogError(
        f"there is no rank {text!r} in run {run.id}; "
        f"--rank takes {ranks}, {', '.join(NAMED_LOGS[:-1])} or {NAMED_LOGS[-1]}"
    )
