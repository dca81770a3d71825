"""The screen of a bench, benches in the table of runs, and benches of marked presets."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Button, Input, Select, Static

from distrain.runners import bench as benches
from distrain.runners.bench import Bench, Definition
from distrain.runners.config.presets import load_preset
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import DistrainError
from distrain.runners.lookup import find
from distrain.tui.app import DistrainApp
from distrain.tui.dialogs.bench_rules import BenchRulesDialog
from distrain.tui.dialogs.dialog import ChoiceDialog
from distrain.tui.dialogs.pick_one import PickOneDialog
from distrain.tui.screens.bench_screen import BenchScreen
from distrain.tui.screens.launch_screen import LaunchScreen
from distrain.tui.screens.run_screen import RunScreen
from distrain.tui.screens.runs_screen import RunsScreen
from distrain.tui.widgets.bench_header import BenchHeader
from distrain.tui.widgets.bench_notes import BenchNotes
from distrain.tui.widgets.bench_results import BenchResults
from distrain.tui.widgets.bench_rounds import BenchRounds
from distrain.tui.widgets.preset_list import PresetList
from distrain.tui.widgets.run_table import RunTable
from distrain.tui.widgets.short_names import drop_common_words
from tests.support.benches import RATES, change, make_bench
from tests.support.records import RunBuilder

from .app_driver import messages, screen_lines, until

Scenario = Callable[[Pilot[None], DistrainApp], Awaitable[None]]
Make = Callable[..., RunBuilder]
SIZES = [(80, 24), (120, 36), (40, 12)]
THREE = {**RATES, "allreduce": 7900.0}


def run_app(
    scenario: Scenario,
    runs_dir: Path,
    bench: Bench | None = None,
    size: tuple[int, int] = (120, 36),
    **how: Any,
) -> None:
    """Run a scenario in the app, on the screen of `bench` or on the first screen."""

    async def play() -> None:
        app = DistrainApp(runs_dir, session=bench, **how)
        async with app.run_test(size=size) as pilot:
            if bench:
                await until(pilot, lambda: app.screen.frame, "read")  # type: ignore[attr-defined]
            await pilot.pause()
            await scenario(pilot, app)
            if app.internal_errors:
                raise app.internal_errors[0]

    asyncio.run(play())


def notifications(app: DistrainApp) -> str:
    return " ".join(messages(app))


def shown(app: DistrainApp) -> list[str]:
    """Return the lines of the screen."""
    return screen_lines(app)


def text_of(app: DistrainApp, pane: type[Any]) -> str:
    return "\n".join(line.plain for line in app.screen.query_one(pane).lines)


def footer(app: DistrainApp) -> str:
    bar = app.screen.query_one("KeyBar")
    return bar.render_line(0).text


# --- its screen ---


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("status", ["running", "stopped", "failed", "completed"])
def test_a_bench_is_shown_in_every_state_and_size(
    status: Any, size: tuple[int, int], runs_dir: Path
) -> None:
    excluded = {"allreduce": "failed in round 3: ValueError: a label"} if status == "failed" else {}
    bench = make_bench(
        runs_dir, THREE, status=status, rounds=3, reason="because", excluded=excluded
    )

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        head = text_of(app, BenchHeader)
        assert status in head
        assert ("run 1 of 3: single" if status == "running" else "because") in head
        assert "3 rounds of 7–20" in head
        assert text_of(app, BenchResults).count("\n") == 3
        await pilot.press("tab", "tab", "tab", "f", "tab", "f")

    run_app(scenario, runs_dir, bench, size)


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["ddp,train.lr=0.1", "ddp,train.lr=0.2"], ["…lr=0.1", "…lr=0.2"]),
        (["ddp,seed=1,x=1", "ddp,seed=2,x=1"], ["…seed=1…", "…seed=2…"]),
        (["ddp", "ddp,train.lr=0.1"], ["ddp", "ddp,train.lr=0.1"]),
        (["long/one/train.py", "long/two/train.py"], ["…one…", "…two…"]),
        (["short", "names"], ["short", "names"]),
        (["one of a kind with a long name"], ["one of a kind with a long name"]),
    ],
)
def test_names_too_long_for_their_column_show_the_words_that_differ(
    names: list[str], shown: list[str]
) -> None:
    assert drop_common_words(names, 10) == shown


def test_ten_candidates_with_long_names_differ_on_screen_and_leave_room_for_notes(
    runs_dir: Path,
) -> None:
    names = [f"ddp,train.lr={at / 100:.2f},description={'x' * 60}" for at in range(10)]
    configs = {
        name: load_preset("ddp", {"train.batch_size": 64 + at}) for at, name in enumerate(names)
    }
    bench = make_bench(runs_dir, dict.fromkeys(names, 5000.0), configs=configs)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        assert app.screen.query_one(BenchNotes).height > 3
        assert "…lr=0.03…" in text_of(app, BenchResults)
        assert not app.screen.query_one(BenchRounds).region
        await pilot.press("tab")
        assert app.screen.query_one(BenchRounds).region
        assert "UNEQUAL" in text_of(app, BenchHeader).splitlines()[0]
        await pilot.press("shift+tab", *["down"] * 9)
        assert app.screen.query_one(BenchResults).scroll_y > 0

    run_app(scenario, runs_dir, bench, (80, 24))


def test_a_live_bench_is_followed_and_its_end_is_reported(runs_dir: Path) -> None:
    bench = make_bench(runs_dir, status="running", rounds=7, begun=1)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        assert "left" in text_of(app, BenchHeader)
        assert "Stop" in footer(app)
        assert "Rerun" not in footer(app)
        change(bench, status="completed", reason="all is known", current=None)
        await until(pilot, lambda: "all is known" in text_of(app, BenchHeader), "ended")
        await until(pilot, lambda: "all is known" in notifications(app), "reported")
        assert "Rerun" in footer(app)
        assert "Stop" not in footer(app)
        change(bench, status="running", reason="", ended=None)
        await until(pilot, lambda: "Stop" in footer(app), "resumed")
        change(bench, status="stopped", reason="by a person", ended=time.time())
        await until(pilot, lambda: "by a person" in notifications(app), "reported again")

    run_app(scenario, runs_dir, bench)


def test_the_runs_of_a_candidate_are_opened(runs_dir: Path) -> None:
    bench = make_bench(runs_dir, status="running", rounds=2, begun=1, records=True)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("t")
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "opened")
        current = bench.current_run
        assert isinstance(app.screen, RunScreen)
        assert current is not None
        assert app.screen.run.id == current.id
        await pilot.press("escape", "down", "enter")
        assert isinstance(app.screen, PickOneDialog)
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "opened again")
        assert app.screen.run.id == bench.state.measurements[3].run_id

    run_app(scenario, runs_dir, bench)


def test_a_completed_bench_is_neither_stopped_nor_resumed(runs_dir: Path) -> None:
    bench = make_bench(runs_dir)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("s")
        assert "has already ended: completed" in notifications(app)
        change(bench, rounds=20)
        await pilot.press("R")
        assert "has completed all its rounds" in notifications(app)
        assert isinstance(app.screen, BenchScreen)

    run_app(scenario, runs_dir, bench)


def test_a_read_only_app_changes_no_bench(runs_dir: Path) -> None:
    bench = make_bench(runs_dir, status="stopped")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        assert "Resume" not in footer(app)
        await pilot.press("s", "r", "R", "e")
        assert isinstance(app.screen, BenchScreen)
        assert "read-only" in notifications(app)

    run_app(scenario, runs_dir, bench, readonly=True)


# --- among the runs ---


def test_a_bench_is_opened_edited_deleted_and_restored_like_a_run(
    ended: Make, runs_dir: Path
) -> None:
    ended("a run", ago=9000)
    bench = make_bench(runs_dir, name="mine", ago=60)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        table = app.screen.query_one(RunTable)
        await until(pilot, lambda: len(table.rows) == 2, "listed")
        assert table.row is not None
        assert table.row.id == bench.id
        await pilot.press("enter")
        assert isinstance(app.screen, BenchScreen)
        await pilot.press("escape", "p")
        await until(pilot, lambda: bench.meta.pinned, "pinned")
        await pilot.press("e", *"two", "enter")
        await until(pilot, lambda: bench.name == "two", "named")
        await pilot.press("space", "space", "c")
        assert "a bench already compares its candidates" in notifications(app)
        await pilot.press("escape", "home", "d")
        assert isinstance(app.screen, ChoiceDialog)
        await pilot.press("right", "enter")
        await until(pilot, lambda: len(table.rows) == 1, "gone")
        await pilot.press("u")
        await until(pilot, lambda: len(table.rows) == 2, "back")

    run_app(scenario, runs_dir)
    assert bench.state.status == "completed"


def test_a_live_bench_is_not_deleted(runs_dir: Path) -> None:
    bench = make_bench(runs_dir, status="running")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await until(pilot, lambda: app.screen.query_one(RunTable).rows, "listed")
        await pilot.press("d")
        assert "stop it before deleting it" in notifications(app)

    run_app(scenario, runs_dir)
    with pytest.raises(DistrainError, match="stop it before removing it"):
        bench.remove()


# --- starting ---


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return the requested starts; nothing is started."""
    calls: list[dict[str, Any]] = []

    def start(definition: Definition, **how: Any) -> Bench:
        calls.append({"definition": definition, **how})
        raise DistrainError("this is a test")

    monkeypatch.setattr(benches, "start", start)
    return calls


