"""The table of runs and the comparison, used with keys and mouse."""

from __future__ import annotations

import asyncio
import re
import shutil
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from textual.color import Color
from textual.content import Content
from textual.pilot import Pilot
from textual.widgets import Input, Label, OptionList, Static

from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import DistrainError
from distrain.runners.records.reader import Record
from distrain.runners.runs import Run
from distrain.tui import settings
from distrain.tui.actions import launch_controller
from distrain.tui.app import DistrainApp
from distrain.tui.data.run_rows import RunRow
from distrain.tui.dialogs.copy import CopyDialog
from distrain.tui.dialogs.dialog import ChoiceDialog
from distrain.tui.dialogs.edit import EditDialog
from distrain.tui.dialogs.error import ErrorDialog
from distrain.tui.dialogs.palette import PaletteDialog
from distrain.tui.dialogs.pick_one import PickOneDialog
from distrain.tui.marks import first_marks
from distrain.tui.screens.compare_screen import CompareScreen
from distrain.tui.screens.config_screen import ConfigScreen, page
from distrain.tui.screens.run_screen import RunScreen
from distrain.tui.screens.runs_screen import RunsScreen
from distrain.tui.widgets.diff_pane import DiffPane
from distrain.tui.widgets.plot_pane import PlotPane
from distrain.tui.widgets.run_columns import COLUMNS, TableLayout
from distrain.tui.widgets.run_table import RunTable
from tests.support.records import RunBuilder

from .app_driver import messages, screen_lines, until

Make = Callable[..., RunBuilder]
Scenario = Callable[[Pilot[None], DistrainApp], Awaitable[None]]
SIZES = [(80, 24), (120, 36)]


def run_app(
    scenario: Scenario, runs_dir: Path, size: tuple[int, int] = (120, 36), **how: Any
) -> None:
    """Run a scenario in the app once all runs are listed."""

    async def play() -> None:
        app = DistrainApp(runs_dir, **how)
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: any(s.is_complete for s in tables_of(app)), "listed")
            await scenario(pilot, app)
            if app.internal_errors:
                raise app.internal_errors[0]

    asyncio.run(play())


def tables_of(app: DistrainApp) -> list[RunsScreen]:
    return [screen for screen in app.screen_stack if isinstance(screen, RunsScreen)]


def table(app: DistrainApp) -> RunTable:
    return tables_of(app)[0].query_one(RunTable)


def lines(app: DistrainApp) -> list[str]:
    """Return the visible table without its header."""
    pane = table(app)
    found = [pane.render_line(y).text.rstrip() for y in range(1, pane.size.height)]
    return [line for line in found if line]


def shows(app: DistrainApp, *names: str) -> bool:
    """Return whether the table lists these runs, in this order."""
    found = lines(app)
    return len(found) == len(names) and all(map(str.__contains__, found, names))


def notifications(app: DistrainApp) -> str:
    return " ".join(messages(app))


# --- the table ---


@pytest.mark.parametrize("size", SIZES)
def test_runs_are_listed_newest_first_with_their_results(
    ended: Make, make: Make, runs_dir: Path, size: tuple[int, int]
) -> None:
    ended("older", ago=9000, top1=0.75)
    make("live run", ago=50).steps(20)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        first, second = lines(app)
        assert "live run" in first
        assert "50 %" in first
        for text in ("older", "40", "1,280 mean", "75.00 %", "2 h"):
            assert text in second
        about = app.screen.query_one("#runs-about", Static)
        assert "ddp ×2" in str(about.render())  # all rows have it

    run_app(scenario, runs_dir, size)


def test_an_empty_table_names_the_key_that_launches_a_run(runs_dir: Path) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        assert [line.strip() for line in lines(app)] == ["No runs yet. n launches one."]

    run_app(scenario, runs_dir, readonly=True)


