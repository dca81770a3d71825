"""A log of any size as lines. No more of it is held than is looked at."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rich.text import Text

from tui.data.log_text import clean

BLOCK = 1 << 16  # the index has one number for as many bytes: 1.2 MB for 10 GB
TAIL = 1 << 22  # bytes at the end that are read at once, whatever lies before them
STRIDE = 1 << 23  # bytes that one call reads at most
WINDOW = 1 << 20  # bytes that are searched between two moments at which a search can be given up
PIECE = 1 << 15  # bytes of a line that are looked at
PRINT = 64  # bytes before the end by which a file is known again


class Growth(NamedTuple):
    """`anew`: it is another file than before, or was emptied; numbers of lines start again."""

    changed: bool
    anew: bool


class LogFile:
    """Lines are numbered from 0. As long as it is not `complete`, only the end of the file is known
    and its first line has the number 0; `read_on` tells by how much numbers then change.

    For one thread. A file that is missing is empty; `problem` says why one cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem = ""
        self._file = -1
        self._stamp: object = None
        self._size = 0
        self._print = b""
        self._index = _Index()
        self._head: _Index | None = None

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file, self._size, self._print = -1, 0, b""
        self._index, self._head = _Index(), None

    @property
    def count(self) -> int:
        """Lines that are known, the last one also without its end."""
        return self._index.newlines + (bool(self._print) and not self._print.endswith(b"\n"))

    @property
    def complete(self) -> bool:
        """Whether all lines have their final numbers."""
        return self._head is None

    @property
    def behind(self) -> bool:
        """Whether more is there to be read than was."""
        return self._head is not None or self._index.end < self._size

    # --- what is known of it --------------------------------------------------------------------

    def grow(self) -> Growth:
        """Take note of what was written since; a stat where that is nothing, STRIDE at most."""
        try:
            found = os.stat(self.path)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(0, "it is not a file")
            stamp = found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
            if stamp == self._stamp and self._index.end >= found.st_size:
                return Growth(False, False)
            anew = self._file < 0 or not self._is_same(found)
            if anew:
                self._open(found.st_size)
        except OSError as error:
            return self._lose(error)
        self._stamp, self._size = stamp, found.st_size
        return Growth(self._take(found.st_size - self._index.end) or anew, anew)

    def read_on(self) -> int:
        """Read STRIDE more of what lies before the end. When all of it was read, gives the number
        that each line so far has to be raised by; else 0.
        """
        head = self._head
        if head is None:
            return 0
        start = self._index.first
        data = self._read(head.end, min(start, head.end + STRIDE))
        head.add(data)
        if head.end < start and data:
            return 0
        self._head, raised = None, head.newlines
        head.extend(self._index)
        self._index = head
        return raised

    def _is_same(self, found: os.stat_result) -> bool:
        mine, end = os.fstat(self._file), self._index.end
        return (
            (mine.st_dev, mine.st_ino) == (found.st_dev, found.st_ino)
            and found.st_size >= end
            and self._read(end - len(self._print), end) == self._print
        )

    def _open(self, size: int) -> None:
        self.close()
        self._file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        self.problem = ""
        first = max(0, size - TAIL) // BLOCK * BLOCK
        self._index, self._head = _Index(first), _Index() if first else None

    def _lose(self, error: OSError) -> Growth:
        problem = "" if isinstance(error, FileNotFoundError) else str(error.strerror)
        changed = self._file >= 0 or problem != self.problem
        self.close()
        self._stamp, self.problem = None, problem
        return Growth(changed, changed)

    def _take(self, size: int) -> bool:
        end = self._index.end
        data = self._read(end, end + min(size, STRIDE))
        self._index.add(data)
        self._print = (self._print + data[-PRINT:])[-PRINT:]
        return bool(data)

    def _read(self, start: int, end: int) -> bytes:
        """Less than was asked for where the file was cut meanwhile, or cannot be read any more."""
        with contextlib.suppress(OSError):
            return os.pread(self._file, max(0, end - start), start)
        return b""

    # --- lines ----------------------------------------------------------------------------------

    def lines(self, first: int, count: int) -> list[Text]:
        """At most so many lines, cleaned, from a number on."""
        found: list[Text] = []
        start = self._start_of(first)
        data, at = b"", start
        for number in range(max(first, 0), min(first + count, self.count)):
            stop = data.find(b"\n", start - at)
            if stop < 0:
                data, at = self._read(start, min(start + PIECE, self._index.end)), start
                stop = data.find(b"\n")
            if stop >= 0:
                found.append(clean(data[start - at : stop]))
                start = at + stop + 1
            else:
                stop = self._start_of(number + 1)
                found.append(self._long_line(data, start, stop))
                start = stop
        return found

    def _long_line(self, begun: bytes, start: int, stop: int) -> Text:
        """Of a progress bar the end is what counts, of other lines the beginning."""
        ended = self._read(max(start, stop - PIECE), stop)
        stop -= ended.endswith(b"\n")
        ended = ended.rstrip(b"\r\n")
        if b"\r" in ended or b"\b\b" in ended:
            return clean(ended)
        return clean(begun, max(0, stop - start - len(begun)))

    def _start_of(self, line: int) -> int:
        index = self._index
        if line <= 0:
            return index.first
        if line > index.newlines:
            return index.end
        block = bisect_left(index.before, line) - 1
        start = index.first + block * BLOCK
        data, at = self._read(start, start + BLOCK), -1
        for _ in range(line - index.before[block]):
            at = data.find(b"\n", at + 1)
            if at < 0:
                return index.end
        return start + at + 1

    def _line_of(self, offset: int) -> int:
        index = self._index
        block = (offset - index.first) // BLOCK
        return index.before[block] + self._read(index.first + block * BLOCK, offset).count(b"\n")

    # --- search ---------------------------------------------------------------------------------

    def find(self, words: str, line: int, backwards: bool = False) -> Iterator[int | None]:
        """Numbers of the lines that show these words in capitals or not, from a line on and with
        it, in either direction. In between comes None, again and again: a moment to give up.
        """
        pattern, width = _pattern(words)
        done = self._start_of(line + 1 if backwards else line)
        for start, end in self._windows(line, backwards):
            data = self._read(start, min(end + width - 1, self._index.end)).lower()
            places = [start + match.start() for match in pattern.finditer(data)]
            for place in reversed(places) if backwards else places:
                if place >= done if backwards else place < done:
                    continue
                number = self._line_of(place)
                done = self._start_of(number if backwards else number + 1)
                shown = any(words.lower() in text.plain.lower() for text in self.lines(number, 1))
                yield number if shown else None
            yield None

    def _windows(self, line: int, backwards: bool) -> Iterator[tuple[int, int]]:
        if backwards:
            end = self._start_of(line + 1)
            while end > self._index.first:
                start = max(self._index.first, end - WINDOW)
                yield start, end
                end = start
        else:
            start = self._start_of(line)
            while start < self._index.end:
                end = min(start + WINDOW, self._index.end)  # it may grow before the next one
                yield start, end
                start = end


class _Index:
    """How many lines end before each block of a part of a file."""

    def __init__(self, first: int = 0) -> None:
        self.first = self.end = first
        self.newlines = 0
        self.before = array("Q")

    def add(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            if self.end % BLOCK == 0:
                self.before.append(self.newlines)
            step = min(BLOCK - self.end % BLOCK, len(data) - at)
            self.newlines += data.count(b"\n", at, at + step)
            self.end += step
            at += step

    def extend(self, later: _Index) -> None:
        self.before.extend(self.newlines + before for before in later.before)
        self.newlines += later.newlines
        self.end = later.end


def _pattern(words: str) -> tuple[re.Pattern[bytes], int]:
    """What finds words in bytes whose ASCII letters are small, and the most bytes that takes."""
    spellings = [
        [spelt.encode(errors="replace") for spelt in dict.fromkeys((char.lower(), char.upper()))]
        if not char.isascii()
        else [char.lower().encode()]
        for char in words
    ]
    parts = [b"|".join(re.escape(spelt) for spelt in each) for each in spellings]
    pattern = b"".join(b"(?:%s)" % part if b"|" in part else part for part in parts)
    return re.compile(pattern), sum(max(map(len, each)) for each in spellings)
