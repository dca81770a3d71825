"""`rm`: move runs, benches and groups to the trash, or restore them."""

from __future__ import annotations

import os
from argparse import Namespace
from contextlib import suppress
from pathlib import Path

from distrain.runners import formatting
from distrain.runners.bench.handle import find as find_bench
from distrain.runners.cli.terminal import print_message
from distrain.runners.errors import DistrainError
from distrain.runners.groups import Group, find_group
from distrain.runners.lookup import find_any
from distrain.runners.records.state import TRASH
from distrain.runners.records.trash import find_in_trash, require_unused, restore
from distrain.runners.runs import Run
from distrain.runners.session import Session, runs_folder


def execute(arguments: Namespace) -> int:
    """Move all of the named sessions to the trash, or none if one of them is live or needed."""
    runs_dir = runs_folder(arguments.runs_dir)
    if arguments.undo:
        return _restore(arguments.runs, runs_dir)
    sessions: dict[str, Session] = {}
    for wanted in arguments.runs:
        found = find_any(wanted, str(runs_dir))
        for each in found.runs if isinstance(found, Group) else [found]:
            sessions[os.path.realpath(each.dir)] = each
    for session in sessions.values():
        if session.is_live:
            raise DistrainError(
                f"{session.id} is {session.status}; run `distrain stop {session.id}` first"
            )
    require_unused([session.record for session in sessions.values() if isinstance(session, Run)])
    moved: dict[Path, list[str]] = {}
    for session in sessions.values():
        moved.setdefault(session.remove().parent, []).append(session.id)
    for folder, ids in moved.items():
        option = [] if arguments.runs_dir is None else ["--runs-dir", arguments.runs_dir]
        if folder != runs_dir / TRASH:  # of a session that was given by its path
            option = ["--runs-dir", str(folder.parent)]
        undo = formatting.shell_words(["distrain", "rm", "--undo", *option, *ids])
        print_message(f"moved to {folder}: {', '.join(ids)}")
        print_message(f"undo: {undo}")
    return 0


def _restore(names: list[str], runs_dir: Path) -> int:
    removed = [folder for name in names for folder in _find_in_trash(runs_dir, name)]
    for folder in removed:
        print_message(f"restored {restore(folder).name}")
    return 0


def _find_in_trash(runs_dir: Path, wanted: str) -> list[Path]:
    """Return the folder of a removed run or bench, or those of the removed runs of a group."""
    try:
        return [find_in_trash(runs_dir, wanted).dir]
    except DistrainError as error:
        with suppress(DistrainError):
            bench = find_bench(wanted, runs_dir / TRASH).dir
            if os.path.realpath(bench.parent) == os.path.realpath(runs_dir / TRASH):
                return [bench]  # a path may lead to another one, which was not removed
        with suppress(DistrainError):
            return [run.dir for run in find_group(wanted, runs_dir / TRASH).runs]
        raise error from None
