"""The end of a file that may be large and still grow."""

from __future__ import annotations

from pathlib import Path

CHUNK = 1 << 14


def last_lines(path: Path, count: int) -> list[str]:
    """At most so many last lines that are not empty; none where there is no file."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - CHUNK))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[max(len(lines) - count, 0) :]
