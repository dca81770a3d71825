"""The screen of a run, used with keys and mouse."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs
from textual import events
from textual.pilot import Pilot
from textual.widgets import Input

from distrain.runners import formatting
from distrain.runners.analysis.diagnosis import Diagnosis
from distrain.runners.protocol.events import (
    Attempt,
    Frame,
    GpuSample,
    HostSample,
    Notice,
    RankSample,
    Stacks,
    ThreadStack,
)
from distrain.runners.records.export import export
from distrain.runners.records.reader import Record
from distrain.runners.records.snapshot import Follower
from distrain.runners.records.stacks import append_stacks
from distrain.runners.records.stall import RankPosition, Stall
from distrain.runners.records.state import TRASH, RunError
from distrain.runners.records.timeseries.series import STEPS
from distrain.runners.runs import Run
from distrain.tui import settings
from distrain.tui.actions.available import perform
from distrain.tui.app import DistrainApp
from distrain.tui.data.chart_source import ChartView
from distrain.tui.data.run_feed import RunFeed, RunFrame
from distrain.tui.data.run_rows import live_row
from distrain.tui.data.run_scanner import RunScanner
from distrain.tui.dialogs.dialog import ChoiceDialog
from distrain.tui.dialogs.error import ErrorDialog
from distrain.tui.dialogs.export_progress import ExportDialog
from distrain.tui.dialogs.help import HelpDialog
from distrain.tui.dialogs.pick_one import PickOneDialog
from distrain.tui.dialogs.prompt import PromptDialog
from distrain.tui.screens.config_screen import ConfigScreen
from distrain.tui.screens.linked_plots import AXES
from distrain.tui.screens.run_screen import RunScreen
from distrain.tui.screens.runs_screen import RunsScreen
from distrain.tui.widgets.hardware_pane import HardwarePane
from distrain.tui.widgets.key_bar import KeyBar
from distrain.tui.widgets.log_pane import LogPane
from distrain.tui.widgets.plot_pane import PlotPane
from distrain.tui.widgets.rank_table import RankTable
from distrain.tui.widgets.run_header import RunHeader, _diagnosis, header
from tests.support.records import RunBuilder

from .app_driver import messages, screen_lines, until

Make = Callable[..., RunBuilder]
Scenario = Callable[[Pilot[None], DistrainApp, RunScreen], Awaitable[None]]


def watch(
    run: RunBuilder, scenario: Scenario, size: tuple[int, int] = (120, 36), readonly: bool = False
) -> None:
    """Play a scenario on the screen of a run, from its first picture on."""

    async def play() -> None:
        app = DistrainApp(run.dir.parent, session=Run(run.record), readonly=readonly)
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: isinstance(app.screen, RunScreen), "opened")
            screen = app.screen
            assert isinstance(screen, RunScreen)
            await until(pilot, lambda: screen.frame, "painted")
            await pilot.pause()
            await scenario(pilot, app, screen)

    asyncio.run(play())


def shown(app: DistrainApp) -> str:
    """Return the text of the screen."""
    width, height = app.size
    lines = screen_lines(app)
    assert (len(lines), width) == (height, app.size.width)
    return "\n".join(lines)


def has_message(app: DistrainApp, text: str) -> bool:
    return any(text in message for message in messages(app))


def test_nothing_is_read_while_the_terminal_takes_no_output(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It blocks the app, and frames would fill the memory and delay the first key after that."""
    run = make("mine").steps(5)
    frames: list[RunFrame] = []
    read = RunFeed.read

    def read_and_note(feed: RunFeed, view: ChartView) -> RunFrame:
        frames.append(read(feed, view))
        return frames[-1]

    monkeypatch.setattr(RunFeed, "read", read_and_note)
    monkeypatch.setattr("distrain.tui.app.HEARTBEAT_S", 0.05)
    monkeypatch.setattr("distrain.tui.base_app.UNRESPONSIVE_S", 0.3)

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        time.sleep(1.5)
        before = len(frames)
        run.steps(1)
        time.sleep(1.5)
        assert len(frames) == before
        await until(pilot, lambda: len(frames) > before, "read on")

    watch(run, scenario)


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (200, 60)])
def test_the_run_screen_shows_the_state_of_a_run(size: tuple[int, int], make: Make) -> None:
    run = make("mine").steps(25).evaluation(loss=0.5, top1=0.9639)

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        text = shown(app)
        for part in ("running", "mine", "epoch 3/4", "step 25/40", "62 %", "top1 96.39 %"):
            assert part in text, part
        assert "rank" in text
        hidden = sum(1 for pane in screen.panes if not pane.region)
        assert ("(tab)" in text) == (hidden > 0)

    watch(run, scenario, size)


def test_a_live_run_is_updated(make: Make) -> None:
    run = make().steps(5)

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        assert "step 5/40" in shown(app)
        run.steps(5)
        await until(pilot, lambda: "step 10/40" in shown(app), "moved")

    watch(run, scenario)


