"""What happened to runs: messages at once, the list afterwards, the count until it was seen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from textual.pilot import Pilot
from textual.widgets import OptionList

from distrain.runners.records.reader import Record
from distrain.runners.runs import Run
from distrain.tui.app import DistrainApp
from distrain.tui.data.history import History
from distrain.tui.data.run_rows import RunRow
from distrain.tui.dialogs.history import HistoryDialog
from distrain.tui.screens.compare_screen import CompareScreen
from distrain.tui.screens.run_screen import RunScreen
from distrain.tui.screens.runs_screen import RunsScreen
from distrain.tui.widgets.run_header import RunHeader
from distrain.tui.widgets.runs_header import RunsHeader
from tests.support.records import RunBuilder

from .app_driver import messages, until

Make = Callable[..., RunBuilder]
Scenario = Callable[[Pilot[None], DistrainApp], Awaitable[None]]


def play(scenario: Scenario, runs_dir: Path, run: str | None = None) -> None:
    async def played() -> None:
        app = DistrainApp(runs_dir, session=run and Run(Record(runs_dir / run)))
        async with app.run_test(size=(120, 36)) as pilot:
            runs = app.screen_stack[0]
            assert isinstance(runs, RunsScreen)
            await until(pilot, lambda: runs.is_complete, "read")
            await scenario(pilot, app)
            if app.internal_errors:
                raise app.internal_errors[0]

    asyncio.run(played())


def end_now(run: RunBuilder, status: str = "completed", **state: object) -> None:
    run.now = time.time()
    run.end(status, **state)


def a_row(id: str, **fields: object) -> RunRow:
    return RunRow(**{"id": id, "created": 0.0, "status": "completed", **fields})  # type: ignore[arg-type]


def test_events_are_those_of_the_rows_newest_first() -> None:
    history = History(seen_until=50)
    history.update(
        [
            a_row("early", started=1.0, ended=40.0),
            a_row("patient", started=60.0, ended=90.0, status="failed", reason="rank 0 failed"),
            a_row("live", started=70.0, live=True, status="running"),
        ]
    )
    found = [(event.time, event.row.id, event.text) for event in history.events]
    assert found == [
        (90.0, "patient", "rank 0 failed"),
        (70.0, "live", "started from the queue"),
        (60.0, "patient", "started from the queue"),
        (40.0, "early", "completed"),
    ]
    assert history.unseen == 3
    history.update([], gone=["patient"])
    assert history.unseen == 1
    history.see(until=100)
    assert history.unseen == 0


def test_what_happens_on_another_screen_is_reported_once_and_listed(
    make: Make, runs_dir: Path
) -> None:
    mine, other = make("mine").steps(3), make("other").steps(3)
    waiting = make("waiting")
    waiting.writer.set_state(status="queued")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        screen = app.screen
        assert isinstance(screen, RunScreen)
        end_now(other, "failed", reason="rank 1 failed first")
        await until(pilot, lambda: "other: rank 1 failed first" in messages(app), "reported")
        waiting.writer.set_state(status="running")
        await until(pilot, lambda: "waiting started from the queue" in messages(app), "started")
        header = screen.query_one(RunHeader)
        await until(pilot, lambda: "1 new event (N)" in header.lines[0].plain, "counted")
        await pilot.press("escape")
        await until(
            pilot, lambda: "1 new event (N)" in str(app.screen.query_one(RunsHeader).render())
        )
        await pilot.press("N")
        assert isinstance(app.screen, HistoryDialog)
        assert app.screen.query_one(OptionList).option_count == 1
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "opened")
        assert isinstance(app.screen, RunScreen)
        assert app.screen.run.id == other.id
        assert app.history.unseen == 0
        assert [text for text in messages(app) if "other" in text] == ["other: rank 1 failed first"]

    play(scenario, runs_dir, mine.id)


def test_what_happened_while_the_app_was_closed_is_new_at_the_next_start(
    make: Make, ended: Make, runs_dir: Path
) -> None:
    ended("old", ago=100)
    run = make("mine").steps(3)

    async def first(pilot: Pilot[None], app: DistrainApp) -> None:
        assert app.history.unseen == 0, "what happened before the first start is not new"

    async def second(pilot: Pilot[None], app: DistrainApp) -> None:
        assert app.history.unseen == 1
        await pilot.press("N", "escape")
        await until(pilot, lambda: "new" not in str(app.screen.query_one(RunsHeader).render()))

    async def third(pilot: Pilot[None], app: DistrainApp) -> None:
        assert app.history.unseen == 0

    play(first, runs_dir)
    end_now(run)
    play(second, runs_dir)
    play(third, runs_dir)


def test_an_ended_run_shows_no_news_that_were_read(make: Make, ended: Make, runs_dir: Path) -> None:
    mine, other = ended("mine"), make("other").steps(3)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        header = app.screen.query_one(RunHeader)
        end_now(other, "failed", reason="rank 1 failed first")
        await until(pilot, lambda: "1 new event (N)" in header.lines[0].plain, "counted")
        await pilot.press("N", "escape")
        await until(pilot, lambda: "new" not in header.lines[0].plain, "read")

    play(scenario, runs_dir, mine.id)


def test_what_the_table_shows_is_not_new(make: Make, runs_dir: Path) -> None:
    run = make("mine").steps(3)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        end_now(run)
        await until(pilot, lambda: messages(app), "reported")
        assert app.history.unseen == 0

    play(scenario, runs_dir)


def test_what_a_screen_of_several_runs_shows_is_not_new(make: Make, runs_dir: Path) -> None:
    runs = [make(name).steps(3) for name in ("one", "two", "other")]

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        app.push_screen(CompareScreen([Run(run.record) for run in runs[:2]]))
        await until(pilot, lambda: isinstance(app.screen, CompareScreen), "shown")
        for run in runs[:2]:
            end_now(run)
        await until(pilot, lambda: len(messages(app)) == 2, "reported")
        assert app.history.unseen == 0
        end_now(runs[2])
        await until(pilot, lambda: app.history.unseen == 1, "counted")

    play(scenario, runs_dir)
