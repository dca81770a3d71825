"""What a name on the command line means: a run or a bench."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

from distrain.runners import formatting, runs
from distrain.runners.bench.handle import Bench, all_benches, bench_at
from distrain.runners.errors import DistrainError, RunNotFoundError
from distrain.runners.groups import Group, find_group
from distrain.runners.runs import Run, all_runs, run_at
from distrain.runners.session import choose, runs_folder


def find(wanted: str, runs_dir: str | os.PathLike[str] | None = None) -> Run | Bench:
    """Return the run or bench with this path, id, unique prefix of an id or name, or the `latest`.

    Of several with one name it is the newest. Raises RunNotFoundError, also for a group.
    """
    found = find_any(wanted, runs_dir)
    if isinstance(found, Group):
        count = formatting.plural(len(found.runs), "run")
        hint = f"name one of them; `distrain show {found.name}` lists them"
        raise RunNotFoundError(f"{found.id} is a group of {count}: {hint}")
    return found


def find_any(wanted: str, runs_dir: str | os.PathLike[str] | None = None) -> Run | Bench | Group:
    """Return the run or bench as `find`, or else the group of this id or name.

    Raises RunNotFoundError.
    """
    try:
        return _find(wanted, runs_dir)
    except RunNotFoundError:
        with suppress(RunNotFoundError):
            return find_group(wanted, runs_dir)
        raise


def find_runs(wanted: str, runs_dir: str | os.PathLike[str] | None = None) -> Sequence[Run]:
    """Return the run as `find_run`, or the runs of a group. Raises as `find_run`."""
    found = find_any(wanted, runs_dir) if wanted != "latest" else None
    return found.runs if isinstance(found, Group) else [find_run(wanted, runs_dir)]


def find_run(wanted: str, runs_dir: str | os.PathLike[str] | None = None) -> Run:
    """Return the run, for commands that do not work on a bench; `latest` is the newest run.

    Raises RunNotFoundError, or DistrainError if it is a bench.
    """
    session = runs.find(wanted, runs_dir) if wanted == "latest" else find(wanted, runs_dir)
    if isinstance(session, Bench):
        raise DistrainError(f"{session.id} is a bench; its runs are in {session.records_dir}")
    return session


def _find(wanted: str, runs_dir: str | os.PathLike[str] | None) -> Run | Bench:
    folder = runs_folder(runs_dir)
    found = run_at(wanted, folder) or bench_at(wanted, folder)
    if found:
        return found
    sessions: list[Run | Bench] = [*all_runs(folder), *all_benches(folder)]
    sessions.sort(key=lambda session: session.created)
    return choose(wanted, sessions, folder, "run or bench")
