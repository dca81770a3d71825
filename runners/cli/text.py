"""Plain text on a terminal or in a pipe: colour where there is a terminal, tables that fit it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TextIO

import msgspec

STATUSES = {
    "completed": "32",
    "failed": "31",
    "stopped": "33",
    "queued": "35",
    "starting": "36",
    "running": "36",
    "stopping": "33",
}
_CODES = {"bold": "1", "dim": "2", "warning": "33", **STATUSES}


class Column(NamedTuple):
    """`spare` columns go first where the terminal is too narrow, the highest of them first."""

    head: str
    right: bool = False
    spare: int = 0


def is_terminal(stream: TextIO) -> bool:
    """Whether a person looks at it on a terminal that can be painted on."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def painted(text: str, style: str, stream: TextIO | None = None) -> str:
    """`text` in a style (or the colour of a status); plain in pipes and under NO_COLOR."""
    code = _CODES.get(style)
    if code is None or os.environ.get("NO_COLOR") or not is_terminal(stream or sys.stdout):
        return text
    return f"\x1b[{code}m{text}\x1b[0m"


def bar(share: float, width: int) -> tuple[str, str]:
    """What is done and what is left, together `width` cells."""
    halves = round(2 * width * share)
    done = "━" * (halves // 2) + "╸" * (halves % 2)
    return done, "─" * (width - len(done))


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]], indent: str = "") -> str:
    """Lines under a head; on a terminal, spare columns are left out until it fits."""
    room = shutil.get_terminal_size().columns if is_terminal(sys.stdout) else None
    head, *lines = aligned(columns, rows, None if room is None else room - len(indent))
    return "\n".join([indent + painted(head, "dim"), *(indent + _coloured(x) for x in lines)])


def aligned(
    columns: Sequence[Column], rows: Iterable[Sequence[str]], room: int | None = None
) -> list[str]:
    """The head and the rows with their cells under each other, at most `room` wide if it can be."""
    lines = [[column.head for column in columns], *rows]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    kept = list(range(len(columns)))
    while room is not None and sum(widths[i] + 2 for i in kept) - 2 > room:
        last = max(reversed(kept), key=lambda i: columns[i].spare)
        if not columns[last].spare:
            break
        kept.remove(last)
    pads = [str.rjust if column.right else str.ljust for column in columns]
    return ["  ".join(pads[i](line[i], widths[i]) for i in kept).rstrip() for line in lines]


def fields(pairs: Iterable[tuple[str, str]], indent: str = "  ") -> str:
    """ "name  value" lines with the values under each other; empty ones are left out."""
    pairs = [(name, value) for name, value in pairs if value]
    width = max((len(name) for name, _ in pairs), default=0)
    lines = []
    for name, value in pairs:
        first, *rest = value.splitlines()
        lines.append(f"{indent}{painted(name.ljust(width), 'dim')}  {first}")
        lines += [f"{indent}{' ' * width}  {line}" for line in rest]
    return "\n".join(lines)


def say(text: str, style: str = "") -> None:
    """Talk: to stderr."""
    print(painted(text, style, sys.stderr), file=sys.stderr, flush=True)


def print_json(data: object) -> None:
    """One JSON value on stdout; what is no number becomes null."""
    print(msgspec.json.format(msgspec.json.encode(data), indent=2).decode(), flush=True)


def _coloured(line: str) -> str:
    """The first word that is a status in its colour."""
    for word in line.split():
        if word in STATUSES:
            return line.replace(f" {word}", f" {painted(word, word)}", 1)
    return line
