"""A log file of any size, read as lines. Only the lines that are asked for are held in memory."""

from __future__ import annotations

import contextlib
import os
import re
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rich.text import Text

from distrain.runners.records.logs import open_log
from distrain.runners.system.files import require_regular
from distrain.tui.data.log_text import clean_line

BLOCK = 1 << 16  # bytes per entry of the index: 1.2 MB for a log of 10 GB
TAIL = 1 << 22  # bytes at the end of the file that are indexed first
STRIDE = 1 << 23  # most bytes that one call reads
WINDOW = 1 << 20  # bytes that are searched between two points where a search can be cancelled
PIECE = 1 << 15  # most bytes of a line that are shown
FINGERPRINT = 64  # bytes before the end that identify the file


class FileChange(NamedTuple):
    """What `update` found. `replaced`: the path names another file or the file was truncated, so
    that line numbers start again.
    """

    changed: bool
    replaced: bool


class LogFile:
    """The lines of a log, numbered from 0.

    The end of a large file is indexed first. Until `is_complete`, line 0 is the first line of that
    part; `read_earlier` returns how much line numbers change. A missing file counts as empty;
    `problem` holds the reason why a file cannot be read. Not thread-safe.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem = ""
        self._file = -1
        self._stamp: object = None
        self._size = 0
        self._fingerprint = b""
        self._index = _Index()
        self._earlier: _Index | None = None

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1
        self._size = 0
        self._fingerprint = b""
        self._index = _Index()
        self._earlier = None

    @property
    def line_count(self) -> int:
        """Return the number of indexed lines, with a last line that has no newline yet."""
        has_open_line = bool(self._fingerprint) and not self._fingerprint.endswith(b"\n")
        return self._index.newlines + 1 if has_open_line else self._index.newlines

    @property
    def is_complete(self) -> bool:
        """Return whether all lines have their final numbers."""
        return self._earlier is None

    @property
    def has_more(self) -> bool:
        """Return whether the file has bytes that are not indexed yet."""
        return self._earlier is not None or self._index.end < self._size

    # --- the index ------------------------------------------------------------------------------

    def update(self) -> FileChange:
        """Index what was written since the last call, at most STRIDE bytes.

        An unchanged file costs one `stat`.
        """
        try:
            found = os.lstat(self.path)
            require_regular(found)
            stamp = found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
            if stamp == self._stamp and self._index.end >= found.st_size:
                return FileChange(False, False)
            replaced = self._file < 0 or not self._is_same(found)
            if replaced:
                self._open(found.st_size)
        except OSError as error:
            return self._close_after(error)
        self._stamp = stamp
        self._size = found.st_size
        return FileChange(self._index_new(found.st_size - self._index.end) or replaced, replaced)

    def read_earlier(self) -> int:
        """Index STRIDE more bytes of the part before the end.

        Once that part is done, return the amount to add to all line numbers known so far; until
        then return 0.
        """
        earlier = self._earlier
        if earlier is None:
            return 0
        start = self._index.first
        data = self._read(earlier.end, min(start, earlier.end + STRIDE))
        earlier.add(data)
        if earlier.end < start and data:
            return 0
        shift = earlier.newlines
        earlier.extend(self._index)
        self._index = earlier
        self._earlier = None
        return shift

    def _is_same(self, found: os.stat_result) -> bool:
        opened = os.fstat(self._file)
        end = self._index.end
        return (
            (opened.st_dev, opened.st_ino) == (found.st_dev, found.st_ino)
            and found.st_size >= end
            and self._read(end - len(self._fingerprint), end) == self._fingerprint
        )

    def _open(self, size: int) -> None:
        self.close()
        with open_log(self.path) as file:
            self._file = os.dup(file.fileno())
        self.problem = ""
        first = max(0, size - TAIL) // BLOCK * BLOCK
        self._index = _Index(first)
        self._earlier = _Index() if first else None

    def _close_after(self, error: OSError) -> FileChange:
        problem = "" if isinstance(error, FileNotFoundError) else str(error.strerror)
        changed = self._file >= 0 or problem != self.problem
        self.close()
        self._stamp = None
        self.problem = problem
        return FileChange(changed, changed)

    def _index_new(self, size: int) -> bool:
        end = self._index.end
        data = self._read(end, end + min(size, STRIDE))
        self._index.add(data)
        self._fingerprint = (self._fingerprint + data[-FINGERPRINT:])[-FINGERPRINT:]
        return bool(data)

    def _read(self, start: int, end: int) -> bytes:
        """Return fewer bytes if the file was truncated meanwhile or cannot be read any more."""
        with contextlib.suppress(OSError):
            return os.pread(self._file, max(0, end - start), start)
        return b""

    # --- lines ----------------------------------------------------------------------------------

    def lines(self, first: int, count: int) -> list[Text]:
        """Return up to `count` lines from line `first` on, cleaned for display."""
        found: list[Text] = []
        start = self._start_of(first)
        data = b""
        at = start
        for number in range(max(first, 0), min(first + count, self.line_count)):
            stop = data.find(b"\n", start - at)
            if stop < 0:
                data = self._read(start, min(start + PIECE, self._index.end))
                at = start
                stop = data.find(b"\n")
            if stop >= 0:
                found.append(clean_line(data[start - at : stop]))
                start = at + stop + 1
            else:
                stop = self._start_of(number + 1)
                found.append(self._long_line(data, start, stop))
                start = stop
        return found

    def _long_line(self, beginning: bytes, start: int, stop: int) -> Text:
        # A progress bar shows its last state, any other line its beginning.
        ended = self._read(max(start, stop - PIECE), stop)
        if ended.endswith(b"\n"):
            stop -= 1
        ended = ended.rstrip(b"\r\n")
        if b"\r" in ended or b"\b\b" in ended:
            return clean_line(ended)
        return clean_line(beginning, max(0, stop - start - len(beginning)))

    def _start_of(self, line: int) -> int:
        index = self._index
        if line <= 0:
            return index.first
        if line > index.newlines:
            return index.end
        block = bisect_left(index.before, line) - 1
        start = index.first + block * BLOCK
        data = self._read(start, start + BLOCK)
        at = -1
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
        """Yield the numbers of the lines that contain `words`, ignoring case, from `line` on.

        Yield None after each WINDOW of bytes, so that the caller can cancel the search.
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
                end = min(start + WINDOW, self._index.end)  # the file may grow in between
                yield start, end
                start = end


class _Index:
    """The number of lines that end before each block of a part of a file."""

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
    """Return a pattern for bytes in ASCII lower case, and the most bytes that it matches."""
    spellings = [
        [
            spelling.encode(errors="replace")
            for spelling in dict.fromkeys((char.lower(), char.upper()))
        ]
        if not char.isascii()
        else [char.lower().encode()]
        for char in words
    ]
    parts = [b"|".join(re.escape(spelling) for spelling in each) for each in spellings]
    pattern = b"".join(b"(?:%s)" % part if b"|" in part else part for part in parts)
    return re.compile(pattern), sum(max(map(len, each)) for each in spellings)
