"""Characters for terminals and fonts that lack some: plots in half blocks, or in ASCII.

Plots are drawn in Braille dots. What such a terminal cannot show is replaced by the nearest
character that it can.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from distrain.tui.marks import RUN_SYMBOLS, SHAPES

Characters = Literal["auto", "braille", "blocks", "ascii"]
_UPPER, _LOWER = 0x01 | 0x02 | 0x08 | 0x10, 0x04 | 0x40 | 0x20 | 0x80  # dots of half a cell
_LEFT, _RIGHT = 0x01 | 0x02 | 0x04 | 0x40, 0x08 | 0x10 | 0x20 | 0x80
_EIGHTHS = "▁▂▃▄▅▆▇█"
_MARKS = SHAPES + RUN_SYMBOLS + "○▴▾"
# The characters of a PC from before Unicode, which the Linux console has: code page 437.
_BLOCK_MARKS = dict(zip(_MARKS, "•■▲♦▼☼♣♠▲▼♦☼♣►◄■○▲▼", strict=True))
_ASCII_MARKS = dict(zip(_MARKS + "┤│└─┬", "o#^&v*+x^v&*+><%O^v+|+-+", strict=True))


def choose(wanted: Characters, environment: Mapping[str, str]) -> Characters:
    """Return the wanted characters; for "auto" those that the terminal shows, as far as known."""
    if wanted != "auto":
        return wanted
    names = ("LC_ALL", "LC_CTYPE", "LANG")
    locale = next((value for name in names if (value := environment.get(name))), "UTF-8").upper()
    if "UTF" not in locale:
        return "ascii"
    return "blocks" if environment.get("TERM") == "linux" else "braille"


def replacements(characters: Characters) -> dict[int, str]:
    """Return a table for `str.translate`."""
    if characters == "blocks":
        dots = {dot: _half_block(dot) for dot in range(1, 256)}
        return _table(dots, "  ▄▄▄▄██", _BLOCK_MARKS)
    if characters == "ascii":
        dots = {dot: _ascii(dot) for dot in range(1, 256)}
        return _table(dots, "   #####", _ASCII_MARKS)
    return {}


def _table(dots: Mapping[int, str], eighths: str, marks: Mapping[str, str]) -> dict[int, str]:
    found = {0x2800 + dot: character for dot, character in dots.items()}
    return found | str.maketrans(dict(zip(_EIGHTHS, eighths, strict=True)) | dict(marks))


def _half_block(dots: int) -> str:
    if dots.bit_count() == 1:
        return "·"
    upper, lower = dots & _UPPER, dots & _LOWER
    return "█" if upper and lower else "▀" if upper else "▄"


def _ascii(dots: int) -> str:
    if dots & _LEFT == _LEFT or dots & _RIGHT == _RIGHT:
        return "|"
    if dots.bit_count() == 1:
        return "."
    upper, lower = dots & _UPPER, dots & _LOWER
    return ":" if upper and lower else "'" if upper else "."