async def on_presets(pilot: Pilot[None], app: DistrainApp) -> LaunchScreen:
    screen = app.screen
    assert isinstance(screen, LaunchScreen)
    await until(pilot, lambda: screen.drafts.presets and screen.preview.is_current, "read")
    return screen


async def marked(pilot: Pilot[None], screen: LaunchScreen, *names: str) -> None:
    for name in names:
        screen.query_one(PresetList).highlighted = list(screen.drafts.presets).index(name)

        def is_current(name: str = name) -> bool:
            return screen.drafts.current_name == name

        await until(pilot, is_current, name)
        await pilot.press("space")


def test_marked_presets_are_benched_with_the_chosen_rules(
    runs_dir: Path, started: list[dict[str, Any]]
) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        screen = await on_presets(pilot, app)
        await marked(pilot, screen, "single", "ddp")
        await pilot.press("c")
        await until(pilot, lambda: isinstance(app.screen, BenchRulesDialog), "asked")
        outlook = str(app.screen.query_one("#bench-outlook", Static).render())
        assert "7 to 20 rounds of 2 runs" in outlook
        app.screen.query_one("#bench-repeats", Input).value = "0"
        await pilot.press("right", "enter")
        assert "bench.repeats" in str(app.screen.query_one("#bench-outlook", Static).render())
        assert not started
        app.screen.query_one("#bench-repeats", Input).value = "3"
        app.screen.query_one("#bench-seconds", Input).value = "0.5"
        app.screen.query_one("#bench-precision", Input).value = "1"
        await pilot.pause()
        assert "3 rounds of 2 runs, which cannot give a result" in str(
            app.screen.query_one("#bench-outlook", Static).render()
        )
        button = app.screen.query_one("#start", Button)
        await until(pilot, lambda: not button.has_class("-active"), "up again")
        await pilot.press("enter")
        await until(pilot, lambda: started, "started")
        await until(pilot, lambda: "this is a test" in notifications(app), "refused")
        assert app.screen is screen

    run_app(scenario, runs_dir)
    definition = started[0]["definition"]
    assert list(definition.configs) == ["single", "ddp"]
    rules = definition.rules
    assert (rules.repeats, rules.seconds, rules.precision, rules.unequal) == (3, 0.5, 0.01, False)


