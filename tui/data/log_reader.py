"""Read pages of a run's logs, one log at a time, and search in them."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.text import Text

from distrain.runners.records.logs import log_path, open_log
from distrain.tui.data.log_file import LogFile

SEARCH_S = 0.05  # longest time that a search runs before the visible lines are read again
SIZES_S = 2.0  # between two checks of which logs are empty
LIVE_S, ENDED_S = 0.25, 2.0  # between two reads of the log of a live run, of an ended one
PAGE_S = 0.1  # between two pages of a log that grows fast
PROCESS_LOGS = ("launcher", "job", "supervisor")


class LogSearch(NamedTuple):
    """A search from a line on, that goes on from the other end of the log if it `wraps`.

    A new `number` makes it a new search.
    """

    number: int
    words: str
    line: int
    backwards: bool = False
    wraps: bool = True


class PageRequest(NamedTuple):
    """The `height` lines of a log from line `first` on; None for the last ones."""

    name: str
    first: int | None
    height: int
    search: LogSearch | None = None


class SearchResult(NamedTuple):
    """The line that a search has found, None for no line. `wrapped`: it passed the log's end."""

    search: LogSearch
    line: int | None
    wrapped: bool


class MatchCount(NamedTuple):
    """How many lines of a log a search matches, and the number of the found one among them."""

    number: int  # of the search
    total: int
    position: int


class LogPage(NamedTuple):
    """Lines of a log, from number `first` of `total`.

    `shift` is to be added to line numbers of earlier pages; `replaced` means that earlier pages
    are void. Until `complete`, the log has more lines before line 0. `empty` holds the names of
    the logs without a line. `counted` comes later than `found`, because it reads the whole log.
    """

    name: str
    first: int
    lines: list[Text]
    total: int
    shift: int
    replaced: bool
    complete: bool
    problem: str
    empty: frozenset[str]
    found: SearchResult | None
    counted: MatchCount | None = None


