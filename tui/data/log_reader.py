"""What the log pane's thread does: looks into a run's logs, one of them at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rich.text import Text

from tui.data.log_file import LogFile

SEARCH_S = 0.05  # for how long a search goes on before the lines in sight are looked at again
SIZES_S = 2.0  # between two looks at which logs are empty
OTHERS = ("launcher", "job", "supervisor")


class Hunt(NamedTuple):
    """A search from a line on, and then from the other end unless it is `onwards` only; each is a
    new one, by its number.
    """

    number: int
    words: str
    line: int
    backwards: bool = False
    onwards: bool = False


class Ask(NamedTuple):
    """What is to be seen: so many lines of a log from the first one on, or its last ones."""

    name: str
    first: int | None
    height: int
    hunt: Hunt | None = None


class Found(NamedTuple):
    """Where the words are, `around` the end of the log maybe; nowhere where `line` is None."""

    hunt: Hunt
    line: int | None
    around: bool


class Page(NamedTuple):
    """Lines of a log. `raised` is what was added to the numbers of lines that were given before,
    `anew` tells that those are of no use any more. As long as it is not `complete`, more lines
    come before the first. `empty` are the names of the logs without a line.
    """

    name: str
    first: int
    lines: list[Text]
    total: int
    raised: int
    anew: bool
    complete: bool
    problem: str
    empty: frozenset[str]
    found: Found | None


class Reader:
    """For one thread. `look` gives a page where there is something new to see."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: LogFile | None = None
        self._asked: Ask | None = None
        self._hunt: Hunt | None = None
        self._trail: Iterator[int | None] = iter(())
        self._around = False
        self._empty: frozenset[str] = frozenset()
        self._sized = 0.0

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    @property
    def busy(self) -> bool:
        """Whether there is work left, so that one should look again at once."""
        return self._file is not None and (self._file.behind or self._hunt is not None)

    def look(self, ask: Ask, names: list[str]) -> Page | None:
        """The lines that were asked for, if they or anything else changed since the last call."""
        file = self._file_of(ask.name)
        growth = file.grow()
        raised = file.read_on()
        if growth.anew:
            self._hunt = None
        if ask.hunt is not None and (self._asked is None or ask.hunt != self._asked.hunt):
            self._begin(ask.hunt)
        elif raised and self._hunt is not None:
            self._begin(self._hunt._replace(line=self._hunt.line + raised))
        found = self._search(file) if self._hunt and file.complete else None
        dimmed = self._look_at_sizes(names)
        unseen = self._asked is None or ask[:3] != self._asked[:3]
        self._asked = ask
        if not (growth.changed or raised or found or dimmed or unseen):
            return None
        first = max(0, file.count - ask.height if ask.first is None else ask.first + raised)
        return Page(
            name=ask.name,
            first=first,
            lines=file.lines(first, ask.height),
            total=file.count,
            raised=raised,
            anew=growth.anew,
            complete=file.complete,
            problem=file.problem,
            empty=self._empty,
            found=found,
        )

    def _file_of(self, name: str) -> LogFile:
        if self._file is None or self._asked is None or self._asked.name != name:
            self.close()
            self._file, self._hunt = LogFile(path_of(self._folder, name)), None
        return self._file

    def _begin(self, hunt: Hunt) -> None:
        self._hunt, self._around, self._trail = hunt, False, iter(())
        if self._file is not None:
            self._trail = self._file.find(hunt.words, hunt.line, hunt.backwards)

    def _search(self, file: LogFile) -> Found | None:
        hunt, until = self._hunt, time.monotonic() + SEARCH_S
        while hunt is not None and time.monotonic() < until:
            line = next(self._trail, -1)
            if line is None:
                continue
            if line < 0 and not (self._around or hunt.onwards):
                self._around = True
                start = file.count - 1 if hunt.backwards else 0
                self._trail = file.find(hunt.words, start, hunt.backwards)
                continue
            self._hunt = None
            return Found(hunt, line if line >= 0 else None, self._around)
        return None

    def _look_at_sizes(self, names: list[str]) -> bool:
        now = time.monotonic()
        if now - self._sized < SIZES_S:
            return False
        self._sized = now
        empty = frozenset(name for name in names if not _size(path_of(self._folder, name)))
        changed, self._empty = empty != self._empty, empty
        return changed


def path_of(folder: Path, name: str) -> Path:
    """The log of that name in a run's folder."""
    return folder / "logs" / f"{name}.log"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
