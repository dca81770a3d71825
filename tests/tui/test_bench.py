"""Benches in the app: started from marked presets, watched, listed among the runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from rich.style import Style
from textual.pilot import Pilot
from textual.widgets import Button, Input, Static

from runners import bench as benches
from runners.bench import Bench, Definition
from runners.errors import DistrainError
from runners.finding import find
from runners.presets import load_preset
from tui.app import DistrainApp
from tui.data.benches import Looker, bench_row, runs_of
from tui.data.listing import Lister
from tui.screens.bench import BenchScreen
from tui.screens.bench_rules import BenchRules
from tui.screens.dialogs import Choice, PickOne
from tui.screens.launch import LaunchScreen
from tui.screens.run import RunScreen
from tui.screens.runs import RunsScreen
from tui.widgets.bench_header import BenchHeader
from tui.widgets.bench_notes import BenchNotes, notes
from tui.widgets.bench_rounds import ENDS, MEDIAN, BenchRounds, picture
from tui.widgets.bench_standing import OUTLIER, BenchStanding
from tui.widgets.run_table import RunTable

from .benched import RATES, a_bench, change
from .conftest import Made, until

Story = Callable[[Pilot[None], DistrainApp], Awaitable[None]]
Make = Callable[..., Made]
SIZES = [(80, 24), (120, 36), (40, 12)]
INKS = [("▲", Style(color="red")), ("▼", Style(color="blue"))]
THREE = {**RATES, "allreduce": 7900.0}


def tell(
    story: Story,
    runs_dir: Path,
    bench: Bench | None = None,
    size: tuple[int, int] = (120, 36),
    **how: Any,
) -> None:
    """Play a story in the app, on the screen of a bench or on the first one."""

    async def play() -> None:
        app = DistrainApp(runs_dir, run=bench, **how)
        async with app.run_test(size=size) as pilot:
            if bench:
                await until(pilot, lambda: app.screen._look, "read")  # type: ignore[attr-defined]
            await pilot.pause()
            await story(pilot, app)
            if app.mishaps:
                raise app.mishaps[0]

    asyncio.run(play())


def said(app: DistrainApp) -> str:
    return " ".join(notification.message for notification in app._notifications)


def text_of(app: DistrainApp, pane: type[Any]) -> str:
    return "\n".join(line.plain for line in app.screen.query_one(pane)._lines)


def footer(app: DistrainApp) -> str:
    bar = app.screen.query_one("KeyBar")
    return bar.render_line(0).text


# --- what it is made of ---


def test_a_bench_is_a_row_among_runs_newest_first(make: Make, ended: Make, runs_dir: Path) -> None:
    ended("older", ago=9000)
    bench = a_bench(runs_dir, name="the bench", ago=600)
    rows = {row.id: row for news in Lister(runs_dir).look() for row in news.rows}
    row = rows[bench.id]
    assert len(rows) == 2
    assert (row.name, row.strategy, row.launcher) == ("the bench", "bench", "single, ddp")
    assert (row.step, row.most, row.live, row.model) == (8, 20, False, "mlp")
    assert row.seconds == pytest.approx(16 * 14)


def test_a_live_bench_is_followed_until_it_has_ended(runs_dir: Path) -> None:
    bench = a_bench(runs_dir, status="running", begun=1)
    lister = Lister(runs_dir)

    def seen() -> Any:
        return [row for news in lister.look() for row in news.rows][-1]

    assert (seen().live, seen().step, seen().reason) == (
        True,
        9,
        "round 9 of 7–20, run 2 of 2: ddp",
    )
    change(bench, status="completed", rounds=9, now=None, reason="it is known")
    assert (seen().live, seen().step) == (False, 9)
    bench.remove()
    assert [gone for news in lister.look() for gone in news.gone] == [bench.id]


def test_a_broken_bench_is_named_and_hides_no_other(runs_dir: Path) -> None:
    broken, sound = a_bench(runs_dir), a_bench(runs_dir)
    (broken.dir / "bench.json").write_text("{")
    news = list(Lister(runs_dir).look())
    assert [row.id for each in news for row in each.rows] == [sound.id]
    assert any(broken.id in (each.problems or {}) for each in news)


def test_what_was_measured_is_worked_out_once_while_nothing_is_added(runs_dir: Path) -> None:
    bench = a_bench(runs_dir, status="running", begun=1)
    looker = Looker(bench)
    assert looker.changed()
    first = looker.look()
    assert looker.look().comparison is first.comparison
    change(bench, measurements=bench.state.measurements[:-1])
    assert looker.changed()
    assert looker.look().comparison is not first.comparison


def test_runs_of_a_contestant_are_those_measured_and_the_one_under_way(runs_dir: Path) -> None:
    look = Looker(a_bench(runs_dir, status="running", rounds=2, begun=1)).look()
    assert [(run.round, run.rate is None) for run in runs_of(look, "ddp")] == [
        (3, True),
        (2, False),
        (1, False),
    ]
    assert [run.round for run in runs_of(look, "single")] == [3, 2, 1]


def test_a_row_of_an_unequal_model_names_none(runs_dir: Path) -> None:
    wide = load_preset("ddp", {"model.name": "lenet"})
    row = bench_row(a_bench(runs_dir, configs={"ddp": wide}))
    assert (row.model, row.data) == ("several", "digits")


# --- the picture of the rounds ---


def test_the_picture_has_each_round_its_interval_and_what_is_far_off(runs_dir: Path) -> None:
    look = Looker(a_bench(runs_dir)).look()
    single, ddp, scale = picture(look.comparison, INKS, 90)
    assert OUTLIER in single.plain
    assert OUTLIER not in ddp.plain
    for line in (single.plain, ddp.plain):
        assert line.index(ENDS[0]) < line.index(MEDIAN) < line.index(ENDS[1])
    assert single.plain.index(MEDIAN) < ddp.plain.index(MEDIAN)
    assert "5,000" in scale.plain or "5k" in scale.plain


@pytest.mark.parametrize("width", [10, 24, 300])
def test_the_picture_fits_whatever_the_width(runs_dir: Path, width: int) -> None:
    long = {"ddp": 5000.0, "ddp," + "train.lr=0.1," * 12: 5100.0}
    configs = {name: load_preset("ddp") for name in long}
    look = Looker(a_bench(runs_dir, long, configs=configs)).look()
    lines = picture(look.comparison, INKS, width)
    assert all(line.cell_len <= width for line in lines)


def test_what_makes_it_unequal_is_told_before_what_may_differ(runs_dir: Path) -> None:
    configs = {"ddp": load_preset("ddp", {"train.batch_size": 256})}
    look = Looker(a_bench(runs_dir, configs=configs)).look()
    lines = [line.plain for line in notes(look.comparison, 200)]
    first = next(line for line in lines if "differs" in line or "UNEQUAL" in line)
    assert "UNEQUAL: train.batch_size: single 128, ddp 256" in first


# --- its screen ---


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("status", ["running", "stopped", "failed", "completed"])
def test_a_bench_can_be_seen_in_every_state_and_size(
    status: Any, size: tuple[int, int], runs_dir: Path
) -> None:
    out = {"allreduce": "failed in round 3: ValueError: a label"} if status == "failed" else {}
    bench = a_bench(runs_dir, THREE, status=status, rounds=3, reason="because", out=out)

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        head = text_of(app, BenchHeader)
        assert status in head
        assert ("run 1 of 3: single" if status == "running" else "because") in head
        assert "3 rounds of 7–20" in head
        assert text_of(app, BenchStanding).count("\n") == 3
        await pilot.press("tab", "tab", "tab", "f", "tab", "f")

    tell(story, runs_dir, bench, size)


def test_ten_contestants_with_long_names_leave_room_for_notes(runs_dir: Path) -> None:
    names = [f"ddp,train.lr={at / 100:.2f},description={'x' * 60}" for at in range(10)]
    configs = {
        name: load_preset("ddp", {"train.batch_size": 64 + at}) for at, name in enumerate(names)
    }
    bench = a_bench(runs_dir, dict.fromkeys(names, 5000.0), configs=configs)

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        assert app.screen.query_one(BenchNotes).height > 3
        assert not app.screen.query_one(BenchRounds).region
        await pilot.press("tab")
        assert app.screen.query_one(BenchRounds).region
        assert "UNEQUAL" in text_of(app, BenchHeader).splitlines()[0]
        await pilot.press("shift+tab", *["down"] * 9)
        assert app.screen.query_one(BenchStanding).scroll_y > 0

    tell(story, runs_dir, bench, (80, 24))


def test_a_live_bench_is_followed_and_its_end_is_told(runs_dir: Path) -> None:
    bench = a_bench(runs_dir, status="running", rounds=7, begun=1)

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        assert "left" in text_of(app, BenchHeader)
        assert "Stop" in footer(app)
        assert "Rerun" not in footer(app)
        change(bench, status="completed", reason="all is known", now=None)
        await until(pilot, lambda: "all is known" in text_of(app, BenchHeader), "ended")
        assert "all is known" in said(app)
        assert "Rerun" in footer(app)
        assert "Stop" not in footer(app)

    tell(story, runs_dir, bench)


def test_the_runs_of_a_contestant_are_opened(runs_dir: Path) -> None:
    bench = a_bench(runs_dir, status="running", rounds=2, begun=1, records=True)

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("t")
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "opened")
        current = bench.current
        assert isinstance(app.screen, RunScreen)
        assert current is not None
        assert app.screen.run.id == current.id
        await pilot.press("escape", "down", "enter")
        assert isinstance(app.screen, PickOne)
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "opened again")
        assert app.screen.run.id == bench.state.measurements[3].run_id

    tell(story, runs_dir, bench)


def test_a_bench_that_is_over_is_neither_stopped_nor_resumed(runs_dir: Path) -> None:
    bench = a_bench(runs_dir)

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("s")
        assert "has ended: completed" in said(app)
        change(bench, rounds=20)
        await pilot.press("R")
        assert "has done all its rounds" in said(app)
        assert isinstance(app.screen, BenchScreen)

    tell(story, runs_dir, bench)


def test_an_app_that_only_looks_on_changes_no_bench(runs_dir: Path) -> None:
    bench = a_bench(runs_dir, status="stopped")

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        assert "Resume" not in footer(app)
        await pilot.press("s", "r", "R", "e")
        assert isinstance(app.screen, BenchScreen)
        assert "only looks on" in said(app)

    tell(story, runs_dir, bench, readonly=True)


# --- among the runs ---


def test_a_bench_is_opened_noted_deleted_and_taken_back_like_a_run(
    ended: Make, runs_dir: Path
) -> None:
    ended("a run", ago=9000)
    bench = a_bench(runs_dir, name="mine", ago=60)

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        table = app.screen.query_one(RunTable)
        await until(pilot, lambda: len(table._rows) == 2, "listed")
        assert table.row is not None
        assert table.row.id == bench.id
        await pilot.press("enter")
        assert isinstance(app.screen, BenchScreen)
        await pilot.press("escape", "p")
        await until(pilot, lambda: bench.meta.pinned, "pinned")
        await pilot.press("e", *"two", "enter")
        await until(pilot, lambda: bench.name == "two", "named")
        await pilot.press("space", "space", "c")
        assert "a bench is a comparison already" in said(app)
        await pilot.press("escape", "home", "d")
        assert isinstance(app.screen, Choice)
        await pilot.press("enter")
        await until(pilot, lambda: len(table._rows) == 1, "gone")
        await pilot.press("u")
        await until(pilot, lambda: len(table._rows) == 2, "back")

    tell(story, runs_dir)
    assert bench.state.status == "completed"


def test_a_live_bench_is_not_deleted(runs_dir: Path) -> None:
    bench = a_bench(runs_dir, status="running")

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        await until(pilot, lambda: app.screen.query_one(RunTable)._rows, "listed")
        await pilot.press("d")
        assert "stop it first" in said(app)

    tell(story, runs_dir)
    with pytest.raises(DistrainError, match="stop it before removing it"):
        bench.remove()


# --- starting ---


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What would have been started; nothing is."""
    calls: list[dict[str, Any]] = []

    def start(definition: Definition, **how: Any) -> Bench:
        calls.append({"definition": definition, **how})
        raise DistrainError("this is a test")

    monkeypatch.setattr(benches, "start", start)
    return calls