def test_the_rules_of_a_bench_do_not_open_over_what_is_typed(
    runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, plans = threading.Event(), benches.plans

    def plans_late(definition: Definition) -> Any:
        goes_on.wait(30)
        return plans(definition)

    monkeypatch.setattr(benches, "plans", plans_late)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        screen = await on_presets(pilot, app)
        await marked(pilot, screen, "single", "ddp")
        await pilot.press("c", "slash", *"lr")
        goes_on.set()
        await until(pilot, lambda: "bench: not asked" in notifications(app), "dropped")
        assert app.screen is screen

    run_app(scenario, runs_dir)


def test_an_unequal_bench_shows_the_differences_and_needs_confirmation(
    runs_dir: Path, started: list[dict[str, Any]]
) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        screen = await on_presets(pilot, app)
        changed = screen.drafts.by_name["ddp"].with_value("train.batch_size", 256)
        screen.drafts.by_name["ddp"] = changed
        await marked(pilot, screen, "single", "ddp")
        await pilot.press("c")
        await until(pilot, lambda: isinstance(app.screen, BenchRulesDialog), "asked")
        [row] = [line for line in shown(app) if "train.batch_size (UNEQUAL)" in line]
        assert [word for word in row.split() if word.isdigit()] == ["128", "256"]
        assert str(app.screen.query_one("#start", Button).label) == "Compare anyway"
        await pilot.press("right", "enter")
        await until(pilot, lambda: started, "started")

    run_app(scenario, runs_dir)
    assert started[0]["definition"].rules.unequal


def test_scripts_are_benched_by_steps_and_unequal_ones_only_on_request(
    runs_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("")
    scripts = {
        name: RunConfig.from_dict({"script": {"path": str(tmp_path / "train.py"), "args": [name]}})
        for name in ("--ddp", "--fsdp")
    }
    definition = benches.make(scripts, {"unequal": True})
    answers: list[Definition | None] = []

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        def outlook() -> str:
            return str(app.screen.query_one("#bench-outlook", Static).render())

        await app.push_screen(
            BenchRulesDialog(definition, benches.plans(definition)), answers.append
        )
        await pilot.pause()
        assert "--unequal" not in outlook()
        app.screen.query_one("#bench-steps", Input).value = "0"
        await until(pilot, lambda: "bench.steps" in outlook(), "refused")
        app.screen.query_one("#bench-steps", Input).value = "200"
        await until(pilot, lambda: "--steps 200" in outlook(), "shown")
        unequal = app.screen.query_one("#bench-unequal", Select)
        unequal.value = True
        await until(pilot, lambda: "--unequal" in outlook(), "allowed")
        unequal.value = False
        await until(pilot, lambda: "--unequal" not in outlook(), "not allowed")
        app.screen.query_one("#start", Button).focus()
        await pilot.press("enter")
        await until(pilot, lambda: answers, "answered")

    run_app(scenario, runs_dir, size=(80, 24))
    assert answers[0] is not None
    rules = answers[0].rules
    assert (rules.steps, rules.seconds, rules.unequal) == (200, 5.0, False)


def test_a_bench_that_cannot_start_shows_the_reason(
    runs_dir: Path, started: list[dict[str, Any]]
) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        screen = await on_presets(pilot, app)
        await pilot.press("c")
        assert "mark presets or scripts with space; c compares their speed" in notifications(app)
        screen.drafts.by_name["ddp"] = screen.drafts.by_name["ddp"].with_value(
            "data.name", "nothing"
        )
        await marked(pilot, screen, "single", "ddp")
        await pilot.press("c")
        await until(pilot, lambda: "data.name" in notifications(app), "refused")
        assert app.screen is screen

    run_app(scenario, runs_dir)
    assert not started


def test_a_bench_runs_is_stopped_resumed_and_completed(
    runs_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await marked(pilot, await on_presets(pilot, app), "single", "dp")
        await pilot.press("c")
        await until(pilot, lambda: isinstance(app.screen, BenchRulesDialog), "asked")
        app.screen.query_one("#bench-repeats", Input).value = "2"
        app.screen.query_one("#bench-seconds", Input).value = "0.5"
        await pilot.press("right", "enter")
        await until(pilot, lambda: isinstance(app.screen, (BenchScreen, ChoiceDialog)), "begun")
        if isinstance(app.screen, ChoiceDialog):  # another run uses the cores
            await pilot.click("#now")
        await until(pilot, lambda: isinstance(app.screen, BenchScreen), "seen")
        screen = app.screen
        assert isinstance(screen, BenchScreen)
        bench = screen.bench
        await until(pilot, lambda: bench.current_run, "started a run")
        await pilot.press("s", "right", "enter")
        await until(pilot, lambda: "stopped on request" in text_of(app, BenchHeader), "stopped")
        await pilot.press("R")
        await until(pilot, lambda: isinstance(app.screen, ChoiceDialog), "asked")
        await pilot.click("#now" if app.screen.query("#now") else "#launch")
        await until(pilot, lambda: bench.state.status == "completed", "completed", 240)
        await until(pilot, lambda: "completed" in text_of(app, BenchHeader), "shown")
        assert app.screen is screen

    run_app(scenario, runs_dir)
    (bench,) = benches.all_benches(runs_dir)
    assert len(bench.state.started) == 2
    assert len(bench.comparison().candidates[0].rates) == 2


def test_a_bench_is_opened_from_the_command_line(runs_dir: Path) -> None:
    bench = make_bench(runs_dir, name="mine")
    found = find("mine", runs_dir)
    assert isinstance(found, Bench)
    assert found.id == bench.id
    assert _shown(found, runs_dir) == bench.id


def _shown(found: Bench, runs_dir: Path) -> str:
    shown: list[str] = []

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        assert isinstance(app.screen, BenchScreen)
        shown.append(app.screen.bench.id)
        await pilot.press("escape")
        assert isinstance(app.screen, RunsScreen)

    run_app(scenario, runs_dir, found)
    return shown[0]


def test_a_single_bench_is_counted_as_a_bench(runs_dir: Path) -> None:
    make_bench(runs_dir, name="mine", ago=60)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await until(pilot, lambda: "  1 bench " in screen_lines(app)[0], "counted")

    run_app(scenario, runs_dir)
