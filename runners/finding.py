"""What a person means by a name: a run, or a bench."""

from __future__ import annotations

import os

from runners import bench, runs
from runners.bench import Bench
from runners.errors import DistrainError
from runners.runs import Run, runs_folder


def find(wanted: str, runs_dir: str | os.PathLike[str] | None = None) -> Run | Bench:
    """The run or bench of that id, beginning of one or name, or `latest`, the newest of both.

    Raises RunNotFoundError.
    """
    folder = runs_folder(runs_dir)
    if there := runs.at(wanted, folder) or bench.at(wanted, folder):
        return there
    both: list[Run | Bench] = [*runs.all_runs(folder), *bench.all_benches(folder)]
    return runs.choose(wanted, sorted(both, key=lambda each: each.created), folder, "run or bench")


def find_run(wanted: str, runs_dir: str | os.PathLike[str] | None = None) -> Run:
    """The run, for what cannot be done with a bench; `latest` is the newest run. Raises
    RunNotFoundError, or DistrainError where it is a bench.
    """
    found = runs.find(wanted, runs_dir) if wanted == "latest" else find(wanted, runs_dir)
    if isinstance(found, Run):
        return found
    raise DistrainError(f"{found.id} is a bench; its runs are in {found.runs_dir}")
