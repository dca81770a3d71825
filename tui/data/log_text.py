"""Turn a raw line of a log into styled text, as a terminal would have displayed it."""

from __future__ import annotations

import re

from rich.ansi import AnsiDecoder
from rich.style import Style
from rich.text import Text

from distrain.runners import formatting

LIMIT = 2_000  # most characters shown of a line
TAB = 8
FAILED, WARNED = Style(color="red"), Style(color="yellow")

_FAILURE = re.compile(
    r"Traceback \(most recent call last|^(\[\w+\]:?)?\s*File \".*\", line \d+"
    r"|\b[A-Za-z_.]*(Error|Exception|Interrupt)(:|$)"
    r"|\b(ERROR|CRITICAL|FATAL|Segmentation fault|Aborted|core dumped|out of memory)\b"
)
_WARNING = re.compile(r"\b(WARN|WARNING|[A-Za-z]*Warning)\b")


def clean_line(raw: bytes, left_out: int = 0) -> Text:
    """Return a line, without its newline, as styled text of at most LIMIT characters.

    `left_out` is the number of bytes of the line that the caller did not read.
    """
    text = formatting.terminal_line(raw.decode(errors="replace"))
    line = AnsiDecoder().decode_line(text) if "\x1b" in text else Text(text)
    line.no_wrap = True
    line.end = ""
    if "\t" in text:
        line.expand_tabs(TAB)
    _tint(line)
    return _cut(line, left_out)


def _tint(line: Text) -> None:
    start = line.plain[:LIMIT]
    if _FAILURE.search(start):
        line.stylize_before(FAILED)
    elif _WARNING.search(start):
        line.stylize_before(WARNED)


def _cut(line: Text, left_out: int) -> Text:
    beyond = max(len(line) - LIMIT, 0)
    if not beyond and not left_out:
        return line
    # Bytes that were not read count as characters: how many characters they are is unknown.
    shown = line[:LIMIT] if beyond else line
    return shown.append(f"… (+{beyond + left_out:,} characters)", Style(dim=True))
