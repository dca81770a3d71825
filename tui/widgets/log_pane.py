"""The logs of a run: a bar with their names, the lines of one of them, and a search."""

from __future__ import annotations

from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input

from distrain.runners import formatting
from distrain.tui import keymap
from distrain.tui.data.log_reader import PROCESS_LOGS, LogPage, LogSearch, PageRequest
from distrain.tui.data.log_search import CurrentSearch
from distrain.tui.keymap import LOG, LOG_SEARCH
from distrain.tui.widgets.log_tabs import log_tabs
from distrain.tui.widgets.log_view import LogView

CLIPBOARD = 48 << 10  # bytes: 64 KiB in base64, which common terminals accept (OSC 52)
BORDER = 6  # cells of the border that a title cannot use


class LogPane(Widget, can_focus=True):
    """Requests pages of the chosen log and shows those that it is given with `show_page`."""

    HELP = (
        "What the ranks, the launcher and the supervisor print. Empty logs are dim. The pane "
        "follows the end of the log until you scroll up; {log.follow} follows it again. › marks a "
        "line that continues to the right: press the arrow keys. {log.search} searches while you "
        "type; enter leaves the search line, then {search.next} and {search.previous} go to the "
        "other matches until escape ends the search. {app.copy} copies the lines selected with "
        "the mouse, or the visible lines."
    )
    BINDINGS = [  # noqa: RUF012
        *keymap.make_bindings(LOG, LOG_SEARCH),
        keymap.make_hidden_binding("y", "copy", "app.copy"),
        keymap.make_hidden_binding("escape", "leave"),
        keymap.make_hidden_binding("up", "scroll_by(-1)"),
        keymap.make_hidden_binding("down", "scroll_by(1)"),
        keymap.make_hidden_binding("pageup", "scroll_pages(-1)"),
        keymap.make_hidden_binding("pagedown,space", "scroll_pages(1)"),
        keymap.make_hidden_binding("home", "top"),
        keymap.make_hidden_binding("left", "scroll_sideways(-1)"),
        keymap.make_hidden_binding("right", "scroll_sideways(1)"),
    ]
    DEFAULT_CSS = """
    LogPane {
        layout: vertical;
        height: 1fr;
        border: round $foreground 30%;
        border-title-color: $text-muted;
        border-subtitle-color: $text-muted;
        padding: 0 1;
        &:focus, &:focus-within { border: round $accent; }
        & > Input { height: 1; background: $panel; }
    }
    """

    class PageRequested(Message):
        """The pane needs other lines of a log; `names` are all logs of the run."""

        def __init__(self, request: PageRequest, names: list[str], live: bool) -> None:
            super().__init__()
            self.request = request
            self.names = names
            self.live = live

    class PageRead(Message):
        """A thread has read a page."""

        def __init__(self, page: LogPage) -> None:
            super().__init__()
            self.page = page

    class SaveRequested(Message):
        """The user wants to save the log `name` as a file."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def __init__(self, *, id: str | None = None, classes: str = "") -> None:
        super().__init__(id=id, classes=classes)
        self._view = LogView()
        self._input = Input(placeholder="words to find · enter accepts · esc closes", compact=True)
        self._input.display = False
        self._names: list[str] = []
        self._chosen = "rank-0"
        self._is_chosen_by_person = False
        self._live = False
        self._request = PageRequest(self._chosen, None, 0)
        self._page: LogPage | None = None
        self._lines_seen = 0
        self._search = CurrentSearch()

    def compose(self) -> ComposeResult:
        yield self._view
        yield self._input

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(
            self, lambda _: self.call_after_refresh(self._paint)
        )

    def on_show(self) -> None:
        self._post_request()

    @property
    def is_displayed(self) -> bool:
        """Return whether the pane and its ancestors are displayed.

        Computed, because Textual does not send every Show and Hide.
        """
        return all(node.display for node in self.ancestors_with_self)

    @property
    def page(self) -> LogPage | None:
        """Return the newest page of the chosen log; None before it was read."""
        return self._page

    @property
    def names(self) -> list[str]:
        """Return the names of all logs."""
        return self._names

    @property
    def wants_suggestion(self) -> bool:
        """Return whether another log may be shown: nobody chose this one, and no rank wrote it."""
        has_lines = self._page is not None and self._page.total > 0
        return not (self._is_chosen_by_person or (has_lines and self._chosen not in PROCESS_LOGS))

    # --- what the screen calls ------------------------------------------------------------------

    def show(self, ranks: int, live: bool, scheduled: bool = False) -> None:
        """List the logs of a run with this many ranks; `scheduled` runs have a log of their job."""
        launcher, job, supervisor = PROCESS_LOGS
        of_ranks = [f"rank-{rank}" for rank in range(ranks)]
        names = [launcher, job, *of_ranks, supervisor]
        if not scheduled:
            names.remove(job)
        if (names, live) != (self._names, self._live):
            self._names = names
            self._live = live
            self._post_request()
            self._paint()

    def suggest(self, name: str | None) -> None:
        """Show another log unless the person has chosen one."""
        if name and not self._is_chosen_by_person:
            self.choose(name)

    def choose(self, name: str) -> None:
        """Show another log: "rank-0", "launcher", "job" or "supervisor"."""
        if name != self._chosen:
            self._chosen = name
            self._page = None
            self._search.forget()
            self._view.clear()
            self._lines_seen = 0
            self._request_page()
            if self._view.words:
                self._start_search(0)

    def show_page(self, page: LogPage) -> None:
        """Show what was read of the chosen log; pages of other logs are ignored."""
        if page.name != self._chosen:
            return
        if page.replaced:
            self._search.forget()
            self._lines_seen = 0
        self._page = page
        self._lines_seen += page.shift
        self._view.put(page)
        self._show_search(page)
        if self._view.lacks_lines:
            self._request_page()
        self._paint()

    def on_log_pane_page_read(self, event: PageRead) -> None:
        self.show_page(event.page)

    # --- requests -------------------------------------------------------------------------------

    def _request_page(self, search: LogSearch | None = None) -> None:
        """Request the visible lines; when not at the end, also a page before and after them."""
        view = self._view
        if search is None and self._request.name == self._chosen:
            search = self._request.search
        if view.following:
            self._request = PageRequest(self._chosen, None, view.height, search)
        else:
            first = max(0, view.top - view.height)
            self._request = PageRequest(self._chosen, first, 3 * view.height, search)
        self._post_request()
        self._paint()

    def _post_request(self) -> None:
        self.post_message(self.PageRequested(self._request, self._names, self._live))

    def on_log_view_moved(self) -> None:
        view = self._view
        requested = self._request.height if self._request.first is None else None
        if view.lacks_lines or requested != (view.height if view.following else None):
            self._request_page()
        self._paint()

    # --- border and notice ----------------------------------------------------------------------

    def _paint(self) -> None:
        if not self.is_mounted or not self.size:
            return
        if self._view.following:
            self._lines_seen = self._view.total
        empty = self._page.empty if self._page else frozenset()
        names = self._names or [self._chosen]
        room = self.outer_size.width - BORDER
        self._view.notice = self._notice()
        tabs = log_tabs(names, self._chosen, empty, room, self.background_colors[1])
        self._set_border_text("border_title", tabs)
        self._set_border_text("border_subtitle", Content(self._status()))

    def _set_border_text(self, attribute: str, content: Content) -> None:
        if getattr(self, attribute) != content.markup:
            setattr(self, attribute, content)

    def _notice(self) -> str:
        """Return the text of a pane without lines."""
        page = self._page
        title = self._chosen.replace("-", " ")
        if page is None or page.total:
            return ""
        if page.problem:
            return f"cannot read the log of {title}: {page.problem}"
        if self._chosen not in self._names:
            return "no rank has started yet" if self._live else "no rank was started"
        silent = f"{title} has printed nothing yet" if self._live else f"{title} printed nothing"
        return keymap.insert_keys(f"{silent} · {{log.after}} shows the next log", self.app)

    def _status(self) -> str:
        view = self._view
        page = self._page
        parts = self._search.describe(view.found, view.total)
        if page is None or not page.total:
            return " · ".join(parts)
        if not page.complete:
            parts.append("counting lines")
        elif view.following and not parts:
            parts.append(formatting.plural(view.total, "line"))
        elif not parts:
            parts.append(f"line {view.top + 1:,} of {view.total:,}")
        if not view.following:
            new_lines = view.total - self._lines_seen
            if new_lines > 0:
                parts.append(formatting.plural(new_lines, "new line"))
            key = keymap.insert_keys("{log.follow}", self.app)
            parts.append(f"{key} follows" if self._live else f"{key}: to the end")
        elif self._live:
            parts.append("following")
        return " · ".join(parts)

    # --- scrolling ------------------------------------------------------------------------------

    def action_scroll_by(self, lines: int) -> None:
        if self._input.has_focus:
            self.focus()
        else:
            self._view.scroll_to(y=self._view.top + lines, animate=False, force=True)

    def action_scroll_pages(self, pages: int) -> None:
        self.action_scroll_by(pages * max(1, self._view.height - 1))

    def action_top(self) -> None:
        self._view.scroll_to(y=0, animate=False, force=True)

    def action_follow(self) -> None:
        self._view.follow()

    def action_scroll_sideways(self, direction: int) -> None:
        self._view.scroll_sideways(direction * self._view.width // 2)

    def action_choose(self, name: str) -> None:
        self._is_chosen_by_person = True
        self.choose(name)

    def action_source(self, direction: int) -> None:
        if self._names:
            at = self._names.index(self._chosen) if self._chosen in self._names else 0
            self.action_choose(self._names[(at + direction) % len(self._names)])

    # --- search ---------------------------------------------------------------------------------

    def action_search(self) -> None:
        self._input.display = True
        self.screen.set_focus(self._input)  # at once: what is searched may be on its way
        self._input.action_select_all()

    def action_leave(self) -> None:
        if not self._input.display:
            raise SkipAction
        self._input.display = False
        self._input.value = ""
        self.screen.set_focus(self)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        view = self._view
        start = view.top if view.found is None else view.found
        view.words = event.value
        view.found = None
        self._search.cancel()
        if event.value:
            self._start_search(start)
        self._paint()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.screen.set_focus(self)

    def action_seek(self, direction: int) -> None:
        """Go to another match; without a search the key has its meaning elsewhere."""
        view = self._view
        if not view.words:
            raise SkipAction
        if view.found is None:
            self._start_search(view.top, direction < 0)
        else:
            self._start_search(view.found + direction, direction < 0)

    def _start_search(self, line: int, backwards: bool = False) -> None:
        view = self._view
        has_match = view.found is not None
        self._request_page(self._search.start(view.words, line, backwards, from_match=has_match))

    def _show_search(self, page: LogPage) -> None:
        """Go to the match that a page brings, or search what has been written since there was none.

        Without the focus on the search line the view must not move.
        """
        view = self._view
        result = self._search.take(page, self._live)
        if result is not None and result.line is not None:
            view.reveal(result.line)
        elif result is not None:
            view.found = None
        elif self._search.may_match_now(page.total) and self._input.has_focus:
            self._request_page(self._search.extend(view.words))
        elif self._search.may_match_now(page.total):
            self._search.forget()

    # --- copy and save --------------------------------------------------------------------------

    def action_copy(self) -> None:
        lines = self._view.selected_lines()
        if not any(lines):
            self.notify("no lines to copy", severity="warning")
            return
        fitting = _fitting_lines(lines, CLIPBOARD)
        self.app.copy_to_clipboard("\n".join(lines[:fitting]))
        if fitting == len(lines):
            self.notify(f"{formatting.plural(fitting, 'line')} copied")
        else:
            self.notify(
                f"copied the first {fitting:,} of {len(lines):,} lines: terminals accept no more"
            )

    def action_save(self) -> None:
        self.post_message(self.SaveRequested(self._chosen))


def _fitting_lines(lines: list[str], limit: int) -> int:
    """Return how many of the first lines have at most `limit` bytes together."""
    size = 0
    for count, line in enumerate(lines):
        size += len(line.encode()) + 1
        if size > limit:
            return count
    return len(lines)
