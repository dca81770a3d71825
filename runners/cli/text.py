"""Plain text on a terminal or in a pipe: colour where there is a terminal, tables that fit it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TextIO

import msgspec

_CODES = {
    "bold": "1",
    "dim": "2",
    "completed": "32",
    "failed": "31",
    "stopped": "33",
    "starting": "36",
    "running": "36",
    "stopping": "33",
    "warning": "33",
}


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


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]], indent: str = "") -> str:
    """Aligned lines with a head; on a terminal, spare columns are left out until it fits."""
    heads = [column.head for column in columns]
    lines = [heads, *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    kept = _fitting(columns, widths, len(indent))
    out = []
    for number, line in enumerate(lines):
        cells = [
            line[i].rjust(widths[i]) if columns[i].right else line[i].ljust(widths[i]) for i in kept
        ]
        text = indent + "  ".join(_coloured(cell) for cell in cells).rstrip()
        out.append(painted(text, "dim") if number == 0 else text)
    return "\n".join(out)


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


def say(text: str) -> None:
    """Talk: to stderr."""
    print(text, file=sys.stderr, flush=True)


def print_json(data: object) -> None:
    """One JSON value on stdout; what is no number becomes null."""
    print(msgspec.json.format(msgspec.json.encode(data), indent=2).decode(), flush=True)


def _coloured(cell: str) -> str:
    # Padding belongs outside of the colour, and only a status is coloured in a table.
    word = cell.strip()
    return cell.replace(word, painted(word, word)) if word in _CODES else cell


def _fitting(columns: Sequence[Column], widths: list[int], indent: int) -> list[int]:
    kept = list(range(len(columns)))
    if not is_terminal(sys.stdout):
        return kept
    room = shutil.get_terminal_size().columns
    while indent + sum(widths[i] + 2 for i in kept) - 2 > room:
        last = max(kept, key=lambda i: columns[i].spare)
        if not columns[last].spare:
            break
        kept.remove(last)
    return kept