def test_every_run_opened_from_another_is_read(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each open screen keeps two threads, also on a machine with few cores."""
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    monkeypatch.setattr("os.process_cpu_count", lambda: 1, raising=False)
    run = make().steps(5)

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        for _ in range(3):
            last = RunScreen(Run(run.record))
            await app.push_screen(last)
        await until(pilot, lambda: last.frame, "read")

    watch(run, scenario)


def test_the_end_of_a_run_is_reported_and_shown(make: Make) -> None:
    run = make("short").steps(40)

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        run.end(reason="completed all steps")
        await until(pilot, lambda: "completed" in shown(app), "ended")
        await until(pilot, lambda: has_message(app, "completed all steps"), "shown")

    watch(run, scenario)


def test_a_run_that_ended_behind_another_screen_is_shown_as_ended(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distrain.tui.screens.linked_plots.POLL_S", 0.02)
    run = make().steps(5)

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        await pilot.press("i")
        assert isinstance(app.screen, ConfigScreen)
        await pilot.pause(0.2)
        run.steps(35).end()
        await pilot.pause(0.5)  # the screen below does not read meanwhile
        await pilot.press("escape")
        await until(pilot, lambda: "completed" in shown(app), "ended", timeout=10)

    watch(run, scenario)


def test_the_header_shows_the_first_warning_and_the_number_of_the_others(make: Make) -> None:
    run = make().steps(25)

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        for text, level in (("of no harm", "info"), ("not averaged", "warning")):
            run.writer.add(Notice(time=run.now, text=text, level=level))
        run.writer.add(Notice(time=run.now, text="the same samples"))
        run.writer.commit()
        await until(pilot, lambda: "▲ not averaged (+1 more)" in shown(app), "shown")
        assert "of no harm" not in shown(app)

    watch(run, scenario)


@pytest.mark.parametrize(
    ("status", "offered", "not_offered"),
    [
        (None, "Stop", ("Rerun", "Resume")),
        ("completed", "Rerun", ("Stop", "Resume")),
        ("stopped", "Resume", ("Stop", "Rerun")),
    ],
)
def test_the_footer_shows_the_keys_that_fit_the_state_of_the_run(
    status: str | None, offered: str, not_offered: tuple[str, ...], make: Make
) -> None:
    run = make().steps(25)

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        assert "Stop" in shown(app).splitlines()[-1]
        if status == "stopped":
            (run.dir / "checkpoints" / "last.pt").write_bytes(b"weights")
        if status:
            run.end(status)
        await until(pilot, lambda: offered in shown(app).splitlines()[-1], "offered")
        footer = shown(app).splitlines()[-1]
        assert not any(other in footer for other in not_offered)

    watch(run, scenario)


def test_the_footer_of_a_read_only_app_has_no_changing_keys(make: Make) -> None:
    run = make().steps(25)

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        footer = shown(app).splitlines()[-1]
        assert "Axis" in footer
        assert not any(word in footer for word in ("Stop", "New", "Rerun", "Resume"))

    watch(run, scenario, readonly=True)


def test_the_startup_time_of_the_ranks_is_shown(make: Make) -> None:
    run = make(ago=65)
    run.writer.set_state(facts=None)

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        def line() -> str:
            return next(line for line in shown(app).splitlines() if "starting ranks" in line)

        before = line()
        assert " 1 min" in before
        await until(pilot, lambda: line() != before, "counted on")

    watch(run, scenario)


def test_rates_of_a_run_that_has_ended_are_of_all_its_steps(make: Make) -> None:
    run = make(ago=100).steps(20)
    run.step_s = 0.4  # from here on
    run.steps(20).end()

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        await until(pilot, lambda: "completed" in shown(app), "ended")
        assert screen.frame is not None
        [node] = screen.frame.nodes
        rates = [rank.samples_per_s for rank in node.ranks]
        assert rates == [pytest.approx(64 * 40 / (20 * 0.1 + 20 * 0.4))] * 2
        assert formatting.rate(sum(map(float, rates))) in shown(app).splitlines()[2]

    watch(run, scenario)


@pytest.mark.parametrize("bell", [True, False])
def test_the_bell_rings_once_at_the_end_if_enabled(
    bell: bool, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.save(settings.Settings(bell=bell))
    rung: list[bool] = []
    monkeypatch.setattr(DistrainApp, "bell", lambda app: rung.append(True))
    seen, unseen = make("seen").steps(40), make("unseen").steps(40)

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        seen.end()
        await until(pilot, lambda: "completed" in shown(app), "ended")
        await pilot.press("escape")
        await until(pilot, lambda: "1 live" in shown(app), "listed")
        unseen.end()
        await until(pilot, lambda: has_message(app, "unseen: "), "shown")
        assert len(rung) == 2 * bell

    watch(seen, scenario)


TRACE = """Traceback (most recent call last):
  File "/home/me/train.py", line 17, in label_of
    raise ValueError("a bad label")
ValueError: a bad label
"""


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (200, 60)])
def test_the_failure_card_says_each_fact_once_and_marks_the_culprit(
    size: tuple[int, int], make: Make
) -> None:
    run = make(world=3).steps(12)
    error = RunError(
        rank=1,
        type="ValueError",
        message="a bad label",
        traceback=TRACE,
        step=12,
        secondary=[0, 2],
    )
    run.end("failed", reason="rank 1: a bad label", error=error)

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        text = shown(app)
        for part in (
            "✘ rank 1 failed first after step 12",
            "ValueError: a bad label",
            "/home/me/train.py:17 in label_of",
            'raise ValueError("a bad label")',
            "try:",
            "taken down with it: ranks 0, 2 · no checkpoint was written",
        ):
            assert text.count(part) == 1, part
        assert "rank 1: a bad label" not in text
        rows = screen.query_one(RankTable)._lines[1:]
        assert [row.plain.split()[1] for row in rows] == ["1", "0", "2"]
        assert ["✘" in row.plain for row in rows] == [True, False, False]
        styles = [{str(span.style) for span in row.spans} for row in rows]
        assert "bold red" in styles[0]
        assert all("dim" in each and "bold red" not in each for each in styles[1:])

    watch(run, scenario, size)


@pytest.mark.parametrize("observed", [False, True])
def test_the_card_of_a_script_states_nothing_about_its_checkpoints(
    observed: bool, make: Make
) -> None:
    """They are its own, and a program that distrain did not start cannot be started again."""
    run = make(script=SCRIPT).steps(12)
    plan = structs.replace(Record(run.dir).state.plan, observed=observed)
    error = RunError(rank=0, type="ValueError", message="a bad label", step=12)
    run.end("failed", reason="rank 0: a bad label", error=error, plan=plan)

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        text = " ".join(shown(app).split())
        assert "no checkpoint was written" not in text
        assert ("then r reruns" in text) is not observed
        assert ("r Rerun" in text) is not observed
        assert ("R starts the script again" in text) is not observed
        assert ("distrain did not start the program" in text) is observed
        reason = "distrain did not start the program." if observed else ""
        assert screen.obstacle("run.resume") == screen.obstacle("run.rerun") == reason

    watch(run, scenario)


def test_without_a_traceback_the_card_shows_the_end_of_the_log_without_repeating_itself(
    make: Make,
) -> None:
    run = make().steps(12)
    (run.dir / "logs" / "rank-1.log").write_text("allocating 80 GB\nkilled by SIGKILL\n")
    message = "killed by SIGKILL after step 12 (manually or by the OOM killer)"
    error = RunError(rank=1, type="SIGKILL", message=message, step=12)
    run.end("failed", reason=f"rank 1: {message}", error=error)

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        text = shown(app)
        assert "allocating 80 GB" in text
        assert text.count("killed by SIGKILL") == 1
        assert "dmesg" in text

    watch(run, scenario)


def test_plots_that_become_too_low_are_shown_in_one_row_at_once(make: Make) -> None:
    """The card of a failure may take their room only after all of an ended run was painted."""

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        lowest = screen.query_one("#plot-3")
        await until(pilot, lambda: bool(lowest.region), "two rows")
        screen._has_left.set()  # nothing is read and painted any more
        screen._wake.set()
        mine = [each for each in screen.workers if each.node is screen and each.group == "default"]
        await until(pilot, lambda: all(each.is_finished for each in mine), "read")
        screen.query_one("#tables").styles.height = screen.size.height // 2
        await until(pilot, lambda: not lowest.region, "one row")
        await until(pilot, lambda: "2 more panes (tab)" in shown(app), "said")

    watch(make("mine").steps(12).end(), scenario, size=(100, 32))


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
def test_a_run_that_failed_before_its_first_step_shows_its_log_in_place_of_plots(
    size: tuple[int, int], make: Make
) -> None:
    run = make()
    (run.dir / "logs" / "rank-0.log").write_text("")
    (run.dir / "logs" / "rank-1.log").write_text("loading\nboom\n")
    run.end("failed", error=RunError(rank=1, type="OSError", message="no data", traceback="…"))

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        await until(pilot, lambda: "loading" in shown(app), "the log of rank 1")
        assert not any(plot.region for plot in screen.query(PlotPane))
        assert "failed before its first step" in shown(app)
        assert settings.load()[0].logs == {}

    watch(run, scenario, size)


def test_the_logs_open_where_there_is_content_and_are_remembered_by_kind_of_run(
    make: Make,
) -> None:
    run = make().steps(5)
    for rank, age in enumerate((None, 50)):
        log = run.dir / "logs" / f"rank-{rank}.log"
        log.write_text(f"words of rank {rank}\n" if age else "")
    script = make("script", script=SCRIPT)

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        await pilot.press("l")
        await until(pilot, lambda: "words of rank 1" in shown(app), "the log with content")
        assert settings.load()[0].logs == {"preset": True}
        second = RunScreen(Run(script.record))
        await app.push_screen(second)
        await until(pilot, lambda: second.frame, "painted")
        await pilot.press("l")
        assert settings.load()[0].logs == {"preset": True, "script": False}

    watch(run, scenario)


def test_keys_typed_at_once_after_the_one_that_opens_the_logs_reach_the_logs(make: Make) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        for character in "l/seq":  # search; stop, edit, quit
            app.post_message(events.Key("slash" if character == "/" else character, character))
        await until(pilot, lambda: isinstance(app.focused, Input), "searched")
        field = screen.query_one(LogPane).query_one(Input)
        await until(pilot, lambda: field.value == "seq", "typed")
        assert app.screen is screen

    watch(make().steps(5), scenario)


def hold_exports(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Let exports wait until the event is set."""
    goes_on = threading.Event()

    def slow_export(*arguments: Any) -> None:
        goes_on.wait(60)
        export(*arguments)

    monkeypatch.setattr("distrain.runners.records.export.export", slow_export)
    return goes_on


async def begin_export(pilot: Pilot[None], app: DistrainApp) -> None:
    """Export in the first format, under the name that is suggested, and wait for the progress."""
    await pilot.press("E")
    await until(pilot, lambda: isinstance(app.screen, PickOneDialog), "asked for a format")
    await pilot.press("enter")
    await until(pilot, lambda: isinstance(app.screen, PromptDialog), "asked for a name")
    await pilot.press("enter")
    await until(pilot, lambda: "so far, to" in shown(app), "progress")


def test_the_measurements_are_exported_while_the_screen_is_left(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = make("mine").steps(20).end()
    goes_on = hold_exports(monkeypatch)

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        await begin_export(pilot, app)
        await pilot.press("escape")
        assert app.screen is screen
        await pilot.press("E")
        await until(pilot, lambda: isinstance(app.screen, ExportDialog), "progress again")
        goes_on.set()
        await until(pilot, lambda: has_message(app, "exported "), "reported")
        await until(pilot, lambda: app.screen is screen, "closed")
        rows = (tmp_path / f"{run.id}.csv").read_text().splitlines()
        assert len(rows) == 1 + 2 * 20

    watch(run, scenario)


def test_an_export_that_reads_already_goes_on_when_the_screen_is_left(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = make("mine").steps(20).end()
    is_reading, goes_on = threading.Event(), threading.Event()

    def slow_export(record: Record, *arguments: Any) -> None:
        rows = record.raw(STEPS, 0, chunk=1)
        next(rows)
        is_reading.set()
        goes_on.wait(60)
        assert len(list(rows)) == 19
        export(record, *arguments)

    monkeypatch.setattr("distrain.runners.records.export.export", slow_export)

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        await begin_export(pilot, app)
        await until(pilot, is_reading.is_set, "reading")
        await pilot.press("escape", "escape")
        await until(pilot, lambda: screen.run.record._db is None, "left")
        goes_on.set()
        await until(pilot, lambda: has_message(app, "export"), "reported")
        assert has_message(app, "exported ")

    watch(run, scenario)


def test_an_export_whose_name_is_too_long_fails_with_a_message(make: Make) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        await pilot.press("E")
        await until(pilot, lambda: isinstance(app.screen, PickOneDialog), "asked for a format")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, PromptDialog), "asked for a name")
        app.screen.query_one(Input).value = "x" * 300
        await pilot.press("enter")
        await until(pilot, lambda: has_message(app, "File name too long"), "reported")
        await until(pilot, lambda: app.screen is screen, "closed")
        assert not app.internal_errors

    watch(make().steps(5).end(), scenario)


def test_quitting_during_an_export_shows_its_progress_and_can_be_taken_back(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = make("mine").steps(20).end()
    goes_on = hold_exports(monkeypatch)

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        await begin_export(pilot, app)
        await pilot.press("escape", "q")
        await until(pilot, lambda: "the app quits when it is complete" in shown(app), "announced")
        await pilot.press("escape")
        assert app.screen is screen
        await pilot.press("q", "q")
        await until(pilot, lambda: "the app quits when it is complete" in shown(app), "again")
        goes_on.set()
        await until(pilot, lambda: not app.is_running or app._exit, "quit")

    watch(run, scenario)
    assert (tmp_path / f"{run.id}.csv").exists()


def test_a_current_folder_that_has_been_deleted_is_no_internal_error(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        folder.rmdir()
        await pilot.press("E")
        await until(pilot, lambda: has_message(app, "start the app in another one"), "reported")
        app.clear_notifications()
        app.run_worker(lambda: Path("relative").absolute(), thread=True)
        await until(pilot, lambda: has_message(app, "start the app in another one"), "again")
        app.clear_notifications()
        await pilot.press("n")
        await until(pilot, lambda: has_message(app, "start the app in another one"), "at a launch")
        assert app.screen is screen
        assert app.internal_errors == []

    watch(make("mine").steps(20).end(), scenario)


def test_the_advice_of_a_diagnosis_is_never_cut() -> None:
    advice = "increase train.batch_size or train.accumulate for fewer exchanges of gradients"
    sentence = "communication-bound: the ranks wait"
    found = Diagnosis(kind="comm", sentence=sentence, evidence="comm wait 80 %", advice=advice)
    for width in (60, 78, 118, 198):
        text = " ".join(line.plain for line in _diagnosis(found, width))
        assert advice in " ".join(text.split())


def test_restarted_ranks_are_recovering_until_they_have_repeated_their_steps(make: Make) -> None:
    run = make().steps(25)

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        run.writer.add(Attempt(time=run.now, number=1, step=10, lost=25, reason="rank 1 failed"))
        run.writer.set_state(attempts=1)
        run.step = 10
        run.steps(5)
        await until(pilot, lambda: "↻ recovering" in shown(app), "recovering")
        follower = Follower(run.record)
        follower.new_events()
        row = live_row(follower.snapshot(), run.record)
        assert row.current_status == "recovering", "also in the table of runs"
        assert "repeating up to step 25" in shown(app)
        run.steps(10)
        await until(pilot, lambda: "● running" in shown(app), "running")

    watch(run, scenario)


def test_the_stop_dialog_explains_both_ways_to_stop(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(Run, "stop", lambda self, now=False: asked.append(now))

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        await pilot.press("s")
        assert isinstance(app.screen, ChoiceDialog)
        await pilot.pause()
        assert "checkpoint" in shown(app)
        await pilot.press("escape")
        assert (app.screen, asked) == (screen, [])
        await pilot.press("s", "enter")
        assert asked == [], "Cancel has the focus"
        await pilot.press("s", "right", "enter")
        await until(pilot, lambda: asked == [False], "stopped with a checkpoint")
        await pilot.press("s", "right", "right", "enter")
        await until(pilot, lambda: asked == [False, True], "stopped now")
        await pilot.press("s", "s", "s")
        assert asked == [False, True], "a repeated key stops nothing"
        await pilot.press("n")
        assert asked == [False, True], "n means no"
        await pilot.press("c")
        await until(pilot, lambda: asked == [False, True, False], "stopped with a checkpoint")
        await pilot.press("s", "w")
        await until(pilot, lambda: asked == [False, True, False, True], "stopped now")

    watch(make().steps(3), scenario)


def test_the_stop_dialog_promises_no_checkpoint_of_a_run_that_is_stalled(make: Make) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        await pilot.press("s")
        await until(pilot, lambda: "It is stalled" in shown(app), "the dialog")
        assert "Stop with a checkpoint" not in shown(app)

    watch(make(world=2).steps(3).stalled(), scenario)


def test_keys_that_were_pressed_before_a_dialog_closed_do_not_close_the_screen_below(
    make: Make,
) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        await pilot.press("s")
        dialog = app.screen
        assert isinstance(dialog, ChoiceDialog)
        dialog.dismiss(None)
        dialog.action_dismiss_without()
        await pilot.pause()
        assert app.screen is screen
        assert not app._exception

    watch(make().steps(3), scenario)


def test_a_read_only_app_cannot_stop_a_run(make: Make) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        await pilot.press("s")
        assert app.screen is screen
        assert any("--readonly" in message for message in messages(app))

    watch(make().steps(3), scenario, readonly=True)


def test_plots_share_axis_smoothing_and_cursor_and_remember_them(make: Make) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        plots = list(screen.query(PlotPane))
        await pilot.press("x")
        await until(pilot, lambda: screen.frame.charts["loss"].x_axis == "epoch", "by epoch")  # type: ignore[union-attr]
        await pilot.press("g", "w")
        assert all(plot.look.log_y and plot.look.smooth == 1 for plot in plots)
        await pilot.press("left")
        assert plots[0].cursor is not None
        assert len({plot.cursor for plot in plots}) == 1
        found = settings.load().settings
        assert (found.axis, found.log_y, found.smooth) == ("epoch", True, 1)

    watch(make().steps(30), scenario)


def test_a_stream_is_not_shown_by_epoch(make: Make) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        await until(pilot, lambda: screen.frame.charts["loss"].x_axis == "step", "by step")  # type: ignore[union-attr]
        await pilot.press("x")
        await until(pilot, lambda: screen.frame.charts["loss"].x_axis == "time", "by time")  # type: ignore[union-attr]
        assert "epoch" not in "\n".join(screen_lines(app))

    settings.path().parent.mkdir(parents=True, exist_ok=True)
    settings.path().write_text('axis = "epoch"\n')
    watch(make(is_stream=True).steps(30).evaluation(loss=0.5), scenario)


def test_zooming_reads_finer_points_and_show_all_resets_it(make: Make) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        await pilot.press("plus")
        await until(pilot, lambda: screen.frame.charts["loss"].span, "zoomed")  # type: ignore[union-attr]
        await pilot.press("left", "0")
        await until(pilot, lambda: not screen.frame.charts["loss"].span, "whole")  # type: ignore[union-attr]
        assert {plot.cursor for plot in screen.query(PlotPane)} == {None}

    watch(make().steps(40), scenario)


def test_the_metric_of_a_plot_can_be_chosen(make: Make) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        loss, throughput, *_ = screen.query(PlotPane)
        throughput.look = throughput.look._replace(y_span=(1.0, 2.0))
        await pilot.press("shift+up")
        assert loss.look.y_span is not None
        await pilot.press("m", "down", "down", "down", "down", "down", "enter")
        await until(pilot, lambda: "lr" in screen.frame.charts, "shown")  # type: ignore[union-attr]
        assert settings.load()[0].plots[0] == "lr"
        # A range of the loss is none of what replaces it.
        assert [plot.look.y_span for plot in (loss, throughput)] == [None, (1.0, 2.0)]

    watch(make().steps(10), scenario)


def test_a_pane_can_be_maximized_and_restored(make: Make) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        pane = screen.query(PlotPane).first()
        width = pane.size.width
        await pilot.press("f")
        await pilot.pause()
        assert pane.size.width > 1.8 * width
        await pilot.press("escape")
        await pilot.pause()
        assert pane.size.width == width

    watch(make().steps(10), scenario)


def test_a_maximized_pane_uses_the_screen_also_after_the_end(
    make: Make,
) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        screen.query_one(RankTable).focus()
        assert "memory  time" not in shown(app)
        await pilot.press("f")
        await until(pilot, lambda: "CPU   memory  time" in shown(app), "all columns")
        await pilot.press("escape")
        await until(pilot, lambda: "wait  time" in shown(app), "the important ones")

    watch(make().steps(40).end(), scenario)


@pytest.mark.parametrize(
    ("size", "logs"),
    [((80, 24), False), ((120, 36), False), ((80, 36), True), ((120, 36), True)],
)
def test_every_pane_can_be_reached(size: tuple[int, int], logs: bool, make: Make) -> None:
    settings.save(settings.Settings(logs={"preset": logs}))

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        seen = []
        for _ in screen.panes:
            assert app.focused is not None
            assert app.focused.region, "the focused pane is on the screen"
            seen.append(app.focused)
            await pilot.press("tab")
            await pilot.pause()
        assert seen == screen.panes

    watch(make().steps(10), scenario, size)


def test_help_explains_the_focused_pane_and_its_keys(make: Make) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        screen.query_one(RankTable).focus()
        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpDialog)
        await pilot.pause()
        assert "waiting for other ranks" in shown(app)
        await pilot.press("escape")
        assert app.screen is screen

    watch(make().steps(10), scenario, (120, 60))


def test_gpus_show_their_processes_and_missing_values(make: Make) -> None:
    run = make().steps(10)
    sample = GpuSample(
        time=run.now,
        gpu=0,
        uuid="GPU-0",
        name="Fake 80GB",
        utilisation=97.0,
        memory_used=40.0 * 2**30,
        memory_total=80.0 * 2**30,
        power=None,
        temperature=64.0,
        processes={4242: 2**30},
    )
    host = HostSample(time=run.now, cpu=12.0, memory_used=1e9, memory_total=8e9, load=0.5)
    run.writer.add(sample)
    run.writer.add(host)
    run.writer.commit()

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        text = "\n".join(line.plain for line in screen.query_one(HardwarePane).lines)
        others = "others: process 4242 1 GiB"
        for part in ("Fake 80GB", "97 %", "40/80 GiB", "N/A", "64 °C", others):
            assert part in text, part

    watch(run, scenario)


def test_the_palette_searches_the_log_only_if_it_is_shown(make: Make) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        plot, log = app.focused, screen.query_one(LogPane)
        await perform(app, "log.search")
        await until(pilot, lambda: has_message(app, "not shown"), "refused")
        assert app.focused is plot
        await pilot.press("l", "shift+tab")
        await until(pilot, lambda: log.region, "shown")
        await perform(app, "log.search")
        await until(pilot, lambda: app.focused is log.query_one(Input), "in the log")

    watch(make().steps(10), scenario)


def test_the_config_screen_opens_and_closes(make: Make) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        await pilot.press("i")
        assert isinstance(app.screen, ConfigScreen)
        await pilot.press("escape")
        await pilot.press("escape")
        assert isinstance(app.screen, RunsScreen)

    watch(make().steps(10), scenario)


def test_an_internal_error_opens_a_dialog_and_the_app_continues(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a mistake of ours")

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        monkeypatch.setattr(RunHeader, "show", broken)
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, ErrorDialog), "shown")
        await pilot.pause()
        assert "ZeroDivisionError: a mistake of ours" in shown(app)
        monkeypatch.undo()
        await pilot.press("y")
        assert "Traceback" in app.clipboard
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, RunsScreen), "screens replaced")

    watch(make().steps(10), scenario)


