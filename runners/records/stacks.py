"""logs/stacks.log: the stacks of a run's ranks, taken when it made no progress or on request."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

from distrain.runners import formatting
from distrain.runners.protocol.events import Frame, Stacks
from distrain.runners.records.logs import open_log

_LIBRARIES = ("/site-packages/", "/lib/python3", "distrain/runners/", "distrain/models/")
HEAD = "--- stacks at "
MOST_BYTES = 1 << 20  # that are read
MOST_KEPT = 1 << 24  # bytes of a file until another is begun
FILE = Path("logs") / "stacks.log"
OLDER_FILE = Path("logs") / "stacks.older.log"


def is_library(text: str) -> bool:
    """Return whether a file, or a line of a stack, belongs to Python, a package or distrain."""
    return text.lstrip().startswith("<") or any(part in text for part in _LIBRARIES)


def append_stacks(folder: Path, answers: Iterable[Stacks]) -> None:
    """Add stacks to the record in a folder. Raises OSError.

    A run may stall again and again for days: only the newest ones are kept.
    """
    head = f"{HEAD}{formatting.time_of_day(time.time())}\n"
    path = folder / FILE
    if path.exists() and path.stat().st_size > MOST_KEPT:
        path.replace(folder / OLDER_FILE)
    with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
        file.write(f"{head}{format_stacks(answers)}\n")


def read_saved_stacks(folder: Path) -> str:
    """Return the last stacks in a record's folder as text; empty where none were taken."""
    try:
        with open_log(folder / FILE) as file:
            file.seek(max(os.fstat(file.fileno()).st_size - MOST_BYTES, 0))
            text = file.read(MOST_BYTES).decode(errors="backslashreplace")
    except OSError:
        return ""
    return "".join(f"{formatting.printable(line)}\n" for line in text.splitlines())


def read_last_stacks(folder: Path) -> str:
    """Return the stacks that were taken last, with the time; empty where none were."""
    _, separator, text = read_saved_stacks(folder).rpartition(HEAD)
    return separator.lstrip() + text


def format_stacks(answers: Iterable[Stacks]) -> str:
    """Return stacks as text: of the main threads those that fewest ranks have first.

    Other threads and pending collectives follow for each rank. Calls are listed as in a traceback,
    the innermost one last.
    """
    ordered = sorted(answers, key=lambda each: each.rank)
    groups: dict[tuple[Frame, ...], list[int]] = {}
    for answer in ordered:
        frames = answer.threads[0].frames if answer.threads else []
        groups.setdefault(tuple(frames), []).append(answer.rank)
    parts = [
        f"{formatting.ranks(ranks)}, main thread:\n{_format_frames(frames)}"
        for frames, ranks in sorted(groups.items(), key=lambda group: len(group[1]))
    ]
    parts += [
        f"rank {answer.rank}, {formatting.single_line(thread.name)}:\n"
        f"{_format_frames(thread.frames)}"
        for answer in ordered
        for thread in answer.threads[1:]
    ]
    return "\n".join([*parts, *filter(None, map(_format_collectives, ordered))])


def _format_collectives(answer: Stacks) -> str:
    lines = [
        f"{each.pending} (number {each.pending_number:,} of {each.group})"
        for each in answer.collectives
        if each.pending_number is not None
    ]
    if not lines:
        return ""
    text = "".join(f"  {formatting.single_line(line)}\n" for line in lines)
    return f"rank {answer.rank}, pending collectives:\n{text}"


def _format_frames(frames: Iterable[Frame]) -> str:
    lines = [f"  {formatting.single_line(describe_frame(frame))}\n" for frame in frames]
    return "".join(lines) or "  (no Python code)\n"


def describe_frame(frame: Frame) -> str:
    return f"{frame.file}:{frame.line} in {frame.function}"
