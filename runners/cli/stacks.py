"""`stacks`: what every rank of a run is doing, call by call."""

from __future__ import annotations

import shutil
import socket
import subprocess
from argparse import Namespace

from distrain.runners import formatting
from distrain.runners.cli.terminal import print_message
from distrain.runners.errors import DistrainError
from distrain.runners.lookup import find_run
from distrain.runners.records.ranks import RankInfo
from distrain.runners.records.stacks import format_stacks, read_saved_stacks

PY_SPY_S = 20.0


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
    answers = run.read_stacks(len(ranks))
    print(format_stacks(answers), end="")
    answered = {answer.rank for answer in answers}
    for rank in ranks:
        if rank.rank not in answered:
            print(_dump(rank))
    return 0 if answers else 1


def _dump(rank: RankInfo) -> str:
    """Return the stacks of a rank that does not answer, as py-spy reads them from outside."""
    head = f"rank {rank.rank} (pid {rank.pid}) does not respond"
    is_here = rank.pid and rank.host in ("", socket.gethostname())
    program = shutil.which("py-spy")
    if not (is_here and program):
        return f"{head}; `py-spy dump --pid {rank.pid}` on its host reads its stacks"
    command = [program, "dump", "--pid", str(rank.pid)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PY_SPY_S)
    except subprocess.TimeoutExpired:
        return f"{head}, and py-spy could not read it within {PY_SPY_S:.0f} s"
    if done.returncode:
        print_message(formatting.single_line(done.stderr))
    return f"{head}:\n{formatting.printable(done.stdout)}"
