"""`stop`, `rm` and `export`: what is done to a run from outside."""

from __future__ import annotations

import time
from argparse import Namespace
from pathlib import Path

from runners import runs
from runners.bench import Bench
from runners.bench import find as find_bench
from runners.cli.text import say
from runners.errors import DistrainError
from runners.finding import find, find_run
from runners.record import TRASH, in_trash, restore

STOPPING = "every rank leaves at the same step and a checkpoint is written"
UNQUEUED = "it is taken out of the queue and never starts"
NOW = "it is ended at once, without a checkpoint"


def stop(arguments: Namespace) -> int:
    """Ask a run to end; with --wait return when it has."""
    run = find(arguments.run, arguments.runs_dir)
    if isinstance(run, Bench):
        return _stop_bench(run, arguments.wait)
    queued = run.record.status == "queued"
    run.stop(now=arguments.now)
    how = UNQUEUED if queued else NOW if arguments.now else STOPPING
    say(f"stopping {run.id}: {how}")
    if arguments.wait:
        while run.attend():
            time.sleep(runs.POLL_S)
        state = run.record.state
        say(f"{state.status}: {state.reason}")
    return 0


def _stop_bench(bench: Bench, wait: bool) -> int:
    bench.stop()
    say(f"stopping {bench.id}: its present run is ended; `distrain resume {bench.id}` goes on")
    if wait:
        bench.wait()
        say(bench.state.status)
    return 0


def rm(arguments: Namespace) -> int:
    """Move runs to the trash of their folder, all or none of them; or take them back."""
    folder = runs.runs_folder(arguments.runs_dir)
    if arguments.undo:
        for lost in [_in_trash(folder, wanted) for wanted in arguments.runs]:
            say(f"{restore(lost).name} is back")
        return 0
    found = {run.id: run for run in (find(each, str(folder)) for each in arguments.runs)}
    for run in found.values():
        if run.is_live:
            raise DistrainError(f"{run.id} is live; `distrain stop {run.id}` first")
    for run in found.values():
        run.remove()
    where = "" if arguments.runs_dir is None else f" --runs-dir {arguments.runs_dir}"
    say(f"moved to {folder / TRASH}: {', '.join(found)}")
    say(f"undo: distrain rm --undo{where} {' '.join(found)}")
    return 0


def _in_trash(folder: Path, wanted: str) -> Path:
    try:
        return in_trash(folder, wanted).dir
    except DistrainError as error:
        try:
            return find_bench(wanted, folder / TRASH).dir
        except DistrainError:
            raise error from None


def export(arguments: Namespace) -> int:
    """Write a run's measurements for other programs: to --out, else csv and jsonl to stdout."""
    from runners.export import export as write

    record = find_run(arguments.run, arguments.runs_dir).record
    write(record, arguments.to, Path(arguments.out) if arguments.out else None)
    if arguments.out:
        say(f"written to {arguments.out}")
    return 0
