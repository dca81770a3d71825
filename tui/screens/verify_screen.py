"""Verification of presets: does each compute what one plain process computes?"""

from __future__ import annotations

import time
from collections.abc import Sequence

from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.message import Message
from textual.widgets import Static

from distrain.runners.config.field_types import ONE_PROCESS
from distrain.tui import keymap
from distrain.tui.data.draft import Draft
from distrain.tui.data.verification_feed import (
    PresetToVerify,
    Progress,
    VerificationEntry,
    VerificationFeed,
)
from distrain.tui.dialogs.kept import discard, is_kept, open_kept
from distrain.tui.dialogs.pick_one import PickOneDialog
from distrain.tui.keymap import VERIFY
from distrain.tui.screens.app_screen import AppScreen
from distrain.tui.widgets.key_bar import KeyBar
from distrain.tui.widgets.verify_table import VerifyTable, tally

RANKS = (1, 2, 3)
NAME = "verification"
REFRESH_S = 0.25
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class VerifyScreen(AppScreen):
    """Show the progress and results of a verification, which goes on when the screen is left."""

    HELP = (
        "Esc leaves; the verification goes on, and {launch.verify} on the launch screen shows it "
        "again. {verify.stop} stops it. {app.copy} copies the table."
    )
    KEYS = (VERIFY,)
    BINDINGS = keymap.make_bindings(VERIFY)  # type: ignore[assignment]

    class Progressed(Message):
        """One of the entries has changed."""

        def __init__(self, entries: Sequence[VerificationEntry]) -> None:
            super().__init__()
            self.entries = entries

    class Ended(Message):
        """There are no further results."""

    def __init__(self, presets: Sequence[PresetToVerify], ranks: Sequence[int] = ()) -> None:
        """Verify each preset on each of these numbers of CPU ranks, or as configured if none."""
        super().__init__()
        self._feed = VerificationFeed(presets, ranks)
        self._progress = Progress(time.monotonic())
        self._has_ended = False
        self._is_stopped = False

    def compose(self) -> ComposeResult:
        yield Static(id="progress", markup=False)
        yield VerifyTable()
        yield KeyBar()

    def on_mount(self) -> None:
        self._table = self.query_one(VerifyTable)
        self._table.focus()
        self.set_interval(REFRESH_S, self._show_progress)
        self._verify()

    def on_unmount(self) -> None:
        self._feed.stop()

    @work(thread=True)
    def _verify(self) -> None:
        for entries in self._feed.updates():
            self.post_message(self.Progressed(entries))
        self.post_message(self.Ended())

    def on_verify_screen_progressed(self, event: Progressed) -> None:
        self._table.show(event.entries)
        self._progress.update(event.entries, time.monotonic())
        self._show_progress()

    def on_verify_screen_ended(self) -> None:
        self._has_ended = True
        self._show_progress()
        self.refresh_bindings()
        if not (self.is_current or self._is_stopped):
            hint = keymap.insert_keys("{launch.verify} on the launch screen shows it", self.app)
            self.app.notify(f"verification: {tally(self._table.entries)}; {hint}")

    def _show_progress(self) -> None:
        if not self.is_current:
            return
        now = time.monotonic()
        is_complete = all(entry.state == "done" for entry in self._table.entries)
        text = "all done" if is_complete else "stopped"
        if not self._has_ended:
            spinner = SPINNER[int(now / REFRESH_S) % len(SPINNER)]
            parts = [f"{spinner} {self._progress.describe(now)}", self._feed.obstacle]
            text = " · ".join(filter(None, parts))
        self.query_one("#progress", Static).update(text)

    def offers(self, binding: Binding) -> bool:
        return (binding.id != "verify.stop" or not self._has_ended) and super().offers(binding)

    def action_stop(self) -> None:
        self._is_stopped = not self._has_ended or self._is_stopped
        self._feed.stop()

    async def action_leave(self) -> None:
        """Leave the screen, which is kept until its result was seen."""
        await super().action_leave()
        if self._has_ended or self._is_stopped:
            await discard(self.app, self, NAME)

    def action_copy(self) -> None:
        self.distrain.copy(self._table.plain, "table")


def ask_what_to_verify(app: App[None], draft: Draft | None, drafts: Sequence[Draft]) -> None:
    """Ask which presets to verify and on how many ranks, and open the screen.

    `draft` is the preset under the cursor, `drafts` are all of them. A verification that goes on,
    or whose result was not seen, is shown instead.
    """

    def show(presets: Sequence[PresetToVerify] = (), ranks: Sequence[int] = ()) -> None:
        open_kept(app, NAME, lambda: VerifyScreen(presets, ranks))

    def answer(choice: str | None) -> None:
        if choice == "all":
            chosen = list(drafts)
        elif choice and draft:
            chosen = [draft]
        else:
            return
        presets = [PresetToVerify(each.name, each.config) for each in chosen]
        show(presets, RANKS if choice == "ranks" else ())

    if is_kept(app, NAME):
        show()
        return
    options = [("all", "All presets, each on its own devices")]
    if draft and draft.config.strategy not in ONE_PROCESS:
        options.insert(0, ("ranks", f"{draft.label} on 1, 2 and 3 CPU ranks"))
    if draft:
        options.insert(0, ("own", f"{draft.label} as it would be launched"))
    app.push_screen(PickOneDialog("Verify against one plain process", options), answer)