@pytest.mark.parametrize("size", SIZES)
def test_enter_opens_the_run_and_escape_goes_back(
    ended: Make, runs_dir: Path, size: tuple[int, int]
) -> None:
    ended("new", ago=10)
    wanted = ended("old", ago=9000)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "opened")
        assert isinstance(app.screen, RunScreen)
        assert app.screen.run.id == wanted.id
        await pilot.press("escape")
        assert isinstance(app.screen, RunsScreen)

    run_app(scenario, runs_dir, size)


def test_a_click_selects_a_run_and_a_second_click_opens_it(ended: Make, runs_dir: Path) -> None:
    ended("new", ago=10)
    wanted = ended("old", ago=9000)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.click(RunTable, offset=(10, 2))
        row = table(app).row
        assert row is not None
        assert row.id == wanted.id
        await pilot.click(RunTable, offset=(10, 2))
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "opened")

    run_app(scenario, runs_dir)


def test_the_cursor_stays_on_its_run_when_a_new_run_appears(ended: Make, runs_dir: Path) -> None:
    ended("old", ago=9000)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        ended("new", ago=10)
        await until(pilot, lambda: shows(app, "new", "old"), "listed")
        row = table(app).row
        assert row is not None
        assert row.name == "old"

    run_app(scenario, runs_dir)


def test_the_scroll_position_is_kept_while_runs_continue(make: Make, runs_dir: Path) -> None:
    runs = [make(f"run {number}", ago=10 + number) for number in range(30)]

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        table(app).scroll_to(y=5, animate=False)
        await until(pilot, lambda: "run 5" in lines(app)[0], "scrolled")
        runs[7].steps(20)
        await until(pilot, lambda: "50 %" in lines(app)[2], "gone on")
        assert "run 5" in lines(app)[0]

    run_app(scenario, runs_dir, (80, 24))


def test_filtered_runs_are_visible_after_scrolling(ended: Make, runs_dir: Path) -> None:
    for number in range(30):
        ended(f"run-{number:02}", ago=10 + number)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        table(app).scroll_to(y=8, animate=False)
        await until(pilot, lambda: "run-08" in lines(app)[0], "scrolled")
        await pilot.press("slash", *"run-03", "enter")
        await until(pilot, lambda: shows(app, "run-03"), "found")

    run_app(scenario, runs_dir, (80, 24))


def test_the_table_shows_the_end_of_a_run(make: Make, runs_dir: Path) -> None:
    run = make("mine").steps(10)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        about = app.screen.query_one("#runs-about", Static)
        run.end("failed", reason="rank 1 ran out of memory")
        await until(pilot, lambda: "rank 1 ran out of memory" in str(about.render()), "shown")
        assert "✘" in lines(app)[0]

    run_app(scenario, runs_dir)


def test_the_filter_applies_while_typing_and_escape_clears_it(ended: Make, runs_dir: Path) -> None:
    ended("first", ago=10)
    ended("second", ago=20).note(tags=["paper"])

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("slash", *"paper")
        await until(pilot, lambda: shows(app, "second"), "narrowed")
        await pilot.press("enter", "escape")
        await until(pilot, lambda: shows(app, "first", "second"), "widened")
        assert not app.screen.query_one(Input).display
        await pilot.press("slash", *"xyz")
        await until(pilot, lambda: "No run matches the filter" in lines(app)[0], "shown")

    run_app(scenario, runs_dir)


def test_the_sort_order_is_remembered(ended: Make, runs_dir: Path) -> None:
    ended("slow", ago=10, top1=0.5)
    ended("good", ago=20, top1=0.9)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        while app.settings.sort != "metric":
            await pilot.press("o")
        assert shows(app, "good", "slow")
        await pilot.press("O")
        assert shows(app, "slow", "good")

    run_app(scenario, runs_dir)
    assert (settings.load()[0].sort, settings.load()[0].descending) == ("metric", False)

    async def again(pilot: Pilot[None], app: DistrainApp) -> None:
        assert shows(app, "slow", "good")

    run_app(again, runs_dir)


def test_a_sort_order_of_an_earlier_version_is_known(ended: Make, runs_dir: Path) -> None:
    ended("a")
    settings.save(settings.Settings(sort="took"))

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        assert "↓duration" in table(app).render_line(0).text

    run_app(scenario, runs_dir)