def test_a_remapped_key_works_and_is_shown(make: Make, tmp_path: Path) -> None:
    settings.path().parent.mkdir(parents=True, exist_ok=True)
    settings.path().write_text('[keys]\n"plot.axis" = "z"\n')

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        await pilot.press("z")
        await until(pilot, lambda: screen.frame.charts["loss"].x_axis == "epoch", "by epoch")  # type: ignore[union-attr]

    watch(make().steps(10), scenario)


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
def test_the_log_of_the_first_failing_rank_is_a_key_away(size: tuple[int, int], make: Make) -> None:
    run = make().steps(3)
    (run.dir / "logs" / "rank-1.log").write_text("ValueError: a bad label\n")
    run.end("failed", error=RunError(rank=1, type="ValueError", message="odd", step=3))

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        await pilot.press("l")
        await until(pilot, lambda: "ValueError: a bad label" in shown(app), "shown")
        await pilot.press("l")
        await pilot.pause()
        assert not screen.query_one(LogPane).region

    watch(run, scenario, size)


def test_the_key_bar_shows_what_fits_and_can_be_clicked(make: Make) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        line = shown(app).splitlines()[-1]
        assert line.endswith(" ? Help  q Quit  ^p Palette ")
        assert " s Stop  l Logs  x Axis " in line
        assert len(line) <= 80
        await pilot.click(KeyBar, offset=(line.index("Help"), 0))
        await pilot.pause()
        assert isinstance(app.screen, HelpDialog)

    watch(make().steps(3), scenario, (80, 24))