async def on_presets(pilot: Pilot[None], app: DistrainApp) -> LaunchScreen:
    screen = app.screen
    assert isinstance(screen, LaunchScreen)
    await until(pilot, lambda: screen._presets and screen._is_known, "read")
    return screen


async def marked(pilot: Pilot[None], screen: LaunchScreen, *names: str) -> None:
    for name in names:
        screen._list.highlighted = list(screen._presets).index(name)
        await until(pilot, lambda name=name: screen._now == name, name)  # type: ignore[misc]
        await pilot.press("space")


def test_marked_presets_are_compared_as_it_was_chosen(
    runs_dir: Path, started: list[dict[str, Any]]
) -> None:
    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        screen = await on_presets(pilot, app)
        await marked(pilot, screen, "single", "ddp")
        await pilot.press("c")
        await until(pilot, lambda: isinstance(app.screen, BenchRules), "asked")
        told = str(app.screen.query_one("#bench-outlook", Static).render())
        assert "7 to 20 rounds of 2 runs" in told
        app.screen.query_one("#bench-repeats", Input).value = "0"
        await pilot.press("enter")
        assert "bench.repeats" in str(app.screen.query_one("#bench-outlook", Static).render())
        assert not started
        app.screen.query_one("#bench-repeats", Input).value = "3"
        app.screen.query_one("#bench-seconds", Input).value = "0.5"
        app.screen.query_one("#bench-precision", Input).value = "1"
        await pilot.pause()
        assert "3 rounds of 2 runs" in str(app.screen.query_one("#bench-outlook", Static).render())
        button = app.screen.query_one("#start", Button)
        await until(pilot, lambda: not button.has_class("-active"), "up again")
        await pilot.press("enter")
        await until(pilot, lambda: started, "started")
        await until(pilot, lambda: "this is a test" in said(app), "refused")
        assert app.screen is screen

    tell(story, runs_dir)
    definition = started[0]["definition"]
    assert list(definition.configs) == ["single", "ddp"]
    rules = definition.rules
    assert (rules.repeats, rules.seconds, rules.precision, rules.unequal) == (3, 0.5, 0.01, False)


