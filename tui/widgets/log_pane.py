"""What the processes of a run print: a thread reads as much of it as is in sight."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

from textual import work
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input
from textual.worker import get_current_worker

from runners import words
from tui import keymap
from tui.data.log_reader import OTHERS, Ask, Found, Hunt, Page, Reader, path_of
from tui.keymap import LOG
from tui.screens.dialogs import Prompt
from tui.widgets.log_titles import titles
from tui.widgets.log_view import LogView

LOOK_S, QUIET_S = 0.25, 2.0  # between two looks at a log of a live run, of one that has ended
PAGE_S = 0.1  # between two pages while a log is read that grows fast
CLIPBOARD = 48 << 10  # bytes: 64 KiB in base64, what common terminals take (OSC 52)
BORDER = 6  # cells of the border that a title leaves


class LogPane(Widget, can_focus=True):
    """`show` gives it the folder of a run, `choose` says whose log is to be seen."""

    HELP = (
        "What the ranks, the launcher and the supervisor print; logs without a line are dim. The "
        "pane follows the end until you scroll up, and again after {log.follow}. › stands where a "
        "line goes on: the arrow keys show it. {log.search} searches as you type: Enter goes on; "
        "up and down leave what you typed, then {log.next} and {log.previous} go on. {app.copy} "
        "copies the lines that are selected with the mouse, else those in sight."
    )
    BINDINGS = [  # noqa: RUF012
        *keymap.bindings(LOG),
        keymap.hidden("y", "copy", "app.copy"),
        keymap.hidden("escape", "leave"),
        keymap.hidden("shift+enter", "seek(-1)"),
        keymap.hidden("up", "scroll_by(-1)"),
        keymap.hidden("down", "scroll_by(1)"),
        keymap.hidden("pageup", "scroll_pages(-1)"),
        keymap.hidden("pagedown,space", "scroll_pages(1)"),
        keymap.hidden("home", "top"),
        keymap.hidden("left", "aside(-1)"),
        keymap.hidden("right", "aside(1)"),
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

    class Looked(Message):
        """The thread has something new."""

        def __init__(self, page: Page) -> None:
            super().__init__()
            self.page = page

    def __init__(self, *, id: str | None = None, classes: str = "") -> None:
        super().__init__(id=id, classes=classes)
        self._folder: Path | None = None
        self._view = LogView()
        self._input = Input(placeholder="words to find · esc leaves", compact=True)
        self._input.display = False
        self._names: list[str] = []
        self._chosen = "rank-0"
        self._live = False
        self._ask = Ask(self._chosen, None, 0)
        self._page: Page | None = None
        self._seen = 0
        self._search = ""
        self._missed: int | None = None  # in so many lines the words were nowhere
        self._hunts = 0
        self._wake, self._left = threading.Event(), threading.Event()

    def compose(self) -> ComposeResult:
        yield self._view
        yield self._input

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(
            self, lambda _: self.call_after_refresh(self._paint)
        )

    def on_unmount(self) -> None:
        self._left.set()
        self._wake.set()

    def on_show(self) -> None:
        self._wake.set()

    @property
    def in_sight(self) -> bool:
        """Asked instead of kept: Textual does not send every Show and Hide."""
        return all(node.display for node in self.ancestors_with_self)

    # --- what the screen asks of it -------------------------------------------------------------

    def show(self, folder: Path, ranks: int, live: bool, scheduled: bool = False) -> None:
        """Look at the logs of a run's folder; what is seen stays when the same comes again."""
        launcher, job, supervisor = OTHERS
        own = [f"rank-{rank}" for rank in range(ranks)]
        names = [launcher, *([job] if scheduled else []), *own, supervisor]
        if (names, live) != (self._names, self._live):
            self._names, self._live = names, live
            self._wake.set()
            self._paint()
        if folder != self._folder:
            self._folder = folder
            self._read(folder, self.screen)

    def choose(self, name: str) -> None:
        """Show another log: "rank-0", "launcher", "job", "supervisor"."""
        if name != self._chosen:
            self._chosen, self._page, self._search, self._missed = name, None, "", None
            self._view.clear()
            self._seen = 0
            self._want()
            if self._view.words:
                self._hunt(0)

    # --- the thread that reads ------------------------------------------------------------------

    @work(thread=True, exclusive=True, group="logs")
    def _read(self, folder: Path, screen: Screen[Any]) -> None:
        worker, reader = get_current_worker(), Reader(folder)
        while not (worker.is_cancelled or self._left.is_set()):
            self._wake.clear()
            page = None
            watched = screen.is_current and self.in_sight
            if watched:
                page = reader.look(self._ask, self._names)
                if page is not None:
                    self.post_message(self.Looked(page))
            if not (watched and reader.busy):
                self._wake.wait(QUIET_S if watched and not self._live else LOOK_S)
            elif page is not None:
                self._wake.wait(PAGE_S)
        reader.close()

    def _want(self, hunt: Hunt | None = None) -> None:
        """Ask for what should be in sight, with as much before and after it when scrolling."""
        view = self._view
        hunt = hunt or (self._ask.hunt if self._ask.name == self._chosen else None)
        if view.following:
            self._ask = Ask(self._chosen, None, view.height, hunt)
        else:
            first = max(0, view.top - view.height)
            self._ask = Ask(self._chosen, first, 3 * view.height, hunt)
        self._wake.set()
        self._paint()

    def on_log_pane_looked(self, event: Looked) -> None:
        page = event.page
        if page.name != self._chosen:
            return
        if page.anew:
            self._search, self._seen, self._missed = "", 0, None
        self._page = page
        self._seen += page.raised
        self._view.put(page)
        if page.found is not None and page.found.hunt.number == self._hunts:
            self._take(page.found, page.total)
        elif self._missed is not None and page.total > self._missed:
            # What is new may have the words; it moves nothing for one who does not look for them.
            if self._input.has_focus:
                self._hunt(max(self._missed - 1, 0), onwards=True)
            else:
                self._search, self._missed = "", None
        if self._view.lacks:
            self._want()
        self._paint()

    def on_log_view_moved(self) -> None:
        view = self._view
        asked = self._ask.height if self._ask.first is None else None
        if view.lacks or asked != (view.height if view.following else None):
            self._want()
        self._paint()

    # --- what is written on its border ----------------------------------------------------------

    def _paint(self) -> None:
        if not self.is_mounted or not self.size:
            return
        if self._view.following:
            self._seen = self._view.total
        empty = self._page.empty if self._page else frozenset()
        names, room = self._names or [self._chosen], self.outer_size.width - BORDER
        paper = self.background_colors[1]
        self._view.notice = self._notice()
        self._write("border_title", titles(names, self._chosen, empty, room, paper))
        self._write("border_subtitle", Content(self._status()))

    def _write(self, where: str, content: Content) -> None:
        if getattr(self, where) != content.markup:
            setattr(self, where, content)

    def _notice(self) -> str:
        """What an empty pane says."""
        page, called = self._page, self._chosen.replace("-", " ")
        if page is None or page.total:
            return ""
        if page.problem:
            return f"the log of {called} cannot be read: {page.problem}"
        if self._chosen not in self._names:
            return "no rank has been started yet" if self._live else "no rank was started"
        said = f"{called} has printed nothing{' yet' if self._live else ''}"
        return keymap.keyed(f"{said} · {{log.after}} shows the next log", self.app)

    def _status(self) -> str:
        view, page = self._view, self._page
        if page is None or not page.total:
            return self._search
        if view.found is not None:
            parts = [f"line {view.found + 1:,} of {view.total:,}{self._search}"]
        else:
            parts = [self._search] if self._search else []
        if not page.complete:
            parts.append("counting lines")
        elif view.following and not parts:
            parts.append(words.things(view.total, "line"))
        elif not parts:
            parts.append(f"line {view.top + 1:,} of {view.total:,}")
        new = view.total - self._seen
        if not view.following:
            parts += [words.things(new, "new line")] if new > 0 else []
            key = keymap.keyed("{log.follow}", self.app)
            parts.append(f"{key} follows" if self._live else f"{key}: to the end")
        elif self._live:
            parts.append("follows")
        return " · ".join(parts)

    # --- moving ---------------------------------------------------------------------------------

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

    def action_aside(self, direction: int) -> None:
        self._view.move_aside(direction * self._view.width // 2)

    def action_choose(self, name: str) -> None:
        self.choose(name)

    def action_source(self, direction: int) -> None:
        if self._names:
            at = self._names.index(self._chosen) if self._chosen in self._names else 0
            self.choose(self._names[(at + direction) % len(self._names)])

    # --- search ---------------------------------------------------------------------------------

    def action_search(self) -> None:
        self._input.display = True
        self._input.focus()
        self._input.action_select_all()

    def action_leave(self) -> None:
        if not self._input.display:
            raise SkipAction
        self._input.display = False
        self._input.value = ""
        self.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        view = self._view
        start = view.top if view.found is None else view.found
        view.words, view.found, self._search = event.value, None, ""
        self._missed = None
        self._hunts += 1
        if event.value:
            self._hunt(start)
        self._paint()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_seek(1)

    def action_seek(self, direction: int) -> None:
        view = self._view
        if not view.words:
            self.action_search()
        elif view.found is None:
            self._hunt(view.top, direction < 0)
        else:
            self._hunt(view.found + direction, direction < 0)

    def _hunt(self, line: int, backwards: bool = False, onwards: bool = False) -> None:
        self._hunts += 1
        self._missed = None
        if not onwards:
            self._search = "" if self._view.found is not None else "searching …"
        self._want(Hunt(self._hunts, self._view.words, line, backwards, onwards))

    def _take(self, found: Found, total: int) -> None:
        """Show what was found in so many lines."""
        if found.line is None:
            self._view.found, self._missed = None, total
            yet = " yet" if self._live else ""
            self._search = f"no “{found.hunt.words}” in this log{yet}"
            return
        end = "end" if found.hunt.backwards else "top"
        self._search = f", from the {end} again" if found.around else ""
        self._view.reveal(found.line)

    # --- taking it elsewhere --------------------------------------------------------------------

    def action_copy(self) -> None:
        selection = self._view.text_selection
        part = self._view.get_selection(selection) if selection else None
        lines = [line.plain for line in self._view.in_sight()] if part is None else [part[0]]
        lines = "\n".join(lines).split("\n") if any(lines) else []
        if not lines:
            self.notify("there is no line to copy", severity="warning")
            return
        size, fit = 0, 0
        for fit, line in enumerate(lines, 1):
            size += len(line.encode()) + 1
            if size > CLIPBOARD:
                fit -= 1
                break
        self.app.copy_to_clipboard("\n".join(lines[:fit]))
        if fit == len(lines):
            self.notify(f"{words.things(fit, 'line')} copied")
        else:
            self.notify(
                f"the first {fit:,} of {len(lines):,} lines copied: a terminal takes no more"
            )

    def action_save(self) -> None:
        folder, name = self._folder, self._chosen
        if folder is None:
            return

        def save(path: str | None) -> None:
            if path:
                self._save(path_of(folder, name), Path(path).expanduser())

        self.app.push_screen(
            Prompt(
                f"Save the log of {name.replace('-', ' ')}",
                "As it was printed, all of it. Where to:",
                f"{folder.name}-{name}.log",
                lambda path: "" if path.strip() else "a name is needed",
            ),
            save,
        )

    @work(thread=True, group="save")
    def _save(self, source: Path, to: Path) -> None:
        try:
            with source.open("rb") as read, to.open("xb") as written:
                shutil.copyfileobj(read, written, 1 << 20)
                size = written.tell()
        except FileExistsError:
            self._say(f"{to} is there already: nothing was saved", "warning")
        except OSError as error:
            self._say(f"{to} cannot be saved: {error.strerror}", "error")
        else:
            self._say(f"{words.size(size)} saved to {to.absolute()}", "information")

    def _say(self, text: str, severity: Any) -> None:
        self.app.call_from_thread(self.notify, text, severity=severity)
