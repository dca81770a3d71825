"""The end of a file that may be large and still grow."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from tui.data.log_text import clean

CHUNK = 1 << 14


def last_lines(path: Path, count: int) -> list[Text]:
    """At most so many last lines that are not empty; none where there is no file."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - CHUNK))
            data = file.read()
    except OSError:
        return []
    lines = [line for raw in data.split(b"\n") if (line := clean(raw)).plain.strip()]
    return lines[max(len(lines) - count, 0) :]
