"""Verification of presets: does each compute what one plain process computes?"""

from __future__ import annotations

from collections.abc import Sequence

from textual import work
from textual.app import App, ComposeResult
from textual.message import Message

from distrain.runners.config.sections import ONE_PROCESS
from distrain.tui.data.form import Draft
from distrain.tui.data.verification_feed import PresetToVerify, VerificationEntry, VerificationFeed
from distrain.tui.dialogs.pick_one import PickOneDialog
from distrain.tui.screens.app_screen import AppScreen
from distrain.tui.widgets.key_bar import KeyBar
from distrain.tui.widgets.verify_table import VerifyTable

RANKS = (1, 2, 3)


class VerifyScreen(AppScreen):
    """Show the progress and results of a verification. Leaving the screen ends it."""

    HELP = "Esc leaves and ends the verification. {app.copy} copies the table."

    class Progressed(Message):
        """One of the entries has changed."""

        def __init__(self, entries: Sequence[VerificationEntry]) -> None:
            super().__init__()
            self.entries = entries

    def __init__(self, presets: Sequence[PresetToVerify], ranks: Sequence[int] = ()) -> None:
        """Verify each preset on each of these numbers of CPU ranks, or as configured if none."""
        super().__init__()
        self._feed = VerificationFeed(presets, ranks)

    def compose(self) -> ComposeResult:
        yield VerifyTable()
        yield KeyBar()

    def on_mount(self) -> None:
        self._table = self.query_one(VerifyTable)
        self._table.focus()
        self._verify()

    def on_unmount(self) -> None:
        self._feed.stop()

    @work(thread=True)
    def _verify(self) -> None:
        for entries in self._feed.updates():
            self.post_message(self.Progressed(entries))

    def on_verify_screen_progressed(self, event: Progressed) -> None:
        self._table.show(event.entries)

    def action_copy(self) -> None:
        self.distrain.copy(self._table.plain, "table")


def ask_what_to_verify(app: App[None], draft: Draft | None, drafts: Sequence[Draft]) -> None:
    """Ask which presets to verify and on how many ranks, and open the screen.

    `draft` is the preset under the cursor, `drafts` are all of them.
    """

    def answer(choice: str | None) -> None:
        if choice == "all":
            chosen = list(drafts)
        elif choice and draft:
            chosen = [draft]
        else:
            return
        presets = [PresetToVerify(each.name, each.config) for each in chosen]
        app.push_screen(VerifyScreen(presets, RANKS if choice == "ranks" else ()))

    options = [("all", "All presets, each on its own devices")]
    if draft and draft.config.strategy not in ONE_PROCESS:
        options.insert(0, ("ranks", f"{draft.name} on 1, 2 and 3 CPU ranks"))
    if draft:
        options.insert(0, ("own", f"{draft.name} as it would be launched"))
    app.push_screen(PickOneDialog("Verify against one plain process", options), answer)