def test_a_click_on_a_column_header_sorts(ended: Make, runs_dir: Path) -> None:
    ended("b", ago=10)
    ended("a", ago=20)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.click(RunTable, offset=(8, 0))
        assert shows(app, " a ", " b ")
        assert "name↑" in table(app).render_line(0).text

    run_app(scenario, runs_dir)


def test_a_pinned_run_goes_to_the_top(ended: Make, runs_dir: Path) -> None:
    ended("new", ago=10)
    old = ended("old", ago=9000)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("down", "p")
        await until(pilot, lambda: shows(app, "↥", "new"), "pinned")
        assert Record(old.dir).meta.pinned
        await pilot.press("p")
        await until(pilot, lambda: shows(app, "new", "old"), "unpinned")

    run_app(scenario, runs_dir)


def test_name_notes_and_tags_are_edited(ended: Make, runs_dir: Path) -> None:
    run = ended("before")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("e")
        assert isinstance(app.screen, EditDialog)
        app.screen.query_one("#field-name", Input).value = "after"
        app.screen.query_one("#field-tags", Input).value = "paper, keep"
        await pilot.press("enter")
        await until(pilot, lambda: shows(app, "after"), "renamed")
        assert Record(run.dir).meta.tags == ["paper", "keep"]

    run_app(scenario, runs_dir)


def test_the_edit_dialog_keeps_the_typed_text_if_saving_fails(ended: Make, runs_dir: Path) -> None:
    run = ended("before")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
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
        await until(pilot, lambda: not isinstance(app.screen, EditDialog), "saved")
        assert Record(run.dir).meta.notes == "long thoughts"

    run_app(scenario, runs_dir)


def test_a_copy_of_a_record_is_listed_as_a_separate_run(ended: Make, runs_dir: Path) -> None:
    run = ended("twice")
    shutil.copytree(run.dir, runs_dir / "kept")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        assert len(lines(app)) == 2
        here = table(app).row
        assert here is not None
        await pilot.press("d", "right", "enter")
        await until(pilot, lambda: len(lines(app)) == 1, "deleted")
        assert not (runs_dir / here.id).exists()
        assert (run.dir.exists(), (runs_dir / "kept").exists()).count(True) == 1

    run_app(scenario, runs_dir)


def test_a_copy_of_a_live_record_is_not_live(make: Make, runs_dir: Path) -> None:
    run = make("live").steps(20)
    shutil.copytree(run.dir, runs_dir / "copy")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await until(pilot, lambda: len(lines(app)) == 2, "listed")
        table(app).point_at(next(at for at, row in enumerate(table(app).rows) if not row.live))
        await pilot.press("s")
        assert "has already ended: failed" in notifications(app)
        about = app.screen.query_one("#runs-about", Static)
        assert f"copied or renamed from {run.id} while that was running" in str(about.render())

    run_app(scenario, runs_dir)


def test_a_live_record_that_is_removed_is_no_longer_listed(make: Make, runs_dir: Path) -> None:
    run = make("live").steps(20)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await until(pilot, lambda: shows(app, "live"), "listed")
        shutil.rmtree(run.dir)
        await until(pilot, lambda: not tables_of(app)[0].rows, "gone")

    run_app(scenario, runs_dir)


@pytest.mark.parametrize("status", ["running", "stopped"])
def test_removing_from_the_queue_does_not_stop_a_run_that_has_left_it(
    status: str, make: Make, runs_dir: Path
) -> None:
    run = make("patient")
    run.writer.set_state(status="queued")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await until(pilot, lambda: shows(app, "patient"), "listed")
        await pilot.press("s")
        assert isinstance(app.screen, ChoiceDialog)
        run.writer.set_state(status=status, socket="tcp:127.0.0.1:1")
        await pilot.press("right", "enter")
        said = f"has left the queue and is {status}"
        await until(pilot, lambda: said in notifications(app), "refused")

    run_app(scenario, runs_dir)