class LogReader:
    """Reads one log of a run at a time. Not thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: LogFile | None = None
        self._last_request: PageRequest | None = None
        self._search: LogSearch | None = None
        self._matches: Iterator[int | None] = iter(())
        self._wrapped = False
        self._counting: tuple[LogSearch, int, Iterator[int | None]] | None = None
        self._count = (0, 0)  # lines so far, and of these up to the found one
        self._empty: frozenset[str] = frozenset()
        self._sizes_checked = 0.0

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    @property
    def has_work(self) -> bool:
        """Return whether the log has more to read or a search goes on."""
        return self._file is not None and (
            self._file.has_more or self._search is not None or self._counting is not None
        )

    def read(self, request: PageRequest, names: Sequence[str]) -> LogPage | None:
        """Return the requested lines, or None if nothing has changed since the last call.

        `names` are all logs of the run.
        """
        file = self._open(request.name)
        change = file.update()
        shift = file.read_earlier()
        last = self._last_request
        if change.replaced:
            self._search = self._counting = None
        if request.search is not None and (last is None or request.search != last.search):
            self._start_search(request.search)
        elif shift and self._search is not None:
            self._start_search(self._search._replace(line=self._search.line + shift))
        found = self._continue_search(file) if self._search and file.is_complete else None
        counted = self._continue_count() if not self._search else None
        if found is not None and found.line is not None:
            self._start_count(file, found.search, found.line)
        sizes_changed = self._check_sizes(names)
        is_new_request = last is None or request[:3] != last[:3]
        self._last_request = request
        if not (change.changed or shift or found or counted or sizes_changed or is_new_request):
            return None
        end = file.line_count
        start = end - request.height if request.first is None else request.first + shift
        first = max(0, start)
        return LogPage(
            name=request.name,
            first=first,
            lines=file.lines(first, request.height),
            total=end,
            shift=shift,
            replaced=change.replaced,
            complete=file.is_complete,
            problem=file.problem,
            empty=self._empty,
            found=found,
            counted=counted,
        )

    def _open(self, name: str) -> LogFile:
        if self._file is None or self._last_request is None or self._last_request.name != name:
            self.close()
            self._file = LogFile(log_path(self._folder, name))
            self._search = self._counting = None
        return self._file

    def _start_search(self, search: LogSearch) -> None:
        self._search = search
        self._counting = None
        self._wrapped = False
        self._matches = iter(())
        if self._file is not None:
            self._matches = self._file.find(search.words, search.line, search.backwards)

    def _continue_search(self, file: LogFile) -> SearchResult | None:
        search = self._search
        until = time.monotonic() + SEARCH_S
        while search is not None and time.monotonic() < until:
            line = next(self._matches, -1)
            if line is None:
                continue
            if line < 0 and search.wraps and not self._wrapped:
                self._wrapped = True
                start = file.line_count - 1 if search.backwards else 0
                self._matches = file.find(search.words, start, search.backwards)
                continue
            self._search = None
            return SearchResult(search, line if line >= 0 else None, self._wrapped)
        return None

    def _start_count(self, file: LogFile, search: LogSearch, line: int) -> None:
        self._counting = search, line, file.find(search.words, 0)
        self._count = (0, 0)

    def _continue_count(self) -> MatchCount | None:
        """Return the number of lines that match once all are counted."""
        until = time.monotonic() + SEARCH_S
        while self._counting is not None and time.monotonic() < until:
            search, found, matches = self._counting
            line = next(matches, -1)
            if line is None:
                continue
            total, position = self._count
            if line >= 0:
                self._count = total + 1, position + (line <= found)
                continue
            self._counting = None
            return MatchCount(search.number, total, position)
        return None

    def _check_sizes(self, names: Sequence[str]) -> bool:
        """Return whether other logs are empty than at the last check."""
        now = time.monotonic()
        if now - self._sizes_checked < SIZES_S:
            return False
        self._sizes_checked = now
        before = self._empty
        self._empty = frozenset(name for name in names if not _size(log_path(self._folder, name)))
        return self._empty != before


class LogFollower:
    """Reads the page that was requested last until `stop`.

    `run` is the body of a thread; it calls `deliver` with each new page and reads nothing while
    `is_watched` returns False. The other methods may be called from any thread.
    """

    def __init__(
        self,
        folder: Path,
        deliver: Callable[[LogPage], object],
        is_watched: Callable[[], bool],
    ) -> None:
        self._folder = folder
        self._deliver = deliver
        self._is_watched = is_watched
        self._requested: tuple[PageRequest, Sequence[str], bool] | None = None
        self._wake = threading.Event()
        self._stopped = threading.Event()

    def request(self, request: PageRequest, names: Sequence[str], live: bool) -> None:
        """Read this page next; `names` are all logs of the run, `live` whether it still runs."""
        self._requested = request, names, live
        self._wake.set()

    def stop(self) -> None:
        self._stopped.set()
        self._wake.set()

    def run(self) -> None:
        reader = LogReader(self._folder)
        while not self._stopped.is_set():
            self._wake.clear()
            requested = self._requested
            if requested is None or not self._is_watched():
                self._wake.wait(LIVE_S)
                continue
            request, names, live = requested
            page = reader.read(request, names)
            if page is not None:
                self._deliver(page)
            if not reader.has_work:
                self._wake.wait(LIVE_S if live else ENDED_S)
            elif page is not None:
                self._wake.wait(PAGE_S)
        reader.close()


def save_log(folder: Path, name: str, target: Path) -> int:
    """Copy a log of a run to a new file and return its size in bytes.

    Raises FileExistsError if the target exists, and OSError.
    """
    with open_log(log_path(folder, name)) as source, target.open("xb") as copy:
        shutil.copyfileobj(source, copy, 1 << 20)
        return copy.tell()


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0
