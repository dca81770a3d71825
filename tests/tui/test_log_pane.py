"""The log pane, used with keys and mouse."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.widgets import Input

from distrain.tui import keymap
from distrain.tui.dialogs.prompt import PromptDialog
from distrain.tui.screens.run_logs import RunLogs
from distrain.tui.widgets.log_pane import CLIPBOARD, LogPane
from distrain.tui.widgets.log_view import LogView

from .app_driver import until

RANKS = 3
SIZES = [(80, 24), (120, 36)]


class Logs(App[None]):
    """A run's logs and nothing else; `notifications` are its notifications."""

    def __init__(self, folder: Path, live: bool, chosen: str) -> None:
        super().__init__()
        self.folder, self.live, self.chosen = folder, live, chosen
        self.fell_through: list[str] = []

    BINDINGS = [("escape", "back"), ("n", "new")]  # noqa: RUF012

    def compose(self) -> ComposeResult:
        yield LogPane(id="logs")

    def on_mount(self) -> None:
        self.logs = RunLogs(self.screen, self.pane, self.folder, lambda: True)
        self.pane.choose(self.chosen)
        self.pane.show(RANKS, self.live)
        self.logs.start()
        self.pane.focus()

    def on_log_pane_page_requested(self, event: LogPane.PageRequested) -> None:
        self.logs.read(event)

    def on_log_pane_save_requested(self, event: LogPane.SaveRequested) -> None:
        self.logs.save(event.name)

    def on_unmount(self) -> None:
        self.logs.stop()

    def action_back(self) -> None:
        self.fell_through.append("back")

    def action_new(self) -> None:
        self.fell_through.append("new")

    def key(self, id: str) -> str:
        return " ".join(map(self.get_key_display, keymap.parse_keys(id, {})))

    @property
    def pane(self) -> LogPane:
        return self.query_one(LogPane)

    @property
    def view(self) -> LogView:
        return self.query_one(LogView)

    @property
    def lines(self) -> list[str]:
        found = [self.view.render_line(y).text.rstrip() for y in range(self.view.height)]
        return [line for line in found if line]

    @property
    def last(self) -> str:
        return self.lines[-1] if self.lines else ""

    @property
    def named(self) -> str:
        return self.pane._border_title.plain if self.pane._border_title else ""

    @property
    def status(self) -> str:
        return self.pane._border_subtitle.plain if self.pane._border_subtitle else ""

    @property
    def notifications(self) -> str:
        return " ".join(notification.message for notification in self._notifications)