async def launch_again(pilot: Pilot[None], app: DistrainApp) -> None:
    await pilot.press("r")
    await until(pilot, lambda: isinstance(app.screen, ChoiceDialog), "asked")
    await pilot.press("l")


def test_a_second_launch_is_refused_until_the_first_has_started(
    ended: Make, runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended("mine")
    goes_on, launched = threading.Event(), []

    def launch(*_: Any, **__: Any) -> Run:
        launched.append(1)
        goes_on.wait(30)
        raise DistrainError("enough")

    monkeypatch.setattr("distrain.runners.runs.launch", launch)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("r")
        await until(pilot, lambda: isinstance(app.screen, ChoiceDialog), "asked")
        assert app.focused is app.screen.query_one("#cancel")
        assert "2 ranks on cpu:0–1" in str(app.screen.text.content)
        await pilot.press("r", "enter")
        assert not isinstance(app.screen, ChoiceDialog)
        await pilot.press("r")
        await until(pilot, lambda: isinstance(app.screen, ChoiceDialog), "asked")
        await pilot.press("l", "r")
        await until(pilot, lambda: launched, "launched")
        assert "rerun mine is in progress" in notifications(app)
        goes_on.set()
        await until(pilot, lambda: "rerun mine: enough" in notifications(app), "refused")
        assert launched == [1]
        fault = OSError("an error of the app's own")
        monkeypatch.setattr("distrain.runners.runs.launch", Mock(side_effect=fault))
        await launch_again(pilot, app)
        await until(pilot, lambda: isinstance(app.screen, ErrorDialog), "failed")
        await pilot.press("escape")
        await until(pilot, lambda: tables_of(app)[-1].is_complete, "listed")
        await pilot.press("r")
        await until(pilot, lambda: isinstance(app.screen, ChoiceDialog), "asked")
        app._handle_exception(fault)  # of a screen below the question, which is never answered
        await until(pilot, lambda: isinstance(app.screen, ErrorDialog), "failed")
        await pilot.press("escape")
        monkeypatch.setattr("distrain.runners.runs.launch", launch)
        app.internal_errors.clear()
        await until(pilot, lambda: tables_of(app)[-1].is_complete, "listed")
        await launch_again(pilot, app)
        await until(pilot, lambda: len(launched) == 2, "launched again")

    run_app(scenario, runs_dir)


def test_a_launch_question_takes_no_key_that_was_meant_for_something_else(
    ended: Make, runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ended("mine")
    goes_on, launched = threading.Event(), Mock(side_effect=DistrainError("enough"))
    check = launch_controller.check

    def check_late(*how: Any) -> Any:
        goes_on.wait(30)
        return check(*how)

    monkeypatch.setattr(launch_controller, "check", check_late)
    monkeypatch.setattr("distrain.runners.runs.launch", launched)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("r", "e", *"mo")
        goes_on.set()
        await until(pilot, lambda: "rerun mine: not asked" in notifications(app), "dropped")
        assert isinstance(app.screen, EditDialog)
        await pilot.press(*"del", "enter")
        await until(pilot, lambda: Run(Record(run.dir)).name.endswith("model"), "typed")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "opened")
        await pilot.press("r")
        await until(pilot, lambda: isinstance(app.screen, ChoiceDialog), "asked")
        await pilot.press("l")  # the logs of the screen below
        assert isinstance(app.screen, ChoiceDialog)
        assert not launched.called

    run_app(scenario, runs_dir)


def test_two_runs_with_one_id_fit_into_the_trash(ended: Make, runs_dir: Path) -> None:
    run = ended("mine")
    keep = runs_dir.parent / "keep"
    shutil.copytree(run.dir, keep)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        for _ in range(2):
            await until(pilot, lambda: shows(app, "mine"), "listed")
            await pilot.press("d", "right", "enter")
            await until(pilot, lambda: not shows(app, "mine"), "deleted")
            if keep.exists():
                keep.rename(run.dir)
        await pilot.press("u")
        await until(pilot, lambda: shows(app, "mine"), "restored")
        assert run.dir.exists()

    run_app(scenario, runs_dir)


def test_a_name_may_contain_markup(make: Make, runs_dir: Path) -> None:
    name = "[/b] [red]odd"
    run = make(name).steps(20)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        run.end("failed", reason="no [/such] file")
        await until(pilot, lambda: f"{name}: no [/such] file" in notifications(app), "shown")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "opened")
        await pilot.press("i")
        await until(pilot, lambda: isinstance(app.screen, ConfigScreen), "opened")
        assert app.screen.query_one("#page").border_title == Content(name).markup
        await pilot.press("escape", "escape")
        await until(pilot, lambda: isinstance(app.screen, RunsScreen), "back")
        await pilot.press("d")
        await until(pilot, lambda: isinstance(app.screen, ChoiceDialog), "asked")
        assert (
            str(app.screen.query_one(".dialog-title", Label).content)
            == f"Move {name} to the trash?"
        )

    run_app(scenario, runs_dir)


