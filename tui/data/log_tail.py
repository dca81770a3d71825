"""The end of a log that may be large and may still grow."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from distrain.runners.records.logs import read_end
from distrain.tui.data.log_text import clean_line

CHUNK = 1 << 14  # bytes


def last_lines(path: Path, count: int) -> list[Text]:
    """Return up to `count` last lines that are not empty; an empty list if there is no file."""
    try:
        data = read_end(path, CHUNK)
    except OSError:
        return []
    lines = [line for raw in data.split(b"\n") if (line := clean_line(raw)).plain.strip()]
    return lines[max(len(lines) - count, 0) :]