Scenario = Callable[[Logs, Pilot[None]], Awaitable[None]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a run with three ranks, the last of which has no output."""
    run = tmp_path / "20261121-055848-ddp-zana"
    (run / "logs").mkdir(parents=True)
    write(run, "rank-0", *(f"step {step}" for step in range(500)))
    write(run, "rank-1", "hello from rank 1")
    write(run, "launcher", "starting")
    return run


def write(run: Path, name: str, *lines: str) -> None:
    with (run / "logs" / f"{name}.log").open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def run_app(
    scenario: Scenario,
    folder: Path,
    size: tuple[int, int] = (80, 24),
    live: bool = True,
    chosen: str = "rank-0",
) -> None:
    async def play() -> None:
        app = Logs(folder, live, chosen)
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: app.lines)
            await scenario(app, pilot)

    asyncio.run(play())


@pytest.mark.parametrize("size", SIZES)
def test_the_pane_opens_at_the_end_of_rank_0_and_follows(
    folder: Path, size: tuple[int, int]
) -> None:
    async def scenario(app: Logs, pilot: Pilot[None]) -> None:
        assert app.last == "step 499"
        assert len(app.lines) == app.view.height > size[1] - 5
        assert app.status == "500 lines · following"
        write(folder, "rank-0", "one more")
        await until(pilot, lambda: app.last == "one more", "followed")
        assert app.status == "501 lines · following"

    run_app(scenario, folder, size)


def test_scrolling_up_stops_following_and_end_goes_back(folder: Path) -> None:
    async def scenario(app: Logs, pilot: Pilot[None]) -> None:
        await pilot.press("up", "up", "up")
        await until(pilot, lambda: app.last == "step 496", "scrolled")
        before = app.lines
        write(folder, "rank-0", "new", "newer")
        await until(pilot, lambda: "2 new lines · end follows" in app.status, "counted")
        assert app.lines == before
        await pilot.press("G")
        await until(pilot, lambda: app.last == "newer", "at the end")
        write(folder, "rank-0", "newest")
        await until(pilot, lambda: app.last == "newest", "followed")

    run_app(scenario, folder)


def test_scrolling_down_to_the_end_follows_again(folder: Path) -> None:
    async def scenario(app: Logs, pilot: Pilot[None]) -> None:
        await pilot.press("pageup")
        await until(pilot, lambda: "end follows" in app.status)
        await pilot.press("pagedown")
        await until(pilot, lambda: app.status == "500 lines · following", "following")
        await pilot.press("home")
        await until(pilot, lambda: app.lines[:1] == ["step 0"], "at the top")
        assert app.status == "line 1 of 500 · end follows"

    run_app(scenario, folder)


def test_a_smaller_or_larger_pane_stays_at_the_end(folder: Path) -> None:
    async def scenario(app: Logs, pilot: Pilot[None]) -> None:
        for height in (10, 40, 15):
            await pilot.resize_terminal(80, height)
            await until(
                pilot,
                lambda: len(app.lines) == app.view.height and app.last == "step 499",
                f"full at {height}",
            )
            assert app.view.following

    run_app(scenario, folder)


def test_the_title_names_the_logs_and_brackets_switch_between_them(folder: Path) -> None:
    async def scenario(app: Logs, pilot: Pilot[None]) -> None:
        assert app.named == "launcher  ● rank 0   ■ 1  ▲ 2  supervisor"
        await pilot.press("right_square_bracket")
        await until(pilot, lambda: app.lines == ["hello from rank 1"], "rank 1")
        await pilot.press("right_square_bracket")
        silent = "rank 2 has printed nothing yet · ] shows the next log"
        await until(pilot, lambda: [line.strip() for line in app.lines] == [silent], "rank 2")
        await pilot.press(*["left_square_bracket"] * 3)
        await until(pilot, lambda: app.lines == ["starting"], "launcher")
        await pilot.press("left_square_bracket")
        await until(pilot, lambda: "supervisor has printed nothing" in app.lines[0], "around")

    run_app(scenario, folder)


def test_a_click_on_a_name_shows_that_log(folder: Path) -> None:
    async def scenario(app: Logs, pilot: Pilot[None]) -> None:
        await pilot.click(offset=(3 + app.named.index("■"), 0))
        await until(pilot, lambda: app.lines == ["hello from rank 1"], "rank 1")

    run_app(scenario, folder)


def test_the_pane_opens_the_chosen_log(folder: Path) -> None:
    async def scenario(app: Logs, pilot: Pilot[None]) -> None:
        assert app.lines == ["hello from rank 1"]
        assert app.status == "1 line"

    run_app(scenario, folder, live=False, chosen="rank-1")


def test_the_chosen_log_stays_when_the_run_is_shown_again(folder: Path) -> None:
    async def scenario(app: Logs, pilot: Pilot[None]) -> None:
        app.pane.choose("rank-1")
        await until(pilot, lambda: app.lines == ["hello from rank 1"], "rank 1")
        app.pane.show(RANKS, True)
        app.pane.show(RANKS, False)
        await until(pilot, lambda: app.status == "1 line", "no longer live")
        assert app.lines == ["hello from rank 1"]

    run_app(scenario, folder)


def test_many_ranks_show_those_next_to_the_chosen_one(folder: Path) -> None:
    async def scenario(app: Logs, pilot: Pilot[None]) -> None:
        app.pane.show(512, True)
        app.pane.choose("rank-300")
        await until(pilot, lambda: "300" in app.named, "shown")
        assert app.named.startswith("‹ ")
        assert app.named.endswith(" ›")
        assert " 299 " in app.named
        assert " 301 " in app.named
        assert 60 < len(app.named) <= 76

    run_app(scenario, folder)


def test_a_rewritten_log_is_shown_from_its_start(folder: Path) -> None:
    async def scenario(app: Logs, pilot: Pilot[None]) -> None:
        await pilot.press("home")
        await until(pilot, lambda: app.lines[:1] == ["step 0"])
        (folder / "logs" / "rank-0.log").write_text("again\n")
        await until(pilot, lambda: app.lines == ["again"], "restarted")
        assert app.status == "1 line · following"

    run_app(scenario, folder)


def test_an_unfinished_line_is_shown_as_it_grows(folder: Path) -> None:
    async def scenario(app: Logs, pilot: Pilot[None]) -> None:
        log = folder / "logs" / "rank-0.log"
        for text, shown in (("10%\r", "10%"), ("20%\r", "20%"), ("done\nnext", "next")):
            with log.open("a") as file:
                file.write(text)
            await until(pilot, lambda shown=shown: app.last == shown, shown)
        assert app.lines[-2] == "done"

    run_app(scenario, folder)


# --- search -------------------------------------------------------------------------------------


def test_search_finds_while_typing_and_continues_in_both_directions(folder: Path) -> None:
    async def scenario(app: Logs, pilot: Pilot[None]) -> None:
        await pilot.press("slash", *"STEP 42")
        await until(pilot, lambda: app.status.startswith("line 43 of 500"), "found")
        assert "continued from the top" in app.status
        assert "step 42" in app.lines
        await until(pilot, lambda: "match 1 of 11" in app.status, "counted")
        await pilot.press("enter")
        assert app.focused is app.pane
        for key, line, at in (
            ("n", 421, 2),
            ("n", 422, 3),
            ("N", 421, 2),
            ("N", 43, 1),
            ("N", 430, 11),
        ):
            await pilot.press(key)
            await until(pilot, lambda line=line: f"line {line} " in app.status, f"{key} {line}")
            await until(pilot, lambda at=at: f"match {at} of 11" in app.status, "counted")
        assert "continued from the end" in app.status
        await pilot.press("escape")
        await until(pilot, lambda: app.status == "line 420 of 500 · end follows" or app.status)
        assert not app.query_one(Input).display
        assert app.fell_through == []
        await pilot.press("escape", "n")
        assert app.fell_through == ["back", "new"]

    run_app(scenario, folder)


def test_a_match_stays_visible_while_the_log_grows(folder: Path) -> None:
    async def scenario(app: Logs, pilot: Pilot[None]) -> None:
        await pilot.press("slash", *"step 499")
        await until(pilot, lambda: "line 500 of 500" in app.status, "found")
        write(folder, "rank-0", *["later"] * 50)
        await until(pilot, lambda: "50 new lines" in app.status, "counted")
        assert "step 499" in app.lines

    run_app(scenario, folder)


def test_words_without_a_match_are_reported(folder: Path) -> None:
    async def scenario(app: Logs, pilot: Pilot[None]) -> None:
        await pilot.press("slash", *"zebra")
        await until(pilot, lambda: "no match for “zebra” in this log" in app.status, "said")
        await pilot.press("escape")
        assert "zebra" not in app.status

    run_app(scenario, folder)


def test_words_that_are_written_during_a_search_are_found(folder: Path) -> None:
    async def scenario(app: Logs, pilot: Pilot[None]) -> None:
        await pilot.press("slash", *"zebra")
        await until(pilot, lambda: "no match for “zebra” in this log yet" in app.status, "said")
        write(folder, "rank-0", *["later"] * 3)
        await until(pilot, lambda: app.last == "later", "followed")
        write(folder, "rank-0", "a zebra", *["later"] * 50)
        await until(pilot, lambda: "line 504 of 554" in app.status, "found")
        await until(pilot, lambda: "a zebra" in app.lines, "shown")
        # What comes once one has left the search moves nothing.
        await pilot.press("escape", "end", "slash", *"okapi", "enter", "escape")
        write(folder, "rank-0", "an okapi", *["later"] * 50)
        await until(pilot, lambda: "605 lines" in app.status, "counted")
        assert app.view.following

    run_app(scenario, folder)


def test_matches_are_highlighted_and_the_current_one_stands_out(folder: Path) -> None:
    async def scenario(app: Logs, pilot: Pilot[None]) -> None:
        await pilot.press("slash", *"step 49")
        await until(pilot, lambda: app.view.found is not None, "found")
        rows = [next(iter(app.view.render_line(y))).style for y in range(app.view.height)]
        at = app.view.found - app.view.top
        assert rows[at].reverse
        assert not rows[at + 1].reverse
        assert app.view.found == 490
        assert rows[at + 1].bgcolor != rows[at - 1].bgcolor

    run_app(scenario, folder)


# --- taking it elsewhere ------------------------------------------------------------------------


def test_visible_lines_are_copied(folder: Path) -> None:
    async def scenario(app: Logs, pilot: Pilot[None]) -> None:
        await pilot.press("y")
        await until(pilot, lambda: app.notifications, "said")
        assert app.clipboard == "\n".join(app.lines)
        assert app.notifications == f"{app.view.height} lines copied"

    run_app(scenario, folder)


def test_selected_lines_are_copied(folder: Path) -> None:
    async def scenario(app: Logs, pilot: Pilot[None]) -> None:
        await pilot.mouse_down(LogView, offset=(0, 2))
        await pilot.hover(LogView, offset=(4, 4))
        await pilot.mouse_up(LogView, offset=(4, 4))
        await pilot.press("y")
        await until(pilot, lambda: app.notifications, "said")
        first, middle, last = app.clipboard.split("\n")
        assert [first, middle] == app.lines[2:4]
        assert app.lines[4].startswith(last)

    run_app(scenario, folder)


def test_more_than_a_terminal_accepts_is_not_copied(folder: Path) -> None:
    write(folder, "rank-1", *["é" * 1_900] * 60)

    async def scenario(app: Logs, pilot: Pilot[None]) -> None:
        app.pane.choose("rank-1")
        await until(pilot, lambda: len(app.lines) > 20, "shown")
        await pilot.press("y")
        await until(pilot, lambda: app.notifications, "said")
        assert len(app.clipboard.encode()) <= CLIPBOARD
        assert app.notifications.startswith("copied the first 12 of ")

    run_app(scenario, folder, (80, 40))


def test_an_empty_log_has_nothing_to_copy(folder: Path) -> None:
    async def scenario(app: Logs, pilot: Pilot[None]) -> None:
        app.pane.choose("rank-2")
        await pilot.press("y")
        await until(pilot, lambda: app.notifications, "said")
        assert app.notifications == "no lines to copy"
        assert app.clipboard == ""

    run_app(scenario, folder)


def test_a_log_is_saved_as_it_is_and_never_over_another_file(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    saved = tmp_path / f"{folder.name}-rank-0.log"

    async def scenario(app: Logs, pilot: Pilot[None]) -> None:
        await save(app, pilot)
        await until(pilot, lambda: str(saved) in app.notifications, "saved")
        assert saved.read_bytes() == (folder / "logs" / "rank-0.log").read_bytes()
        saved.write_text("mine")
        app.clear_notifications()
        await save(app, pilot)
        await until(
            pilot, lambda: "already exists; choose another name" in app.notifications, "refused"
        )
        assert saved.read_text() == "mine"

    async def save(app: Logs, pilot: Pilot[None]) -> None:
        await pilot.press("ctrl+s")
        await until(pilot, lambda: isinstance(app.screen, PromptDialog), "asked")
        await pilot.press("enter")

    run_app(scenario, folder)


# --- what it costs ------------------------------------------------------------------------------


def test_a_hidden_pane_reads_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(app: Logs, pilot: Pilot[None]) -> None:
        app.pane.display = False
        assert not app.pane.is_displayed
        await pilot.pause(0.6)
        looked: list[object] = []
        stat = os.stat
        monkeypatch.setattr(os, "stat", lambda *a, **k: looked.append(a) or stat(*a, **k))
        write(folder, "rank-0", "unseen")
        await pilot.pause(0.6)
        monkeypatch.undo()
        assert looked == []
        app.pane.display = True
        await until(pilot, lambda: app.last == "unseen", "shown again")

    run_app(scenario, folder)


def test_a_big_log_is_shown_at_once_and_scrolls_to_its_top(folder: Path) -> None:
    text = "".join(f"line {number} {'.' * 80}\n" for number in range(200_000))
    (folder / "logs" / "rank-1.log").write_text(text)

    async def scenario(app: Logs, pilot: Pilot[None]) -> None:
        app.pane.choose("rank-1")
        await until(pilot, lambda: app.status == "200,000 lines · following", "counted")
        await pilot.press("home")
        await until(pilot, lambda: app.lines and app.lines[0].startswith("line 0 "), "at the top")
        assert app.view.kept_lines < 500

    run_app(scenario, folder)


def test_lines_wider_than_the_pane_are_marked_and_can_be_scrolled(folder: Path) -> None:
    write(folder, "rank-1", "left" + "." * 90 + "right")

    async def scenario(app: Logs, pilot: Pilot[None]) -> None:
        app.pane.choose("rank-1")
        await until(pilot, lambda: app.last.endswith("›"), "marked")
        await pilot.press("right", "right")
        await until(pilot, lambda: app.last.endswith("right"), "seen")
        await pilot.press("left", "left")
        await until(pilot, lambda: app.last.startswith("left"), "back")

    run_app(scenario, folder)