def test_a_narrow_key_bar_keeps_help_and_quit(make: Make) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        line = " ".join(shown(app).splitlines()[-1].split())
        assert line == "s Stop ? Help q Quit ^p Palette"

    watch(make().steps(3), scenario, (40, 24))


def test_the_full_screen_names_the_key_that_leaves_it(make: Make) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        await pilot.press("f")
        await until(pilot, lambda: shown(app).splitlines()[-1].startswith(" f Restore "), "shown")
        await pilot.press("f")
        await until(pilot, lambda: "Restore" not in shown(app), "restored")

    watch(make().steps(3), scenario, (80, 24))


def test_a_removed_run_is_reported_once_and_can_be_left(make: Make) -> None:
    run = make().steps(20)

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        assert "ETA" in shown(app)
        trash = run.dir.parent / TRASH
        trash.mkdir()
        aside = run.dir.rename(trash / run.id)
        await until(pilot, lambda: messages(app), "shown")
        assert messages(app)[0].startswith(f"{run.id} was moved to the trash; `distrain rm --undo")
        assert "unreadable" in shown(app).splitlines()[0]
        assert "ETA" not in shown(app)
        for key in ("x", "i", "y"):
            await pilot.press(key)
        await pilot.pause(1.5)
        assert app.internal_errors == []
        assert all(run.id in message for message in messages(app))
        assert "ETA" not in shown(app)
        aside.rename(run.dir)
        await until(pilot, lambda: "ETA" in shown(app), "read again")
        shutil.rmtree(run.dir)
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, RunsScreen), "left")

    watch(run, scenario)


