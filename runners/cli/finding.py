"""What a person means by a name: a run, or a bench."""

from __future__ import annotations

from runners import bench, runs
from runners.bench import Bench
from runners.errors import RunNotFoundError
from runners.runs import Run


def find(wanted: str, runs_dir: str | None = None) -> Run | Bench:
    """The run or bench of that id, beginning of one or name, or `latest`, the newest of both.

    Raises RunNotFoundError.
    """
    if wanted == "latest":
        return _newest(runs_dir)
    try:
        return runs.find(wanted, runs_dir)
    except RunNotFoundError as error:
        try:
            return bench.find(wanted, runs_dir)
        except RunNotFoundError:
            raise error from None


def _newest(runs_dir: str | None) -> Run | Bench:
    last = bench.all_benches(runs_dir)[-1:]
    try:
        run = runs.find("latest", runs_dir)
    except RunNotFoundError:
        if last:
            return last[0]
        raise
    return last[0] if last and last[0].state.created > run.record.created else run