def test_the_command_palette_runs_actions(ended: Make, runs_dir: Path) -> None:
    run = ended("mine")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        async def pick(action: str) -> None:
            await pilot.press("ctrl+p", *action)
            await until(pilot, lambda: isinstance(app.screen, PaletteDialog), "opened")
            await pilot.press("enter")

        await pick("pin")
        await until(pilot, lambda: Record(run.dir).meta.pinned, "pinned")
        await pick("copy")
        await until(pilot, lambda: isinstance(app.screen, CopyDialog), "asked")
        await pilot.press("enter")
        await until(pilot, lambda: app.clipboard == run.id, "copied")

    run_app(scenario, runs_dir)


def test_marked_runs_are_deleted_and_restored_together(ended: Make, runs_dir: Path) -> None:
    for number in range(3):
        ended(f"run {number}", ago=10 * (number + 1))

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("space", "space", "d")
        assert isinstance(app.screen, ChoiceDialog)
        await pilot.press("right", "enter")
        await until(pilot, lambda: shows(app, "run 2"), "deleted")
        await pilot.press("u")
        await until(pilot, lambda: shows(app, "run 0", "run 1", "run 2"), "restored")
        await pilot.press("u")
        assert "nothing to restore" in notifications(app)

    run_app(scenario, runs_dir)


def test_the_runs_of_a_group_are_deleted_together(ended: Make, runs_dir: Path) -> None:
    for number in range(3):
        ended(f"run {number}", ago=10 * (number + 1))
    settings.save(settings.Settings(group_by="strategy"))

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await until(pilot, lambda: app.screen.query_one(RunTable).group, "grouped")
        await pilot.press("d")
        assert isinstance(app.screen, ChoiceDialog)
        assert "Move 3 runs to the trash?" in "\n".join(screen_lines(app))
        await pilot.press("t")
        await until(pilot, lambda: not app.screen.query_one(RunTable).rows, "deleted")

    run_app(scenario, runs_dir)


def test_a_failed_restore_can_be_repeated(ended: Make, runs_dir: Path) -> None:
    run = ended("mine")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("d", "right", "enter")
        await until(pilot, lambda: not lines(app)[1:] and not shows(app, "mine"), "deleted")
        run.dir.mkdir()
        await pilot.press("u")
        await until(pilot, lambda: "exists already" in notifications(app), "refused")
        shutil.rmtree(run.dir)
        await pilot.press("u")
        await until(pilot, lambda: shows(app, "mine"), "restored")

    run_app(scenario, runs_dir)


def test_marked_runs_hidden_by_the_filter_are_not_deleted(ended: Make, runs_dir: Path) -> None:
    hidden = ended("hidden", ago=10)
    ended("shown", ago=20)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("space", "slash", *"shown", "enter")
        await until(pilot, lambda: shows(app, "shown"), "narrowed")
        await pilot.press("d")
        await until(pilot, lambda: messages(app), "refused")  # nor what has the cursor instead
        assert messages(app)[0].startswith("the filter hides the marked runs")
        await pilot.press("space", "d", "right", "enter")
        await until(pilot, lambda: not shows(app, "shown"), "deleted")
        assert hidden.dir.exists()

    run_app(scenario, runs_dir)