def test_escape_sequences_of_a_rank_do_not_reach_the_terminal(make: Make) -> None:
    run = make().steps(20)
    (run.dir / "logs" / "rank-1.log").write_bytes(b"fine\n\x1b[2Jgone\x07\n")
    message = "CUDA error\nCUDA kernel errors might be asynchronous\x1b[2J"
    error = RunError(rank=1, type="RuntimeError", message=message, traceback="…", step=20)
    run.end("failed", reason=f"rank 1: {message}", error=error)

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        text = shown(app)
        assert "CUDA error CUDA kernel errors" in text
        assert "gone" in text
        assert "\x1b" not in text

    watch(run, scenario)


def test_a_maximized_pane_keeps_the_focus_and_escape_closes_its_input_first(
    make: Make,
) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        await pilot.press("f", "tab")
        await until(pilot, lambda: screen.maximized is app.focused, "the next pane alone")
        await pilot.press("f", "l", "f", "/")
        await until(pilot, lambda: isinstance(app.focused, Input), "searching")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.focused, LogPane), "search left")
        assert screen.maximized is screen.query_one(LogPane)

    watch(make().steps(20), scenario)


@pytest.mark.parametrize(
    ("status", "waiting_for", "text"),
    [
        ("queued", "GPU 0: another run", "removed from the queue"),
        ("starting", "1 of 2 hosts to join", "ends before it has begun to train"),
    ],
)
def test_the_stop_dialog_of_a_waiting_run_does_not_mention_checkpoints(
    make: Make, status: str, waiting_for: str, text: str
) -> None:
    run = make()
    run.writer.set_state(status=status, waiting_for=[waiting_for])

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        await pilot.press("s")
        await until(pilot, lambda: isinstance(app.screen, ChoiceDialog), "asked")
        assert text in shown(app)
        assert "checkpoint" not in shown(app)

    watch(run, scenario)


