"""`rm`: move runs and benches to the trash, or restore them."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from distrain.runners import formatting
from distrain.runners.bench.handle import find as find_bench
from distrain.runners.cli.terminal import print_message
from distrain.runners.errors import DistrainError
from distrain.runners.lookup import find
from distrain.runners.records.trash import TRASH, find_in_trash, restore
from distrain.runners.session import runs_folder


def execute(arguments: Namespace) -> int:
    """Move all of the named sessions to the trash, or none if one of them is live."""
    runs_dir = runs_folder(arguments.runs_dir)
    if arguments.undo:
        return _restore(arguments.runs, runs_dir)
    sessions = {}
    for wanted in arguments.runs:
        session = find(wanted, str(runs_dir))
        sessions[session.id] = session
    for session in sessions.values():
        if session.is_live:
            raise DistrainError(
                f"{session.id} is {session.status}; run `distrain stop {session.id}` first"
            )
    for session in sessions.values():
        session.remove()
    option = [] if arguments.runs_dir is None else ["--runs-dir", arguments.runs_dir]
    undo = formatting.shell_words(["distrain", "rm", "--undo", *option, *sessions])
    print_message(f"moved to {runs_dir / TRASH}: {', '.join(sessions)}")
    print_message(f"undo: {undo}")
    return 0


def _restore(names: list[str], runs_dir: Path) -> int:
    removed = [_find_in_trash(runs_dir, name) for name in names]
    for folder in removed:
        print_message(f"restored {restore(folder).name}")
    return 0


def _find_in_trash(runs_dir: Path, wanted: str) -> Path:
    try:
        return find_in_trash(runs_dir, wanted).dir
    except DistrainError as error:
        try:
            return find_bench(wanted, runs_dir / TRASH).dir
        except DistrainError:
            raise error from None
