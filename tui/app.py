"""The app itself: its screens and its controllers."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual import events
from textual.screen import Screen
from textual.signal import Signal
from textual.widget import Widget
from textual.widgets import Input
from textual.worker import WorkerFailed

from distrain.models.errors import nearest
from distrain.runners.errors import DistrainError, is_current_folder_deleted
from distrain.runners.session import Session, runs_folder
from distrain.tui import keymap, settings
from distrain.tui.base_app import HEARTBEAT_S, BaseApp
from distrain.tui.data.history import History
from distrain.tui.marks import RunMarks
from distrain.tui.screen_threads import ScreenThreads
from distrain.tui.screens.app_screen import AppScreen
from distrain.tui.screens.error_boundary import FOLDER_DELETED, ErrorBoundary, explain
from distrain.tui.settings import Settings, SettingsError

if TYPE_CHECKING:
    from distrain.runners.groups import Group
    from distrain.tui.actions.bench_controller import BenchController
    from distrain.tui.actions.export_controller import ExportController
    from distrain.tui.actions.launch_controller import LaunchController
    from distrain.tui.actions.session_controller import SessionController

MOST_FOLDERS = 50  # of which the app knows until when their history was seen


class DistrainApp(ErrorBoundary, BaseApp):
    """Screens over one runs folder.

    `session` is a run, bench or group to open at the start. With `readonly` the app changes
    nothing. With `tour` a person who starts the app for the first time sees some hints.
    """

    TITLE = "distrain"
    CSS_PATH = "app.tcss"
    ESCAPE_TO_MINIMIZE = False  # an input field takes Escape first: see `action_leave` of screens
    BINDINGS = [  # noqa: RUF012
        *keymap.make_bindings(keymap.EVERYWHERE),
        keymap.make_hidden_binding("escape", "end_tour", "app.back", priority=True),
    ]

    def __init__(
        self,
        runs_dir: Path | None = None,
        readonly: bool = False,
        session: Session | Group | None = None,
        tour: bool = False,
    ) -> None:
        super().__init__()
        self.runs_dir = runs_folder(runs_dir)
        self.readonly = readonly
        self.settings = self._load_settings()
        self.run_marks = RunMarks()
        self.history_changed: Signal[None] = Signal(self, "history changed")
        self.internal_errors: list[Exception] = []
        self._first_session = session
        self._tour: Widget | None = None
        self._wants_tour = tour and not self.settings.tour_shown

    # The controllers load what launches and ends runs: not needed before the table is painted.

    @cached_property
    def launches(self) -> LaunchController:
        from distrain.tui.actions.launch_controller import LaunchController

        return LaunchController(self)

    @cached_property
    def sessions(self) -> SessionController:
        from distrain.tui.actions.session_controller import SessionController

        return SessionController(self)

    @cached_property
    def benches(self) -> BenchController:
        from distrain.tui.actions.bench_controller import BenchController

        return BenchController(self)

    @cached_property
    def exports(self) -> ExportController:
        from distrain.tui.actions.export_controller import ExportController

        return ExportController(self)

    @cached_property
    def history(self) -> History:
        """What happened in the runs folder; in a new one, what happens from now on."""
        return History(self.settings.seen_until.get(str(self.runs_dir), time.time()))

    def see_history(self, until: float) -> None:
        self.history.see(until)
        seen = {**self.settings.seen_until, str(self.runs_dir): self.history.seen_until}
        newest = sorted(seen.items(), key=lambda item: item[1])[-MOST_FOLDERS:]
        self.remember(seen_until=dict(newest))
        self.history_changed.publish(None)

    def on_load(self) -> None:
        asyncio.get_running_loop().set_default_executor(ScreenThreads())

    def on_mount(self) -> None:
        # On SIGTERM the terminal is restored. SIGHUP ends the process: the terminal is gone.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._terminate)
        self.app_resume_signal.subscribe(self, self._repaint)
        self.set_interval(HEARTBEAT_S, self.note_heartbeat)
        self.set_keymap(self.settings.keys)
        self.theme = self.settings.theme
        keys = self.settings.keys
        clashes = keymap.find_clashes(keys) if keys else []  # our own have none
        for problem in [*self._unknown_settings, *clashes]:
            self.notify(f"settings, {problem}", severity="warning", timeout=10)
        if self._first_session:
            self.read_screens_css()
            self.sessions.open(self._first_session)
        elif not self.readonly and not _has_sessions(self.runs_dir):
            self.read_screens_css()
            self.action_new()
        if self._wants_tour:
            self.call_after_refresh(self._show_tour)

    def _terminate(self) -> None:
        code = 128 + signal.SIGTERM
        if self._exit:  # it waits for threads
            os._exit(code)
        self.exit(return_code=code)

    def _repaint(self, _: object) -> None:
        """Paint all that a suspension has cleared; Textual alone paints only what changes then."""
        self.screen.refresh()

    def _show_tour(self) -> None:
        from distrain.tui.widgets.key_bar import KeyBar
        from distrain.tui.widgets.tour import Tour

        key_bars = self.screen.query(KeyBar)
        if not key_bars:  # a dialog was opened by the first key: the next start shows the hints
            return
        self._tour = Tour()
        self.screen.mount(self._tour, before=key_bars.first())
        self.screen.add_class("-tour")
        self.remember(tour_shown=True)

    @property
    def _has_tour(self) -> bool:
        """Whether the hints are on the current screen; they disappear together with it."""
        tour = self._tour
        return tour is not None and tour.is_attached and tour.screen is self.screen

    def action_end_tour(self) -> None:
        if self._tour and self._has_tour:
            self.screen.remove_class("-tour")
            self._tour.remove()
            self._tour = None

    def on_key(self, event: events.Key) -> None:
        """Insert text that was typed while a dialog with an input line was opening.

        It was sent to the screen below; an input line that has the focus takes later text itself.
        """
        if event.is_printable and event.character and isinstance(self.focused, Input):
            _insert_late(self.focused, event.character)

    def get_default_screen(self) -> Screen[Any]:
        from distrain.tui.screens.runs_screen import RunsScreen

        return RunsScreen()

    def _load_settings(self) -> Settings:
        """Return the user's settings. Raises SettingsError, which lists what is wrong with them."""
        loaded, problem, self._unknown_settings = settings.load()
        problems = [problem] if problem else keymap.find_unknown(loaded.keys)
        if loaded.theme not in self.available_themes:
            hint = nearest(loaded.theme, self.available_themes)
            problems.append(f"there is no theme {loaded.theme!r}{hint}")
        if problems:
            raise SettingsError(problems)
        return loaded

    def watch_theme(self, name: str) -> None:
        self.remember(theme=name)

    # --- actions of the keys that work everywhere -----------------------------------------------

    def action_new(self) -> None:
        from distrain.tui.screens.launch_screen import LaunchScreen

        if isinstance(self.screen, LaunchScreen):
            self.refuse(self.screen.obstacle("app.new"))
        elif is_current_folder_deleted():  # its screen would stay empty
            self.refuse(FOLDER_DELETED)
        elif self.check_may_change():
            self.push_screen(LaunchScreen())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable the key that closes the hints where there are none."""
        if action == "end_tour":
            return self._has_tour
        return super().check_action(action, parameters)

    def action_help(self) -> None:
        from distrain.tui.dialogs.help import HelpDialog

        self.push_screen(HelpDialog(self.screen, self.focused))

    async def action_quit(self) -> None:
        """Quit, after an export in progress."""
        if "exports" not in vars(self) or not self.exports.quit_when_complete():
            self.exit()

    def action_help_quit(self) -> None:
        """Name the key that quits the app, because Ctrl+C does not."""
        keys = " or ".join(self.key("app.quit").split())
        self.notify(f"{keys} quits the app; runs continue")

    def action_history(self) -> None:
        """List what happened; it is seen from then on."""
        from distrain.tui.dialogs.history import HistoryDialog

        events = self.history.events
        self.push_screen(HistoryDialog(events, self.history.seen_until), self._open_by_id)
        self.see_history(max([time.time(), *(event.time for event in events[:1])]))

    def _open_by_id(self, id: str | None) -> None:
        from distrain.runners.lookup import find

        try:
            if id is not None:
                self.sessions.open(find(id, self.runs_dir))
        except DistrainError as error:
            self.refuse(str(error))

    def action_full(self) -> None:
        if self.screen.maximized:
            self.screen.minimize()
        elif self.focused is not None:
            self.screen.maximize(self.focused, container=False)

    def action_picture(self) -> None:
        """Save the screen as SVG in the current folder."""
        try:
            self.notify(f"saved {self.save_screenshot()}")
        except OSError as error:
            self.refuse(f"cannot write the screenshot: {error.strerror}")

    # --- the palette ----------------------------------------------------------------------------

    def action_command_palette(self) -> None:
        from distrain.tui.actions import available
        from distrain.tui.dialogs.palette import PaletteDialog

        def choose(id: str | None) -> None:
            if id:
                self.call_next(available.perform, self, id)

        self.push_screen(PaletteDialog(available.list_entries(self)), choose)

    def action_command(self) -> None:
        from distrain.tui.actions.command_controller import CommandController

        CommandController(self).ask()

    def action_jump(self) -> None:
        from distrain.tui.actions import jump

        jump.start(self.screen)

    def action_shell(self) -> None:
        from distrain.tui.screens.shell_screen import ShellScreen, find_problem

        screen = self.screen
        if self.check_may_change() and isinstance(screen, AppScreen):
            folder = screen.folder or self.runs_dir
            if problem := find_problem(folder):
                self.refuse(problem)
            else:
                self.push_screen(ShellScreen(folder))

    # --- internal errors ------------------------------------------------------------------------

    def _handle_exception(self, error: Exception) -> None:
        from distrain.tui.dialogs.error import ErrorDialog

        if isinstance(error, WorkerFailed) and (reason := explain(error.error)):
            self.refuse(reason)
            return
        # Before there is a screen, or when this very dialog fails, the app has to end.
        if not self.screen_stack or isinstance(self.screen, ErrorDialog):
            super()._handle_exception(error)
        else:
            self.internal_errors.append(error)
            self.push_screen(ErrorDialog(error), self._replace_screens)

    def _replace_screens(self, _: None) -> None:
        """Replace all screens: Textual sends no more messages to a widget whose handler raised.

        The lowest screen cannot be popped; the new one covers it.
        """
        while len(self.screen_stack) > 1:
            self.pop_screen()
        if "launches" in vars(self):
            self.launches.forget_question()
        self.push_screen(self.get_default_screen())


def _has_sessions(folder: Path) -> bool:
    """Return whether the runs folder holds a run or a bench."""
    try:
        files = ("run.json", "bench.json")
        return any(os.path.isfile(entry / name) for entry in folder.iterdir() for name in files)
    except OSError:
        return False


def _insert_late(field: Input, character: str) -> None:
    """Insert a character as the field itself does, although its focus may not have reached it."""
    if field.select_on_focus and not field.has_focus:
        field.select_all()
        field.select_on_focus = False  # the focus to come would select what is typed now
        field.call_later(setattr, field, "select_on_focus", True)
    field.replace(character, *field.selection)
