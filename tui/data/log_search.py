"""The search that a person makes in a log: its requests, and what is known of its matches."""

from __future__ import annotations

from distrain.tui.data.log_reader import LogPage, LogSearch, SearchResult


class CurrentSearch:
    """Numbers the searches, and takes the results of the newest from the pages that are read."""

    def __init__(self) -> None:
        self._number = 0
        self._note = ""  # in place of a match
        self._continued = ""
        self._count = ""
        self._lines_without_match: int | None = None

    def start(
        self, words: str, line: int, backwards: bool = False, *, from_match: bool
    ) -> LogSearch:
        """Return a search from a line on; until its result arrives, `from_match` stays visible."""
        self.cancel()
        self._note = "" if from_match else "searching …"
        return LogSearch(self._number, words, line, backwards)

    def extend(self, words: str) -> LogSearch:
        """Return a search in the lines that were written since the last one found nothing."""
        line = max((self._lines_without_match or 0) - 1, 0)  # that one may have been incomplete
        self._lines_without_match = None
        self._number += 1
        return LogSearch(self._number, words, line, wraps=False)

    def cancel(self) -> None:
        """Ignore results that arrive from now on."""
        self._number += 1
        self.forget()

    def forget(self) -> None:
        """Forget what was found, because other lines are shown than those that were searched."""
        self._note = self._continued = self._count = ""
        self._lines_without_match = None

    def take(self, page: LogPage, live: bool) -> SearchResult | None:
        """Return the result of the newest search if this page brings it."""
        if page.counted is not None and page.counted.number == self._number:
            self._count = f"match {page.counted.position:,} of {page.counted.total:,}"
        result = page.found
        if result is None or result.search.number != self._number:
            return None
        if result.line is None:
            self._lines_without_match = page.total
            yet = " yet" if live else ""
            self._note = f"no match for “{result.search.words}” in this log{yet}"
        else:
            end = "end" if result.search.backwards else "top"
            self._continued = f", continued from the {end}" if result.wrapped else ""
        return result

    def may_match_now(self, total: int) -> bool:
        """Return whether a log of `total` lines has grown since it had no match."""
        return self._lines_without_match is not None and total > self._lines_without_match

    def describe(self, found: int | None, total: int) -> list[str]:
        """Return the texts about the match at line `found`, or about its absence."""
        if found is None:
            texts = [self._note]
        else:
            texts = [f"line {found + 1:,} of {total:,}{self._continued}", self._count]
        return [text for text in texts if text]