def test_an_unequal_comparison_says_in_what_and_is_made_only_on_demand(
    runs_dir: Path, started: list[dict[str, Any]]
) -> None:
    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        screen = await on_presets(pilot, app)
        changed = screen._drafts["ddp"].with_value("train.batch_size", 256)
        screen._drafts["ddp"] = changed
        await marked(pilot, screen, "single", "ddp")
        await pilot.press("c")
        await until(pilot, lambda: isinstance(app.screen, BenchRules), "asked")
        settings = str(app.screen.query_one("#bench-settings Static", Static).render())
        assert "train.batch_size: single 128, ddp,train.batch_size=256 256" in settings
        assert str(app.screen.query_one("#start", Button).label) == "Compare all the same"
        await pilot.press("enter")
        await until(pilot, lambda: started, "started")

    tell(story, runs_dir)
    assert started[0]["definition"].rules.unequal


def test_what_cannot_be_compared_says_why(runs_dir: Path, started: list[dict[str, Any]]) -> None:
    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        screen = await on_presets(pilot, app)
        await pilot.press("c")
        assert "mark presets with space, then c measures them" in said(app)
        screen._drafts["ddp"] = screen._drafts["ddp"].with_value("data.name", "nothing")
        await marked(pilot, screen, "single", "ddp")
        await pilot.press("c")
        await until(pilot, lambda: "data.name" in said(app), "refused")
        assert app.screen is screen

    tell(story, runs_dir)
    assert not started


