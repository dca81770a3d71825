"""`logs`: what the processes of a run printed, at once or line by line until it ends."""

from __future__ import annotations

import os
import re
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import TextIO

from distrain.runners.cli.terminal import print_message
from distrain.runners.errors import DistrainError
from distrain.runners.lookup import find_run
from distrain.runners.runs import Run

POLL_S = 0.2
NAMED_LOGS = ("launcher", "job", "supervisor")


class _NoSuchLogError(DistrainError):
    title = "No such log"
    exit_code = 2


class LogPrinter:
    """Prints each line of a growing log once, with a prefix."""

    def __init__(self, path: Path, prefix: str, output: TextIO) -> None:
        self._path = path
        self._prefix = prefix
        self._output = output
        self._offset = 0
        self._partial = b""  # the last line, as long as its end is missing
        self.has_printed = False

    def skip_to_last(self, size: int) -> None:
        """Leave out what is before the last lines of at most so many bytes."""
        with self._path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            if end > size:
                file.seek(end - size)
                file.readline()
                self._offset = file.tell()

    def print_new(self, final: bool) -> None:
        """Print complete lines since the last call; with `final`, an incomplete last line too."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                for part in file:
                    self._offset += len(part)
                    self._add(part)
        except FileNotFoundError:
            return
        if final and self._partial:
            self._add(b"\n")

    def _add(self, part: bytes) -> None:
        self._partial += part
        if self._partial.endswith(b"\n"):
            self._output.write(self._prefix + self._partial.decode(errors="replace"))
            self._partial = b""
            self.has_printed = True


def execute(arguments: Namespace) -> int:
    """Print logs; Ctrl-C with --follow leaves with exit code 0."""
    run = find_run(arguments.run, arguments.runs_dir)
    printers: dict[str, LogPrinter] = {}
    try:
        while True:
            is_live = arguments.follow and run.attend()
            for name in _log_names(run, arguments.rank):
                if name not in printers:
                    prefix = f"[{name.replace('-', ' ')}] " if arguments.rank is None else ""
                    printers[name] = LogPrinter(
                        run.dir / "logs" / f"{name}.log", prefix, sys.stdout
                    )
                printers[name].print_new(final=not is_live)
            sys.stdout.flush()
            if not is_live:
                break
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        if not arguments.follow:
            raise
    if not any(printer.has_printed for printer in printers.values()):
        if run.is_observed:
            reason = "its output is where its program was started"
        else:
            reason = f"no output in its logs: {', '.join(printers)}"
        print_message(f"run {run.id}: {reason}")
    return 0


def rank_logs(folder: Path) -> dict[int, Path]:
    """Return the logs of a run's ranks so far, in order of ranks."""
    found = {}
    for path in (folder / "logs").glob("rank-*.log"):
        if match := re.fullmatch(r"rank-(\d+)", path.stem):
            found[int(match[1])] = path
    return dict(sorted(found.items()))


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
