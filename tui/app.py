"""`distrain-tui`: the app itself. What it shows is in `screens/`, which keys it has in `keymap`."""

from __future__ import annotations

import argparse
import asyncio
import gc
import signal
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from textual.app import SystemCommand
from textual.screen import Screen

from runners.errors import DistrainError
from runners.runs import Run, runs_folder
from tui import keymap, settings
from tui.bench_actions import BenchActions
from tui.screens.base import BREAKPOINTS
from tui.survival import Surviving

if TYPE_CHECKING:
    from runners.bench import Bench


class DistrainApp(Surviving, BenchActions):
    """Screens over one runs folder. `readonly` looks on and changes nothing."""

    TITLE = "distrain"
    CSS_PATH = "app.tcss"
    ENABLE_COMMAND_PALETTE = True
    ESCAPE_TO_MINIMIZE = False  # what is being typed goes first: `leave` knows
    BINDINGS = keymap.bindings(keymap.EVERYWHERE)  # type: ignore[assignment]
    HORIZONTAL_BREAKPOINTS, VERTICAL_BREAKPOINTS = BREAKPOINTS

    def __init__(
        self,
        runs_dir: Path | None = None,
        readonly: bool = False,
        run: Run | Bench | None = None,
    ) -> None:
        super().__init__()
        self.runs_dir = runs_folder(runs_dir)
        self.readonly = readonly
        self._first = run
        self.mishaps: list[Exception] = []
        self.settings, self._complaint = settings.load()

    def on_mount(self) -> None:
        # The terminal is left as it was found. SIGHUP ends the process: there is none to leave.
        leave = partial(self.exit, return_code=128 + signal.SIGTERM)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leave)
        self.set_keymap(self.settings.keys)
        self._use_theme(self.settings.theme)
        wrong = [self._complaint] if self._complaint else keymap.complaints(self.settings.keys)
        for complaint in wrong:
            self.notify(complaint, severity="warning", timeout=10)
        if self._first:
            self.look_at(self._first)
        elif not self.readonly and not _has_runs(self.runs_dir):
            self.action_new()

    def get_default_screen(self) -> Screen[Any]:
        from tui.screens.runs import RunsScreen

        return RunsScreen()

    def _use_theme(self, name: str) -> None:
        if name in self.available_themes:
            self.theme = name
        else:
            self.notify(f"there is no theme {name!r}", severity="warning")

    # --- what screens ask of it -----------------------------------------------------------------

    def remember(self, **changes: Any) -> None:
        """Change settings and keep them for the next time."""
        changed = msgspec.structs.replace(self.settings, **changes)
        if changed == self.settings:
            return
        self.settings = changed
        on_disk, complaint = settings.load()  # another app may have written since
        if complaint:  # a file with a mistake is the person's to mend, not ours to replace
            return
        try:
            settings.save(msgspec.structs.replace(on_disk, **changes))
        except OSError as error:
            self.notify(f"{settings.path()} cannot be written: {error.strerror}")

    def notify(self, message: str, *, markup: bool = False, **how: Any) -> None:
        """Names and errors may hold brackets, so no message is read as markup."""
        super().notify(message, markup=False, **how)

    def action_help_quit(self) -> None:
        """Ctrl+C ends nothing: say what does."""
        self.notify(f"{self.key('app.quit')} leaves the app; runs go on")

    def settle(self) -> None:
        """Everything is there: from now on look for garbage, among what is new."""
        if not gc.isenabled():
            gc.freeze()
            gc.enable()

    def copy(self, text: str, what: str) -> None:
        """Put text on the clipboard of the person's own machine, through OSC 52."""
        self.copy_to_clipboard(text)
        self.notify(f"{what} copied")

    # --- actions --------------------------------------------------------------------------------

    def action_new(self) -> None:
        from tui.screens.launch import LaunchScreen

        if self.may_change() and not isinstance(self.screen, LaunchScreen):
            self.push_screen(LaunchScreen())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A screen to launch from has no use for the key that opens one."""
        if action == "new" and self.screen_stack:
            return keymap.LAUNCH not in getattr(self.screen, "KEYS", ())
        return super().check_action(action, parameters)

    def action_help(self) -> None:
        from tui.screens.help import HelpScreen

        self.push_screen(HelpScreen(self.screen, self.focused))

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
            self.refuse(f"the picture cannot be written: {error.strerror}")

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Every action of the screen and the app by its name, and Textual's own few."""
        groups = [keymap.EVERYWHERE, *getattr(screen, "KEYS", ())]
        for keys in keymap.of(groups).values():
            for key in keys:
                yield SystemCommand(key.label, key.help, lambda key=key: self._perform(key))
        yield SystemCommand("Theme", "Change the colours of the app.", self.action_change_theme)

    async def _perform(self, key: keymap.Key) -> None:
        """Where its key is heard, else in a pane that is shown."""
        for active in self.screen.active_bindings.values():
            if active.binding.id == key.id:
                await self.run_action(active.binding.action, active.node)
                return
        name = f"action_{key.action.partition('(')[0]}"
        shown = (pane for pane in self.screen.query("*") if pane.region)
        if pane := next((pane for pane in shown if hasattr(pane, name)), None):
            await self.run_action(key.action, pane)
        else:
            self.refuse("this is for a pane that is not shown")

    def watch_theme(self, name: str) -> None:
        self.remember(theme=name)

    def _handle_exception(self, error: Exception) -> None:
        from tui.screens.dialogs import ErrorDialog

        # Before there is a screen, or while this very dialog fails, nothing better can be done.
        if not self.screen_stack or isinstance(self.screen, ErrorDialog):
            super()._handle_exception(error)
        else:
            self.mishaps.append(error)
            self.push_screen(ErrorDialog(error), self._begin_anew)

    def _begin_anew(self, _: None) -> None:
        """A widget whose handler has raised is deaf from then on: make new screens.

        The lowest cannot go; what lies over it hides it and leaves it nothing to do.
        """
        while len(self.screen_stack) > 1:
            self.pop_screen()
        self.push_screen(self.get_default_screen())


def _has_runs(folder: Path) -> bool:
    try:
        files = ("run.json", "bench.json")
        return any((entry / name).is_file() for entry in folder.iterdir() for name in files)
    except OSError:
        return False


def main() -> int:
    """Open the app."""
    parser = argparse.ArgumentParser(
        prog="distrain-tui", description="Pick a preset, launch it, watch every rank."
    )
    parser.add_argument("run", nargs="?", help="watch this run or bench: id, name or latest")
    parser.add_argument("--runs-dir", type=Path, help="default: $DISTRAIN_RUNS_DIR, else ./runs")
    parser.add_argument("--readonly", action="store_true", help="look on, change nothing")
    parser.add_argument("--no-mouse", action="store_true", help="leave the mouse to the terminal")
    arguments = parser.parse_args()
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        print("distrain-tui wants a terminal; `distrain watch` does without", file=sys.stderr)
        return 2
    from runners.finding import find  # benches too, which the list of runs can do without

    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup or not: without a terminal there is no app
    try:
        run = None if arguments.run is None else find(arguments.run, arguments.runs_dir)
        app = DistrainApp(arguments.runs_dir, arguments.readonly, run)
    except DistrainError as error:
        print(f"distrain-tui: {error}", file=sys.stderr)
        return error.exit_code
    app.run(mouse=not arguments.no_mouse)
    return app.return_code or 0
