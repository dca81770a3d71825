"""Text on a terminal or in a pipe: colours on a terminal only, tables that fit its width."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TextIO

import msgspec

from distrain.runners.formatting import INVISIBLE

STATUS_COLOURS = {
    "completed": "32",
    "failed": "31",
    "stopped": "33",
    "queued": "35",
    "starting": "36",
    "running": "36",
    "stalled": "33",
    "recovering": "35",
    "stopping": "33",
}
_ANSI_CODES = {"bold": "1", "dim": "2", "warning": "33", **STATUS_COLOURS}
# JSON itself escapes the other control characters.
_NOT_IN_JSON = re.compile(f"[{INVISIBLE}]")
_GAP = "  "  # between two columns


class TextColumn(NamedTuple):
    """A column of a text table.

    Where the terminal is too narrow, columns are dropped in descending order of `drop_order`;
    those with 0 always stay. A last column with `least` is cut to that width before it is dropped.
    """

    title: str
    right: bool = False
    drop_order: int = 0
    least: int = 0


def is_terminal(stream: TextIO) -> bool:
    """Return whether the stream is a terminal that can be repainted."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str, stream: TextIO | None = None) -> str:
    """Return `text` in a style or in the colour of a status.

    It stays plain if `stream` (stdout by default) is not a terminal, and with NO_COLOR.
    """
    code = _ANSI_CODES.get(style)
    if code is None or os.environ.get("NO_COLOR") or not is_terminal(stream or sys.stdout):
        return text
    return f"\x1b[{code}m{text}\x1b[0m"


def progress_bar(fraction: float, width: int) -> tuple[str, str]:
    """Return the done and the remaining part of a bar that is `width` cells wide in total."""
    half_cells = round(2 * width * fraction)
    done = "━" * (half_cells // 2)
    if half_cells % 2:
        done += "╸"
    return done, "─" * (width - len(done))


def format_table(
    columns: Sequence[TextColumn], rows: Iterable[Sequence[str]], indent: str = ""
) -> str:
    """Return a table with a header line; on a terminal, columns are dropped until it fits."""
    width = None
    if is_terminal(sys.stdout):
        width = shutil.get_terminal_size().columns - len(indent)
    header, *lines = align_columns(columns, rows, width)
    return "\n".join(
        [indent + paint(header, "dim"), *(indent + _colour_status(line) for line in lines)]
    )


def align_columns(
    columns: Sequence[TextColumn], rows: Iterable[Sequence[str]], width: int | None = None
) -> list[str]:
    """Return the header and the rows with aligned cells.

    Columns are dropped until the lines are at most `width` characters long, if they can be.
    """
    lines = [[column.title for column in columns], *rows]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    kept = list(range(len(columns)))
    while width is not None and (excess := _line_length(widths, kept) - width) > 0:
        last = kept[-1]
        if columns[last].least and widths[last] - excess >= columns[last].least:
            widths[last] -= excess
            break
        next_dropped = max(reversed(kept), key=lambda i: columns[i].drop_order)
        if columns[next_dropped].drop_order == 0:
            break
        kept.remove(next_dropped)
    align = [str.rjust if column.right else str.ljust for column in columns]
    return [
        _GAP.join(align[i](_cut(line[i], widths[i]), widths[i]) for i in kept).rstrip()
        for line in lines
    ]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _line_length(widths: Sequence[int], kept: Sequence[int]) -> int:
    return sum(widths[i] for i in kept) + len(_GAP) * (len(kept) - 1)


def format_fields(fields: Iterable[tuple[str, str]], indent: str = "  ") -> str:
    """Return "name  value" lines with aligned values; fields without a value are left out."""
    filled = [(name, value) for name, value in fields if value]
    width = max((len(name) for name, _ in filled), default=0)
    lines = []
    for name, value in filled:
        first, *rest = value.splitlines()
        lines.append(f"{indent}{paint(name.ljust(width), 'dim')}{_GAP}{first}")
        lines += [f"{indent}{' ' * width}{_GAP}{line}" for line in rest]
    return "\n".join(lines)


def print_message(text: str, style: str = "") -> None:
    """Print a message for people to stderr; stdout is for data."""
    print(paint(text, style, sys.stderr), file=sys.stderr, flush=True)


def print_json(data: object) -> None:
    """Print one JSON value to stdout; NaN and infinity become null."""
    print(format_json(data), flush=True)


def format_json(data: object) -> str:
    """Return one JSON value over several lines, with escapes for what could control a terminal."""
    text = msgspec.json.format(msgspec.json.encode(data), indent=2).decode()
    return _NOT_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _colour_status(line: str) -> str:
    """Return the line with the first word that is a status in its colour."""
    for word in line.split():
        if word in STATUS_COLOURS:
            return line.replace(f" {word}", f" {paint(word, word)}", 1)
    return line
