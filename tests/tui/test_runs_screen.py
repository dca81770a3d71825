"""The table of runs and the comparison as a person uses them."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from textual.command import CommandList
from textual.content import Content
from textual.pilot import Pilot
from textual.widgets import Input, Label, Static

from runners.errors import DistrainError
from runners.record import Record
from runners.runs import Run
from tui import settings
from tui.app import DistrainApp
from tui.screens.compare import CompareScreen
from tui.screens.config import ConfigScreen
from tui.screens.dialogs import Choice, Edit
from tui.screens.run import RunScreen
from tui.screens.runs import RunsScreen
from tui.widgets.diff_pane import DiffPane
from tui.widgets.plot import PlotPane
from tui.widgets.run_lines import COLUMNS, columns
from tui.widgets.run_table import RunTable

from .conftest import Made, until

Make = Callable[..., Made]
Story = Callable[[Pilot[None], DistrainApp], Awaitable[None]]
SIZES = [(80, 24), (120, 36)]


def tell(story: Story, runs_dir: Path, size: tuple[int, int] = (120, 36), **how: Any) -> None:
    """Play a story in the app, from the moment on that all runs are listed."""

    async def play() -> None:
        app = DistrainApp(runs_dir, **how)
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: any(s._complete for s in tables_of(app)), "listed")
            await story(pilot, app)
            if app.mishaps:
                raise app.mishaps[0]

    asyncio.run(play())


def tables_of(app: DistrainApp) -> list[RunsScreen]:
    return [screen for screen in app.screen_stack if isinstance(screen, RunsScreen)]


def table(app: DistrainApp) -> RunTable:
    return tables_of(app)[0].query_one(RunTable)


def lines(app: DistrainApp) -> list[str]:
    """The table as it is seen, without its head."""
    pane = table(app)
    found = [pane.render_line(y).text.rstrip() for y in range(1, pane.size.height)]
    return [line for line in found if line]


def shows(app: DistrainApp, *names: str) -> bool:
    """Whether these are the runs in the table, in this order."""
    found = lines(app)
    return len(found) == len(names) and all(map(str.__contains__, found, names))


def said(app: DistrainApp) -> str:
    return " ".join(notification.message for notification in app._notifications)


# --- the table ---


@pytest.mark.parametrize("size", SIZES)
def test_runs_are_listed_newest_first_with_what_they_came_to(
    ended: Make, make: Make, runs_dir: Path, size: tuple[int, int]
) -> None:
    ended("older", ago=9000, top1=0.75)
    make("under way", ago=50).steps(20)

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        first, second = lines(app)
        assert "under way" in first
        assert "50 %" in first
        for text in ("older", "ddp ×2", "40", "1,280", "75.00 %", "2 h"):
            assert text in second

    tell(story, runs_dir, size)


def test_without_runs_it_names_the_key_that_launches_one(runs_dir: Path) -> None:
    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        assert [line.strip() for line in lines(app)] == ["No runs yet. n launches one."]

    tell(story, runs_dir, readonly=True)


@pytest.mark.parametrize("size", SIZES)
def test_enter_opens_the_run_and_escape_comes_back(
    ended: Make, runs_dir: Path, size: tuple[int, int]
) -> None:
    ended("new", ago=10)
    wanted = ended("old", ago=9000)

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "opened")
        assert isinstance(app.screen, RunScreen)
        assert app.screen.run.id == wanted.id
        await pilot.press("escape")
        assert isinstance(app.screen, RunsScreen)

    tell(story, runs_dir, size)


def test_a_click_points_and_another_one_opens(ended: Make, runs_dir: Path) -> None:
    ended("new", ago=10)
    wanted = ended("old", ago=9000)

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.click(RunTable, offset=(10, 2))
        row = table(app).row
        assert row is not None
        assert row.id == wanted.id
        await pilot.click(RunTable, offset=(10, 2))
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "opened")

    tell(story, runs_dir)


def test_a_new_run_does_not_slip_under_the_cursor(ended: Make, runs_dir: Path) -> None:
    ended("old", ago=9000)

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        ended("new", ago=10)
        await until(pilot, lambda: shows(app, "new", "old"), "listed")
        row = table(app).row
        assert row is not None
        assert row.name == "old"

    tell(story, runs_dir)


def test_who_has_scrolled_away_is_left_there_while_runs_go_on(make: Make, runs_dir: Path) -> None:
    runs = [make(f"run {number}", ago=10 + number) for number in range(30)]

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        table(app).scroll_to(y=5, animate=False)
        await until(pilot, lambda: "run 5" in lines(app)[0], "scrolled")
        runs[7].steps(20)
        await until(pilot, lambda: "50 %" in lines(app)[2], "gone on")
        assert "run 5" in lines(app)[0]

    tell(story, runs_dir, (80, 24))


def test_what_a_filter_finds_is_in_sight_wherever_one_was(ended: Make, runs_dir: Path) -> None:
    for number in range(30):
        ended(f"run-{number:02}", ago=10 + number)

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        table(app).scroll_to(y=8, animate=False)
        await until(pilot, lambda: "run-08" in lines(app)[0], "scrolled")
        await pilot.press("slash", *"run-03", "enter")
        await until(pilot, lambda: shows(app, "run-03"), "found")

    tell(story, runs_dir, (80, 24))


def test_a_run_that_ends_is_seen_to_end(make: Make, runs_dir: Path) -> None:
    run = make("mine").steps(10)

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        about = app.screen.query_one("#runs-about", Static)
        run.end("failed", reason="rank 1 ran out of memory")
        await until(pilot, lambda: "rank 1 ran out of memory" in str(about.render()), "told")
        assert "✘" in lines(app)[0]

    tell(story, runs_dir)


def test_a_filter_narrows_while_typing_and_escape_shows_all(ended: Make, runs_dir: Path) -> None:
    ended("first", ago=10)
    ended("second", ago=20).note(tags=["paper"])

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("slash", *"paper")
        await until(pilot, lambda: shows(app, "second"), "narrowed")
        await pilot.press("enter", "escape")
        await until(pilot, lambda: shows(app, "first", "second"), "widened")
        assert not app.screen.query_one(Input).display
        await pilot.press("slash", *"xyz")
        await until(pilot, lambda: "No run has all" in lines(app)[0], "told")

    tell(story, runs_dir)


def test_the_order_is_kept_for_the_next_time(ended: Make, runs_dir: Path) -> None:
    ended("slow", ago=10, top1=0.5)
    ended("good", ago=20, top1=0.9)

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        while app.settings.sort != "metric":
            await pilot.press("o")
        assert shows(app, "good", "slow")
        await pilot.press("O")
        assert shows(app, "slow", "good")

    tell(story, runs_dir)
    assert (settings.load()[0].sort, settings.load()[0].descending) == ("metric", False)

    async def again(pilot: Pilot[None], app: DistrainApp) -> None:
        assert shows(app, "slow", "good")

    tell(again, runs_dir)


def test_a_click_on_a_head_sorts_by_it(ended: Make, runs_dir: Path) -> None:
    ended("b", ago=10)
    ended("a", ago=20)

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.click(RunTable, offset=(8, 0))
        assert shows(app, " a ", " b ")
        assert "name↑" in table(app).render_line(0).text

    tell(story, runs_dir)


def test_a_pinned_run_goes_to_the_top(ended: Make, runs_dir: Path) -> None:
    ended("new", ago=10)
    old = ended("old", ago=9000)

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("down", "p")
        await until(pilot, lambda: shows(app, "↥", "new"), "pinned")
        assert Record(old.dir).meta.pinned
        await pilot.press("p")
        await until(pilot, lambda: shows(app, "new", "old"), "unpinned")

    tell(story, runs_dir)


def test_name_notes_and_tags_are_edited(ended: Make, runs_dir: Path) -> None:
    run = ended("before")

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("e")
        assert isinstance(app.screen, Edit)
        app.screen.query_one("#field-name", Input).value = "after"
        app.screen.query_one("#field-tags", Input).value = "paper, keep"
        await pilot.press("enter")
        await until(pilot, lambda: shows(app, "after"), "renamed")
        assert Record(run.dir).meta.tags == ["paper", "keep"]

    tell(story, runs_dir)


def test_what_was_typed_stays_where_it_cannot_be_saved(ended: Make, runs_dir: Path) -> None:
    run = ended("before")

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("e")
        notes = app.screen.query_one("#field-notes", Input)
        notes.value = "long thoughts"
        meta = run.dir / "meta.json"
        whole = meta.read_text()
        meta.write_text("{")
        await pilot.press("enter")
        complaint = str(app.screen.query_one(".complaint", Label).content)
        assert "meta.json" in complaint
        assert notes.value == "long thoughts"
        meta.write_text(whole)
        await pilot.press("enter")
        await until(pilot, lambda: not isinstance(app.screen, Edit), "saved")
        assert Record(run.dir).meta.notes == "long thoughts"

    tell(story, runs_dir)


def test_a_copy_of_a_record_is_a_run_of_its_own(ended: Make, runs_dir: Path) -> None:
    run = ended("twice")
    shutil.copytree(run.dir, runs_dir / "kept")

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        assert len(lines(app)) == 2
        here = table(app).row
        assert here is not None
        await pilot.press("d", "enter")
        await until(pilot, lambda: len(lines(app)) == 1, "deleted")
        assert not (runs_dir / here.id).exists()
        assert (run.dir.exists(), (runs_dir / "kept").exists()).count(True) == 1

    tell(story, runs_dir)


def test_a_copy_of_a_live_record_is_no_live_run(make: Make, runs_dir: Path) -> None:
    run = make("live").steps(20)
    shutil.copytree(run.dir, runs_dir / "copy")

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        await until(pilot, lambda: len(lines(app)) == 2, "listed")
        table(app).point_at(next(at for at, row in enumerate(table(app)._rows) if not row.live))
        await pilot.press("s")
        assert "has ended: failed" in said(app)
        about = app.screen.query_one("#runs-about", Static)
        assert f"copied or renamed from {run.id} while that was running" in str(about.render())

    tell(story, runs_dir)


def test_a_live_record_that_goes_away_is_no_longer_listed(make: Make, runs_dir: Path) -> None:
    run = make("live").steps(20)

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        await until(pilot, lambda: shows(app, "live"), "listed")
        (run.dir / "run.json").unlink()
        await until(pilot, lambda: not tables_of(app)[0]._rows, "gone")

    tell(story, runs_dir)


def test_a_stop_that_was_meant_for_the_queue_ends_no_training(make: Make, runs_dir: Path) -> None:
    run = make("patient")
    run.writer.set_state(status="queued")

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        await until(pilot, lambda: shows(app, "patient"), "listed")
        await pilot.press("s")
        assert isinstance(app.screen, Choice)
        run.writer.set_state(status="running", socket="tcp:127.0.0.1:1")
        await pilot.press("enter")
        await until(pilot, lambda: "has left the queue meanwhile" in said(app), "refused")

    tell(story, runs_dir)


def test_a_second_launch_waits_for_the_first_to_begin(
    ended: Make, runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended("mine")
    goes_on, launched = threading.Event(), []

    def launch(*_: Any, **__: Any) -> Run:
        launched.append(1)
        goes_on.wait(30)
        raise DistrainError("enough")

    monkeypatch.setattr("runners.runs.launch", launch)

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("r", "r", "r")
        await until(pilot, lambda: launched, "launched")
        assert "rerun of mine is being launched" in said(app)
        goes_on.set()
        await until(pilot, lambda: "rerun of mine: enough" in said(app), "refused")
        assert launched == [1]
        await pilot.press("r")
        await until(pilot, lambda: len(launched) == 2, "launched again")

    tell(story, runs_dir)


def test_two_of_one_name_have_room_in_the_trash(ended: Make, runs_dir: Path) -> None:
    run = ended("mine")
    keep = runs_dir.parent / "keep"
    shutil.copytree(run.dir, keep)

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        for _ in range(2):
            await until(pilot, lambda: shows(app, "mine"), "listed")
            await pilot.press("d", "enter")
            await until(pilot, lambda: not shows(app, "mine"), "deleted")
            if keep.exists():
                keep.rename(run.dir)
        await pilot.press("u")
        await until(pilot, lambda: shows(app, "mine"), "restored")
        assert run.dir.exists()

    tell(story, runs_dir)


def test_a_name_may_hold_anything(make: Make, runs_dir: Path) -> None:
    name = "[/b] [red]odd"
    run = make(name).steps(20)

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        run.end("failed", reason="no [/such] file")
        await until(pilot, lambda: f"{name}: no [/such] file" in said(app), "told")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "opened")
        await pilot.press("i")
        await until(pilot, lambda: isinstance(app.screen, ConfigScreen), "opened")
        assert app.screen.query_one("#page").border_title == Content(name).markup
        await pilot.press("escape", "escape")
        await until(pilot, lambda: isinstance(app.screen, RunsScreen), "back")
        await pilot.press("d")
        await until(pilot, lambda: isinstance(app.screen, Choice), "asked")
        assert str(app.screen.query_one(".dialog-title", Label).content) == f"Delete {name}?"

    tell(story, runs_dir)


def test_the_palette_does_what_keys_do(ended: Make, runs_dir: Path) -> None:
    run = ended("mine")

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        async def pick(action: str) -> None:
            await pilot.press("ctrl+p", *action)
            await until(pilot, lambda: app.screen.query_one(CommandList).option_count == 1, "found")
            await pilot.press("enter")

        await pick("pin")
        await until(pilot, lambda: Record(run.dir).meta.pinned, "pinned")
        await pick("copy")
        await until(pilot, lambda: app.clipboard == run.id, "copied")

    tell(story, runs_dir)


def test_marked_runs_are_deleted_together_and_come_back(ended: Make, runs_dir: Path) -> None:
    for number in range(3):
        ended(f"run {number}", ago=10 * (number + 1))

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("space", "space", "d")
        assert isinstance(app.screen, Choice)
        await pilot.press("enter")
        await until(pilot, lambda: shows(app, "run 2"), "deleted")
        await pilot.press("u")
        await until(pilot, lambda: shows(app, "run 0", "run 1", "run 2"), "restored")
        await pilot.press("u")
        assert "nothing was deleted" in said(app)

    tell(story, runs_dir)


def test_what_could_not_be_taken_back_may_be_tried_again(ended: Make, runs_dir: Path) -> None:
    run = ended("mine")

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("d", "enter")
        await until(pilot, lambda: not lines(app)[1:] and not shows(app, "mine"), "deleted")
        run.dir.mkdir()
        await pilot.press("u")
        await until(pilot, lambda: "is there already" in said(app), "refused")
        shutil.rmtree(run.dir)
        await pilot.press("u")
        await until(pilot, lambda: shows(app, "mine"), "restored")

    tell(story, runs_dir)


def test_marked_runs_that_a_filter_hides_are_not_deleted(ended: Make, runs_dir: Path) -> None:
    hidden = ended("hidden", ago=10)
    ended("shown", ago=20)

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("space", "slash", *"shown", "enter")
        await until(pilot, lambda: shows(app, "shown"), "narrowed")
        await pilot.press("d", "enter")
        await until(pilot, lambda: not shows(app, "shown"), "deleted")
        assert hidden.dir.exists()

    tell(story, runs_dir)


def test_looking_on_changes_nothing_and_says_why(ended: Make, runs_dir: Path) -> None:
    ended("mine")

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        for key in ("p", "e", "d", "r", "R", "s", "u"):
            app.clear_notifications()
            await pilot.press(key)
            assert "only looks on" in said(app), key
            assert isinstance(app.screen, RunsScreen)

    tell(story, runs_dir, readonly=True)


def test_a_folder_that_cannot_be_read_is_named(ended: Make, runs_dir: Path) -> None:
    ended("fine")
    (runs_dir / "broken").mkdir()
    (runs_dir / "broken" / "run.json").write_text("{")

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        line = app.screen.query_one("#runs-problem", Static)
        await until(pilot, lambda: line.display, "told")
        assert "run.json is broken" in str(line.render())
        assert shows(app, "fine")

    tell(story, runs_dir)


@pytest.mark.parametrize(
    "keys", [[], ["enter"], ["enter", "m"], ["space", "space", "c"], ["n"], ["e"], ["d"]]
)
def test_no_screen_is_too_small(ended: Make, runs_dir: Path, keys: list[str]) -> None:
    ended("one")
    ended("two")

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        for key in keys:
            await pilot.press(key)
            await pilot.pause(0.3)
        for size in ((1, 1), (2, 2), (9, 3), (3, 9), (200, 1), (80, 24)):
            await pilot.resize_terminal(*size)
            await pilot.press("tab")
            await pilot.pause(0.1)

    tell(story, runs_dir)


@pytest.mark.parametrize("width", range(40, 240, 7))
def test_columns_fill_the_width_and_the_important_ones_stay(width: int) -> None:
    found = columns(width)
    kept = {column.name for column in COLUMNS if not column.spare}
    assert kept <= {column.name for column in found}
    if width >= 65:
        assert 5 + sum(column.width + 1 for column in found) == width


# --- the comparison ---


@pytest.mark.parametrize("size", SIZES)
def test_marked_runs_are_laid_over_each_other(
    ended: Make, make: Make, runs_dir: Path, size: tuple[int, int]
) -> None:
    ended("one", ago=10, **{"train.lr": 0.2})
    make("two", ago=20).steps(10)

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("space", "space", "c")
        screen = app.screen
        assert isinstance(screen, CompareScreen)
        await until(pilot, lambda: screen._found is not None, "compared")
        assert screen._found is not None
        assert [run.name for run in screen._found.runs] == ["one", "two"]
        await pilot.press("shift+tab")
        await until(pilot, lambda: "train.lr" in text_of(screen.query_one(DiffPane)), "told")
        assert "train.epochs" not in text_of(screen.query_one(DiffPane))
        await pilot.press("d")
        assert "train.epochs" in text_of(screen.query_one(DiffPane))
        seen = screen._found
        await pilot.press("x")
        await until(pilot, lambda: screen._found is not seen, "read by epoch")
        assert screen._found.charts["loss"].x_axis == "epoch"
        await pilot.press("escape")
        assert isinstance(app.screen, RunsScreen)

    tell(story, runs_dir, size)


def text_of(pane: DiffPane) -> str:
    return "\n".join(line.plain for line in pane._lines)


def test_on_a_small_screen_tab_shows_one_pane_after_the_other(ended: Make, runs_dir: Path) -> None:
    ended("one", ago=10, **{"train.lr": 0.2})
    ended("two", ago=20)

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("space", "space", "c")
        screen = app.screen
        assert isinstance(screen, CompareScreen)
        panes = [*screen.query(PlotPane), screen.query_one(DiffPane)]
        for pane in panes:
            await until(pilot, partial(_only, pane, panes), f"{pane} alone")
            await pilot.press("tab")
        await until(pilot, lambda: _only(panes[0], panes), "back")

    tell(story, runs_dir, (80, 24))


def _only(pane: object, panes: list[Any]) -> bool:
    return [other for other in panes if other.region] == [pane]


def test_one_run_is_not_compared(ended: Make, runs_dir: Path) -> None:
    ended("one")

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("c")
        assert "mark two runs or more" in said(app)
        assert isinstance(app.screen, RunsScreen)

    tell(story, runs_dir)


def test_what_a_run_was_launched_with_can_be_read(ended: Make, runs_dir: Path) -> None:
    run = ended("mine", **{"train.lr": 0.125}).note(notes="as in the thesis")

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        await app.push_screen(ConfigScreen(run.record))
        text = str(app.screen.query_one("#page Static", Static).render())
        for part in ("as in the thesis", "lr = 0.125", 'backend = "gloo"'):
            assert part in text
        await pilot.press("escape")
        assert isinstance(app.screen, RunsScreen)

    tell(story, runs_dir)


def test_what_could_not_be_deleted_is_not_said_to_be(
    ended: Make, runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended("mine")

    def refused(_: Record) -> Path:
        raise DistrainError("the folder is on fire")

    monkeypatch.setattr("runners.record.remove", refused)

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("d")
        await until(pilot, lambda: isinstance(app.screen, Choice), "asked")
        await pilot.press("enter")
        await until(pilot, lambda: app._notifications, "told")
        assert [told.message for told in app._notifications] == ["the folder is on fire"]
        assert not app.deleted

    tell(story, runs_dir)