def test_the_stop_dialog_promises_no_checkpoint_where_none_is_written(make: Make) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        await pilot.press("s")
        await until(pilot, lambda: isinstance(app.screen, ChoiceDialog), "asked")
        assert "No checkpoint is written" in shown(app)
        assert "Stop with a checkpoint" not in shown(app)

    watch(make(**{"checkpoint.keep": 0}).steps(20), scenario)


def test_a_new_theme_repaints_an_ended_run(make: Make) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        table = screen.query_one(RankTable)
        before = list(table.lines)
        app.theme = "textual-light"
        await until(pilot, lambda: table.lines != before, "painted on the new paper")

    watch(make(world=8).steps(20).end(), scenario)


def test_the_palette_copies_the_focused_log(make: Make) -> None:
    run = make().steps(20)
    (run.dir / "logs" / "rank-0.log").write_text("one line\n")

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        await pilot.press("l")
        await until(pilot, lambda: "one line" in shown(app), "read")
        await perform(app, "app.copy")
        await until(pilot, lambda: app.clipboard, "copied")
        assert app.clipboard == "one line"

    watch(run, scenario)


def test_a_run_that_never_trained_shows_the_reason(make: Make) -> None:
    run = make().end(
        "stopped", reason="taken out of the queue on request, never started", facts=None
    )

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        assert "never started" in shown(app)
        assert "starting" not in shown(app)

    watch(run, scenario)


