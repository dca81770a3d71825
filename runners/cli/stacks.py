"""`stacks`: what every rank of a run is doing, call by call."""

from __future__ import annotations

from argparse import Namespace

from distrain.runners.errors import DistrainError
from distrain.runners.lookup import find_run
from distrain.runners.records.ranks import RankInfo
from distrain.runners.records.stacks import format_stacks, read_saved_stacks


def execute(arguments: Namespace) -> int:
    """Print the stacks of a live run; of one that has ended those that were kept."""
    run = find_run(arguments.run, arguments.runs_dir)
    if not run.is_live:
        saved = read_saved_stacks(run.dir)
        if not saved:
            raise DistrainError(f"run {run.id} has ended, and no stacks were taken while it ran")
        print(saved, end="")
        return 0
    ranks = [rank for rank in run.record.ranks() if not rank.finished]
    answers = run.read_stacks()
    if not (answers or ranks):
        raise DistrainError(f"run {run.id} is {run.status}, and none of its ranks is connected")
    print(format_stacks(answers), end="")
    answered = {answer.rank for answer in answers}
    for rank in ranks:
        if rank.rank not in answered:
            print(_explain_silence(rank))
    return 0 if answers else 1


def _explain_silence(rank: RankInfo) -> str:
    text = f"rank {rank.rank} (pid {rank.pid}) does not respond"
    return f"{text}; `py-spy dump --pid {rank.pid}` on its host reads its stacks"
