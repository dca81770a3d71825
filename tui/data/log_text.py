"""Turn a raw line of a log into styled text, as a terminal would have displayed it."""

from __future__ import annotations

import re

from rich.ansi import AnsiDecoder
from rich.style import Style
from rich.text import Text

LIMIT = 2_000  # most characters shown of a line
TAB = 8
HIDDEN = "·"
FAILED, WARNED = Style(color="red"), Style(color="yellow")

# ECMA-48: control sequences, control strings (titles, links), and escapes of two bytes.
_ESCAPE = re.compile(
    r"(\x1b\[[0-9;]{0,64}m)|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"
    r"|\x1b[ -/]*[0-~]"
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# A progress bar is redrawn after a carriage return or after backspaces.
_REDRAWN = re.compile(r"\r|\x08{2,}")
# Control characters except tab and escape, and those that change the writing direction.
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1a\x1c-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_STRAY = re.compile(r"\x1b(?!\[[0-9;]*m)")

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
    text = _ESCAPE.sub(lambda match: match[1] or "", raw.decode(errors="replace"))
    text = _STRAY.sub(HIDDEN, _CONTROL.sub(HIDDEN, _last_state(text)))
    line = AnsiDecoder().decode_line(text) if "\x1b" in text else Text(text)
    line.no_wrap = True
    line.end = ""
    if "\t" in text:
        line.expand_tabs(TAB)
    _tint(line)
    return _cut(line, left_out)


def _last_state(text: str) -> str:
    states = [state for state in _REDRAWN.split(text) if _COLOUR.sub("", state).strip()]
    return states[-1] if states else ""


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