def test_an_ended_run_has_the_rate_of_all_its_steps(make: Make) -> None:
    run = make().steps(40).end()

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        assert formatting.rate(run.record.summary()["samples_per_s"]) in shown(app)

    watch(run, scenario)


def test_a_stall_takes_the_place_of_the_progress(make: Make) -> None:
    run = make().steps(40)
    since = time.time() - 30
    absent = RankPosition(rank=1, since=since, phase="data", call="data.py:7 in load")
    waits = RankPosition(
        rank=0, since=since, phase="backward", collective="gloo:all_reduce Float[9]", sequence=28
    )
    stall = Stall(since=since, ranks=[1], waiting="backward", positions=[waits, absent])
    run.writer.set_state(stall=stall)
    frames = [Frame("/lib/python3/a.py", 1, "a") for _ in range(9)]
    frames.append(Frame("/home/me/data.py", 7, "load"))
    thread = ThreadStack(name="MainThread", frames=frames)
    append_stacks(run.dir, [Stacks(time=since, rank=1, threads=[thread])])

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        await until(pilot, lambda: "stalled" in shown(app), "shown")
        text = shown(app)
        assert "rank 1 is in data (data.py:7 in load)" in text
        assert "0.00 samples/s" in text
        assert "ETA" not in text
        await pilot.press("h")
        await until(pilot, lambda: "/home/me/data.py:7 in load" in shown(app), "stacks")
        text = shown(app)
        assert "… 7 calls of libraries" in text
        assert "28 gloo:all_reduce Float[9]" in text
        assert text.rindex("in data (data.py:7 in load)") < text.rindex("in backward")
        await pilot.press("escape")
        await until(pilot, lambda: "0.00 samples/s" in shown(app), "the run again")
        run.writer.set_state(status="stopping")
        await until(pilot, lambda: "stopping" in shown(app), "that it is asked to stop")
        assert "rank 1 is in data (data.py:7 in load)" in shown(app)
        *_, row = (row for news in RunScanner(run.dir.parent).scan() for row in news.rows)
        assert row.current_status == "stopping"

    watch(run, scenario)


