"""logs/stacks.log: the stacks of a run's ranks, taken when it made no progress or on request."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from distrain.runners import formatting
from distrain.runners.errors import DistrainError
from distrain.runners.protocol.events import Frame, Stacks
from distrain.runners.records.logs import check_log_folder
from distrain.runners.system.files import read_regular

FILE = Path("logs") / "stacks.log"


def append_stacks(folder: Path, answers: Iterable[Stacks]) -> None:
    """Add stacks to the record in a folder. Raises OSError."""
    head = f"--- {formatting.time_of_day(time.time())}\n"
    with (folder / FILE).open("a", encoding="utf-8", errors="backslashreplace") as file:
        file.write(f"{head}{format_stacks(answers)}\n")


def read_saved_stacks(folder: Path) -> str:
    """Return the stacks in a record's folder as printable text; empty where none were taken.

    Raises DistrainError where the file cannot be read, as it does if it is a link.
    """
    path = folder / FILE
    try:
        check_log_folder(path)
        text = read_regular(path).decode(errors="backslashreplace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise DistrainError(f"{path} cannot be read: {error.strerror}") from None
    return "".join(f"{formatting.printable(line)}\n" for line in text.splitlines())


def format_stacks(answers: Iterable[Stacks]) -> str:
    """Return stacks as text: of the main threads those that fewest ranks have first.

    Other threads follow for each rank. Calls are listed as in a traceback, the innermost one last.
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
    return "\n".join(parts)


def _format_frames(frames: Iterable[Frame]) -> str:
    lines = [f"  {formatting.single_line(describe_frame(frame))}\n" for frame in frames]
    return "".join(lines) or "  (no Python code)\n"


def describe_frame(frame: Frame) -> str:
    return f"{frame.file}:{frame.line} in {frame.function}"
