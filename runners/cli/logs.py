"""`logs`: what the processes of a run printed, whole or as it comes."""

from __future__ import annotations

import re
import sys
import time
from argparse import Namespace
from pathlib import Path

from runners.cli.text import say
from runners.errors import DistrainError
from runners.finding import find_run
from runners.runs import Run

POLL_S = 0.2
OTHERS = ("launcher", "job", "supervisor")


class Tail:
    """A log that grows: gives its lines once each, the last one also without its end."""

    def __init__(self, path: Path, prefix: str) -> None:
        self._path, self._prefix = path, prefix
        self._offset = 0
        self._rest = b""
        self.shown = False

    def print_new(self, final: bool) -> None:
        """Print whole lines that came since the last call; `final` also what is left."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                for line in file:
                    self._offset += len(line)
                    self._take(line)
        except FileNotFoundError:
            return
        if final and self._rest:
            self._take(b"\n")

    def _take(self, part: bytes) -> None:
        self._rest += part
        if self._rest.endswith(b"\n"):
            self.shown = True
            sys.stdout.write(self._prefix + self._rest.decode(errors="replace"))
            self._rest = b""


def logs(arguments: Namespace) -> int:
    """Print logs; Ctrl-C while following leaves with exit code 0."""
    run = find_run(arguments.run, arguments.runs_dir)
    tails: dict[str, Tail] = {}
    try:
        while True:
            live = arguments.follow and run.attend()
            for name in _wanted(run, arguments.rank):
                path = run.record.dir / "logs" / f"{name}.log"
                prefix = f"[{name.replace('-', ' ')}] " if arguments.rank is None else ""
                tails.setdefault(name, Tail(path, prefix)).print_new(final=not live)
            sys.stdout.flush()
            if not live:
                break
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        if not arguments.follow:
            raise
    if not any(tail.shown for tail in tails.values()):
        say(f"nothing was printed to {', '.join(tails)} of run {run.id}")
    return 0


def _wanted(run: Run, only: str | None) -> list[str]:
    """Stems of log files: the launcher's, a job's and the ranks', or the one that is asked for."""
    if only in OTHERS:
        return [only]
    if only is not None:
        return [f"rank-{_number(run, only)}"]
    found = {
        int(match[1]): path.stem
        for path in (run.record.dir / "logs").glob("rank-*.log")
        if (match := re.fullmatch(r"rank-(\d+)", path.stem))
    }
    plan = run.record.state.plan
    job = ["job"] if plan and plan.scheduled else []
    return ["launcher", *job, *(found[rank] for rank in sorted(found))]


def _number(run: Run, text: str) -> int:
    plan = run.record.state.plan
    world = plan.world_size if plan else None
    if not re.fullmatch("[0-9]{1,9}", text) or (world is not None and int(text) >= world):
        ranks = "its ranks" if world is None else "rank 0" if world == 1 else f"0 to {world - 1}"
        raise _NoSuchLogError(
            f"there is no rank {text!r} in run {run.id}; "
            f"--rank takes {ranks}, {', '.join(OTHERS[:-1])} or {OTHERS[-1]}"
        )
    return int(text)


class _NoSuchLogError(DistrainError):
    title = "No such log"
    exit_code = 2