def test_no_stall_is_read_while_the_terminal_takes_no_output(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make("mine").steps(5)
    monkeypatch.setattr("distrain.tui.screens.stacks_screen.REFRESH_S", 0.05)

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        await pilot.press("h")
        await until(pilot, lambda: "mine is running" in shown(app), "read")
        with monkeypatch.context() as blocked:
            blocked.setattr(DistrainApp, "is_responsive", False)
            await pilot.pause(0.2)
            run.writer.set_state(status="stopping")
            await pilot.pause(0.2)
            assert "mine is running" in shown(app)
        await until(pilot, lambda: "mine is stopping" in shown(app), "read on")

    watch(run, scenario)


def test_names_with_markup_are_shown_as_they_are(make: Make) -> None:
    run = make(hosts=["[/a]", "[@click=app.quit]b"]).steps(40)
    for host in range(2):
        gpu = GpuSample(
            time=run.now, gpu=1000 * host, uuid="", name="[/G]", temperature=70.0 - host
        )
        run.writer.add(gpu)
    error = RunError(rank=1, type="[/E]", message="[/e]", host="[@click=app.quit]b")
    run.end("failed", error=error)
    (run.dir / "logs").mkdir(exist_ok=True)
    (run.dir / "logs" / "stacks.log").write_text("--- stacks at [/now]\n[/frame]\n")

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        await until(pilot, lambda: "rank 1 on [@click=app.quit]b failed first" in shown(app))
        assert "hottest: GPU 0 of [/a], 70 °C" in shown(app)
        await pilot.press("h")
        await until(pilot, lambda: "stacks at [/now]" in shown(app) and "[/frame]" in shown(app))

    watch(run, scenario)


# --- a script -------------------------------------------------------------------------------------

SCRIPT = {"path": "train.py", "args": ["--lr", "1"]}
NO_STEP = {False: "no step reported yet", True: "the script reported no steps"}


def test_a_script_that_logs_nothing_shows_its_output_and_the_machine(make: Make) -> None:
    run = make(script=SCRIPT)
    (run.dir / "logs").mkdir(exist_ok=True)
    (run.dir / "logs" / "rank-0.log").write_text("hello from the script\n")

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        await until(pilot, lambda: "hello from the script" in shown(app), "log shown")
        text = shown(app)
        assert "train.py --lr 1" in text
        assert "progress unknown: no step reported yet" in text
        assert 'distrain.log({"loss": loss}) in the script adds curves' in text
        assert "CPU of the ranks" in text
        assert "Training loss" not in text
        assert "loss" not in screen.query_one(RankTable).lines[0].plain

    watch(run, scenario)


@pytest.mark.parametrize(
    ("ago", "ended", "is_said"), [(2, False, False), (8, False, True), (2, True, True)]
)
def test_no_steps_of_a_script_are_stated_only_after_it_had_time_for_one(
    ago: float, ended: bool, is_said: bool, make: Make
) -> None:
    run = make(script=SCRIPT, ago=ago, report={"stall_s": 60.0})
    run.writer.commit()
    if ended:
        run.end(reason="all processes exited with code 0")
    with run.record as record:
        now = Follower(record).snapshot()
        line = header(msgspec.structs.replace(now, time=run.began + ago), record.config, 100)[1]
    assert (NO_STEP[ended] in line.plain) is is_said
    assert ("duration" if ended else "running for") in line.plain


def test_what_a_script_logs_is_drawn_and_can_be_chosen(make: Make) -> None:
    run = make(script=SCRIPT)
    for step in range(5):
        run.logged(error=1 / (step + 1), grad_norm=step)

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        titles = ["error", "grad_norm", "CPU of the ranks", "Memory of the ranks"]
        await until(
            pilot,
            lambda: (
                [str(plot.border_title).partition(" (")[0] for plot in screen.query(PlotPane)]
                == titles
            ),
            "drawn",
        )
        assert "error 0.2" in shown(app)
        await pilot.press("m")
        await until(pilot, lambda: "Metric of this plot" in shown(app), "asked")
        assert "grad_norm" in shown(app)
        assert "GPU" not in shown(app)
        assert "Training loss" not in shown(app)
        await pilot.press("down", "enter")
        await until(pilot, lambda: screen.view.plots[0] == "logged/grad_norm", "chosen")
        assert settings.load()[0].plots == []

    watch(run, scenario, size=(200, 60))


@pytest.mark.parametrize("keys", [("x", "x"), ("plus",)])
def test_what_is_chosen_remains_when_a_script_logs_its_first_value(
    keys: tuple[str, ...], make: Make
) -> None:
    run = make(script=SCRIPT)
    for second in range(20):
        run.writer.add(RankSample(time=run.began + second, rank=0, cpu=50.0, rss=1, processes=1))
    run.writer.commit()

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        await pilot.press(*keys)
        before = screen.view
        assert (before.axis, before.span is None) == ("time", keys != ("plus",))
        run.logged(error=1.0)
        await until(pilot, lambda: screen.frame and screen.frame.snapshot.logged_names, "read")
        await pilot.pause()
        assert screen.view == before

    watch(run, scenario)


def test_an_axis_that_a_script_does_not_have_is_left_however_early_it_was_chosen(
    make: Make,
) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        screen.axes, screen._offered = AXES, None  # as before the first frame
        screen.action_axis()
        assert screen.view.axis == "step"
        await until(pilot, lambda: screen.view.axis == "time", "read")
        await pilot.press("x")
        assert screen.view.axis == "time"
        assert not app.internal_errors

    watch(make(script=SCRIPT), scenario)


def test_one_of_many_names_is_found_by_typing_parts_of_it(make: Make) -> None:
    run = make(script=SCRIPT).logged(**{f"layer{number}/norm": 1.0 for number in range(300)})

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        await until(pilot, lambda: "layer0/norm" in shown(app), "drawn")
        assert "300 names" in shown(app)
        await pilot.press("m")
        await until(pilot, lambda: "Metric of this plot" in shown(app), "asked")
        await pilot.press(*"NORM", "space", *"29")
        await until(pilot, lambda: "layer129/norm" in shown(app), "found")
        await pilot.press("down", "enter")
        await until(pilot, lambda: screen.view.plots[0] == "logged/layer129/norm", "chosen")

    watch(run, scenario)


def test_nothing_more_is_promised_once_a_run_has_ended(make: Make) -> None:
    run = make(script=SCRIPT, begun=False).end("failed", reason="no rank was started")

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        await until(pilot, lambda: "no samples" in shown(app), "painted")
        assert "yet" not in shown(app)

    watch(run, scenario)


def test_a_failure_is_shown_once_on_the_screen_of_its_run(make: Make) -> None:
    run = make("mine").steps(3)

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        run.end("failed", reason="rank 1 failed first: ValueError: odd")
        await until(pilot, lambda: "✘ failed" in shown(app), "ended")
        await until(pilot, lambda: screen._restart_key, "reported")
        assert not has_message(app, "rank 1 failed first")

    watch(run, scenario)


def test_a_script_that_failed_before_it_logged_is_not_told_how_to_log(make: Make) -> None:
    run = make(script={"path": "train.py"}).end("failed", reason="rank 0 failed first")
    with run.record as record:
        lines = header(Follower(record).snapshot(), record.config, 100)
    assert "log" not in lines[-1].plain