def test_a_read_only_app_refuses_changes_with_a_reason(ended: Make, runs_dir: Path) -> None:
    ended("mine")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        for key in ("p", "e", "d", "r", "R", "s", "u"):
            app.clear_notifications()
            await pilot.press(key)
            assert "read-only" in notifications(app), key
            assert isinstance(app.screen, RunsScreen)

    run_app(scenario, runs_dir, readonly=True)


def test_an_unreadable_record_is_named(ended: Make, runs_dir: Path) -> None:
    ended("fine")
    (runs_dir / "broken").mkdir()
    (runs_dir / "broken" / "run.json").write_text("{")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        line = app.screen.query_one("#runs-note", Static)
        await until(pilot, lambda: line.display, "shown")
        assert "run.json is broken" in str(line.render())
        assert shows(app, "fine")

    run_app(scenario, runs_dir)


@pytest.mark.parametrize(
    "keys", [[], ["enter"], ["enter", "m"], ["space", "space", "c"], ["n"], ["e"], ["d"]]
)
def test_every_screen_survives_tiny_sizes(ended: Make, runs_dir: Path, keys: list[str]) -> None:
    ended("one")
    ended("two")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        for key in keys:
            await pilot.press(key)
            await pilot.pause(0.3)
        for size in ((1, 1), (2, 2), (9, 3), (3, 9), (200, 1), (80, 24)):
            await pilot.resize_terminal(*size)
            await pilot.press("tab")
            await pilot.pause(0.1)

    run_app(scenario, runs_dir)


@pytest.mark.parametrize("width", range(40, 240, 7))
def test_columns_use_the_width_and_keep_the_important_ones(width: int) -> None:
    layout = TableLayout([column.name for column in COLUMNS], ())
    found = layout.fitted(width)
    kept = {column.name for column in COLUMNS if not column.spare}
    assert kept <= {column.name for column in found}
    if width >= 65:
        used = 5 + sum(column.width + 1 for column in found)
        assert used <= width if found[-1].right else used == width


def test_a_cell_cuts_the_name_of_a_metric_and_never_its_value() -> None:
    ended = RunRow(id="1", created=0, status="completed", metric="top1", value=1.0)
    other = RunRow(id="2", created=0, status="completed", metric="bits_per_byte", value=2.239)
    layout = TableLayout(["name", "metric"], [ended, other])
    mark, background = first_marks(1)[0], Color(0, 0, 0)
    lines = [layout.row_line(row, mark, 40, False, background).plain for row in (ended, other)]
    assert "to… 100.00 %" in lines[0]
    assert "bits_… 2.239" in lines[1]


# --- the comparison ---


@pytest.mark.parametrize("size", SIZES)
def test_marked_runs_are_overlaid(
    ended: Make, make: Make, runs_dir: Path, size: tuple[int, int]
) -> None:
    ended("one", ago=10, **{"train.lr": 0.2})
    make("two", ago=20).steps(10)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("space", "space", "c")
        screen = app.screen
        assert isinstance(screen, CompareScreen)
        await until(pilot, lambda: screen.frame is not None, "compared")
        assert screen.frame is not None
        assert [run.name for run in screen.frame.runs] == ["one", "two"]
        await pilot.press("shift+tab")
        await until(pilot, lambda: "train.lr" in text_of(screen.query_one(DiffPane)), "shown")
        assert "train.epochs" not in text_of(screen.query_one(DiffPane))
        await pilot.press("d")
        assert "train.epochs" in text_of(screen.query_one(DiffPane))
        seen = screen.frame
        await pilot.press("x")
        await until(pilot, lambda: screen.frame is not seen, "read by epoch")
        assert screen.frame.charts["loss"].x_axis == "epoch"
        await pilot.press("escape")
        assert isinstance(app.screen, RunsScreen)

    run_app(scenario, runs_dir, size)


