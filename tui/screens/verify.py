"""Do presets compute what one plain process computes? Each is verified while one looks on."""

from __future__ import annotations

from collections.abc import Sequence

from textual import work
from textual.app import App, ComposeResult
from textual.message import Message

from runners.config import ONE_PROCESS
from tui.data.form import Draft
from tui.data.verifying import Entry, Verifier, Wanted
from tui.screens.base import AppScreen
from tui.screens.dialogs import PickOne
from tui.widgets.key_bar import KeyBar
from tui.widgets.verify_table import VerifyTable

RANKS = (1, 2, 3)


class VerifyScreen(AppScreen):
    """Shows what a thread has verified so far; what is under way ends with the screen."""

    HELP = "Esc leaves, and ends what is under way. {app.copy} copies the table."

    class Looked(Message):
        """How far it is now."""

        def __init__(self, entries: Sequence[Entry]) -> None:
            super().__init__()
            self.entries = entries

    def __init__(self, wanted: Sequence[Wanted], ranks: Sequence[int] = ()) -> None:
        super().__init__()
        self._verifier = Verifier(wanted, ranks)

    def compose(self) -> ComposeResult:
        yield VerifyTable()
        yield KeyBar()

    def on_mount(self) -> None:
        self._table = self.query_one(VerifyTable)
        self._table.focus()
        self._verify()

    def on_unmount(self) -> None:
        self._verifier.stop()

    @work(thread=True)
    def _verify(self) -> None:
        for entries in self._verifier.looks():
            self.post_message(self.Looked(entries))

    def on_verify_screen_looked(self, event: Looked) -> None:
        self._table.show(event.entries)

    def action_copy(self) -> None:
        self.distrain.copy(self._table.plain, "the table")


def ask_what_to_verify(app: App[None], draft: Draft | None, drafts: Sequence[Draft]) -> None:
    """Ask which of the presets, on how many ranks, and open the screen."""

    def answer(how: str | None) -> None:
        chosen = drafts if how == "all" else [draft] if draft else []
        if how:
            wanted = [Wanted(each.name, each.config) for each in chosen]
            app.push_screen(VerifyScreen(wanted, RANKS if how == "ranks" else ()))

    options = [("all", "All presets, each on its own devices")]
    if draft and draft.config.strategy not in ONE_PROCESS:
        options.insert(0, ("ranks", f"{draft.name} on 1, 2 and 3 CPU processes"))
    if draft:
        options.insert(0, ("own", f"{draft.name} as it would be launched"))
    app.push_screen(PickOne("Verify against one plain process", options), answer)