def test_a_bench_runs_is_stopped_resumed_and_completed(
    runs_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        await marked(pilot, await on_presets(pilot, app), "single", "dp")
        await pilot.press("c")
        await until(pilot, lambda: isinstance(app.screen, BenchRules), "asked")
        app.screen.query_one("#bench-repeats", Input).value = "2"
        app.screen.query_one("#bench-seconds", Input).value = "0.5"
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, (BenchScreen, Choice)), "begun")
        if isinstance(app.screen, Choice):  # somebody else's work has the cores
            await pilot.click("#now")
        await until(pilot, lambda: isinstance(app.screen, BenchScreen), "seen")
        screen = app.screen
        assert isinstance(screen, BenchScreen)
        bench = screen.bench
        await until(pilot, lambda: bench.current, "under way")
        await pilot.press("s", "enter")
        await until(pilot, lambda: "stopped on request" in text_of(app, BenchHeader), "stopped")
        await pilot.press("R")
        await until(pilot, lambda: bench.is_live or isinstance(app.screen, Choice), "resumed")
        if isinstance(app.screen, Choice):
            await pilot.click("#now")
        await until(pilot, lambda: bench.state.status == "completed", "completed", 240)
        await until(pilot, lambda: "completed" in text_of(app, BenchHeader), "told")
        assert app.screen is screen

    tell(story, runs_dir)
    (bench,) = benches.all_benches(runs_dir)
    assert len(bench.state.started) == 2
    assert len(bench.comparison().contestants[0].rates) == 2


def test_a_bench_is_opened_from_the_command_line(runs_dir: Path) -> None:
    bench = a_bench(runs_dir, name="mine")
    found = find("mine", runs_dir)
    assert isinstance(found, Bench)
    assert found.id == bench.id
    assert _shown(found, runs_dir) == bench.id


def _shown(found: Bench, runs_dir: Path) -> str:
    shown: list[str] = []

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        assert isinstance(app.screen, BenchScreen)
        shown.append(app.screen.bench.id)
        await pilot.press("escape")
        assert isinstance(app.screen, RunsScreen)

    tell(story, runs_dir, found)
    return shown[0]