def test_streams_are_not_overlaid_by_epoch(make: Make, runs_dir: Path) -> None:
    for ago in (10, 20):
        make(ago=ago, is_stream=True).steps(10)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("space", "space", "c")
        screen = app.screen
        assert isinstance(screen, CompareScreen)
        await until(pilot, lambda: screen.frame is not None, "compared")
        await pilot.press("x")
        assert screen.view.axis == "time"

    run_app(scenario, runs_dir, SIZES[0])


def text_of(pane: DiffPane) -> str:
    return "\n".join(line.plain for line in pane.lines)


def test_tab_shows_one_pane_after_another_on_a_small_screen(ended: Make, runs_dir: Path) -> None:
    ended("one", ago=10, **{"train.lr": 0.2})
    ended("two", ago=20)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("space", "space", "c")
        screen = app.screen
        assert isinstance(screen, CompareScreen)
        panes = [*screen.query(PlotPane), screen.query_one(DiffPane)]
        for pane in panes:
            await until(pilot, partial(_only, pane, panes), f"{pane} alone")
            await pilot.press("tab")
        await until(pilot, lambda: _only(panes[0], panes), "back")

    run_app(scenario, runs_dir, (80, 24))


def _only(pane: object, panes: list[Any]) -> bool:
    return [other for other in panes if other.region] == [pane]


@pytest.mark.parametrize(
    ("logged", "wanted"),
    [({"loss": 1.0, "lr": 0.1}, ["loss", "lr", "Evaluation: top1"]), ({}, ["Evaluation: top1"])],
)
def test_overlaid_scripts_show_what_they_log_and_no_empty_plot(
    logged: dict[str, float], wanted: list[str], make: Make, runs_dir: Path
) -> None:
    for name in ("a", "b"):
        run = make(name, script={"path": "train.py"}).logged(**logged).evaluation(top1=0.5)
        run.end(plan=None)  # a script that failed early has none; it can be filtered as well

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("slash", *"script", "enter", "space", "down", "space", "c")

        def plots() -> list[str]:
            return [str(plot.border_title) for plot in app.screen.query(PlotPane) if plot.region]

        await until(pilot, lambda: plots() == wanted, "drawn")
        await pilot.press("m")
        await until(pilot, lambda: isinstance(app.screen, PickOneDialog), "asked")
        options = app.screen.query_one(OptionList).options
        assert [option.prompt for option in options] == [*logged, "Evaluation"]

    run_app(scenario, runs_dir, (200, 60))


def test_the_remembered_axis_remains_when_scripts_are_overlaid(make: Make, runs_dir: Path) -> None:
    settings.save(settings.Settings(axis="time"))
    for name in ("a", "b"):
        make(name, script={"path": "train.py"}).logged(loss=1.0).end()

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("space", "space", "c")
        screen = app.screen
        assert isinstance(screen, CompareScreen)
        await until(pilot, lambda: screen.view.plots[0] == "logged/loss", "drawn")
        assert screen.view.axis == "time"

    run_app(scenario, runs_dir)


def test_overlaid_scripts_have_no_epochs_and_keep_the_plots_of_a_person_who_has_chosen(
    make: Make, runs_dir: Path
) -> None:
    runs = [make(name, script={"path": "train.py"}) for name in ("a", "b")]

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("space", "space", "c")
        screen = app.screen
        assert isinstance(screen, CompareScreen)
        await until(pilot, lambda: screen.frame is not None, "compared")
        await pilot.press("x")
        before = screen.view
        assert before.axis == "time"
        for run in runs:
            run.logged(loss=1.0)
        await until(pilot, lambda: screen.frame and screen.frame.logged_names, "read")
        assert screen.view == before

    run_app(scenario, runs_dir)


def test_comparing_one_run_is_refused(ended: Make, runs_dir: Path) -> None:
    ended("one")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("c")
        assert "mark two or more runs" in notifications(app)
        assert isinstance(app.screen, RunsScreen)

    run_app(scenario, runs_dir)


def test_the_config_screen_shows_config_plan_and_notes(ended: Make, runs_dir: Path) -> None:
    run = ended("mine", **{"train.lr": 0.125}).note(notes="as in the thesis")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await app.push_screen(ConfigScreen(run.record))
        text = str(app.screen.query_one("#page Static", Static).render())
        for part in ("as in the thesis", "lr = 0.125", 'backend = "gloo"'):
            assert part in text
        await pilot.press("escape")
        assert isinstance(app.screen, RunsScreen)

    run_app(scenario, runs_dir)


def test_the_config_screen_of_a_script_shows_sources_and_no_figures_that_it_has_not(
    make: Make,
) -> None:
    run = make(script={"path": "train.py"}).logged(error=0.5).end()
    with run.record as record:
        text = page(record).plain
        sources = record.summary()["sources"]
    plan, _, shown = text.partition("Plan (")[2].partition("\nSources\n")
    for figure, source in sources.items():
        assert re.search(rf"^{figure} +{re.escape(source)}$", shown, re.MULTILINE)
    assert "world_size = 2" in plan
    for figure in ("batch", "micro_batch", "loader_workers", "lr", "precision", "backend"):
        assert f"\n{figure} =" not in plan


def test_a_failed_deletion_is_reported(
    ended: Make, runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended("mine")

    def refused(_: Record) -> Path:
        raise DistrainError("the folder is on fire")

    monkeypatch.setattr("distrain.runners.records.trash.remove", refused)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("d")
        await until(pilot, lambda: isinstance(app.screen, ChoiceDialog), "asked")
        await pilot.press("right", "enter")
        await until(pilot, lambda: messages(app), "shown")
        assert messages(app) == ["the folder is on fire"]
        app.clear_notifications()
        await pilot.press("u")
        assert "nothing to restore" in notifications(app)

    run_app(scenario, runs_dir)


def test_the_code_of_a_strangers_record_is_executed_only_after_a_question(
    ended: Make, runs_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("theirs.py").touch()
    ended("mine", script={"path": "theirs.py"})
    launched: list[RunConfig] = []

    def launch(config: RunConfig, **_: Any) -> Run:
        launched.append(config)
        raise DistrainError("enough")

    monkeypatch.setattr("distrain.runners.runs.launch", launch)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        for answer in ("enter", "escape"):
            await pilot.press("r")
            assert isinstance(app.screen, ChoiceDialog)
            assert app.focused is app.screen.query_one("#cancel")
            assert "theirs.py" in str(app.screen.text.content)
            await pilot.press(answer)
            assert not isinstance(app.screen, ChoiceDialog)
        await pilot.press("r", "right", "enter")
        await until(pilot, lambda: launched, "launched")
        await until(pilot, lambda: "rerun mine: enough" in notifications(app), "refused")
        await launch_again(pilot, app)
        await until(pilot, lambda: len(launched) == 2, "launched without a question about its code")

    run_app(scenario, runs_dir)


def test_a_completed_run_can_be_rerun_or_resumed_with_more_epochs(
    ended: Make, runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ended("mine").dir / "checkpoints" / "last.pt").touch()
    launched: list[tuple[str, int | None]] = []

    def launch(config: RunConfig, *, name: str, **_: Any) -> Run:
        launched.append((name, config.train.epochs))
        raise DistrainError("enough")

    monkeypatch.setattr("distrain.runners.runs.launch", launch)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("R")
        assert isinstance(app.screen, ChoiceDialog)
        assert "all of its 4 epochs (train.epochs = 4)" in str(app.screen.text.content)
        await pilot.press("m", *["backspace", "4", "enter"])
        assert "enter a whole number above 4" in "\n".join(screen_lines(app))
        await pilot.press("backspace", "6", "enter")
        await until(pilot, lambda: launched == [("mine", 6)], "resumed")
        await until(pilot, lambda: "resume mine: enough" in notifications(app), "refused")
        await pilot.press("R", "r")
        await until(pilot, lambda: launched[1:] == [("mine-2", 4)], "rerun")

    run_app(scenario, runs_dir)
