"""Keys that a person has chosen, on every screen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.screen import Screen

from runners.record import Record
from runners.runs import Run
from runners.state import RunError
from tui import keymap, settings
from tui.app import DistrainApp
from tui.screens.compare import CompareScreen
from tui.screens.config import ConfigScreen
from tui.screens.help import HelpScreen
from tui.screens.launch import LaunchScreen
from tui.screens.run import RunScreen
from tui.screens.runs import RunsScreen
from tui.widgets.failure_card import FailureCard
from tui.widgets.log_pane import LogPane

from .conftest import Made, until

Make = Callable[..., Made]
Story = Callable[[Pilot[None], DistrainApp], Awaitable[None]]


def play(story: Story, runs_dir: Path, keys: str, run: str | None = None) -> None:
    """Play a story in an app with these lines in `[keys]` of its settings."""

    async def played() -> None:
        app = DistrainApp(runs_dir, run=run and Run(Record(runs_dir / run)))
        async with app.run_test(size=(120, 60)) as pilot:
            await until(pilot, lambda: _ready(app.screen), "opened")
            await story(pilot, app)
            if app.mishaps:
                raise app.mishaps[0]

    settings.path().parent.mkdir(parents=True, exist_ok=True)
    settings.path().write_text(f"[keys]\n{keys}\n", encoding="utf-8")
    asyncio.run(played())


def _ready(screen: Screen[object]) -> bool:
    if isinstance(screen, RunScreen):
        return screen._frame is not None
    return isinstance(screen, RunsScreen) and screen._complete


async def pressed(pilot: Pilot[None], key: str, opens: type[Screen[object]]) -> None:
    await pilot.press(key)
    await until(pilot, lambda: isinstance(pilot.app.screen, opens), f"{key} opens {opens}")


def test_every_screen_has_the_keys_that_its_user_wants(ended: Make, runs_dir: Path) -> None:
    ended("new", ago=10)
    ended("old", ago=9000)

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("M", "M")
        await pressed(pilot, "C", CompareScreen)
        await pressed(pilot, "b", RunsScreen)
        await pilot.press("b")
        await pressed(pilot, "enter", RunScreen)
        await pressed(pilot, "I", ConfigScreen)
        await pressed(pilot, "I", RunScreen)
        await pressed(pilot, "b", RunsScreen)
        await pressed(pilot, "N", LaunchScreen)
        await pressed(pilot, "b", RunsScreen)

    keys = {
        "app.back": "b",
        "app.new": "N",
        "runs.mark": "M",
        "runs.compare": "C",
        "run.config": "I",
    }
    play(story, runs_dir, "\n".join(f'"{id}" = "{key}"' for id, key in keys.items()))


def test_texts_name_the_keys_that_are_pressed(make: Make, runs_dir: Path) -> None:
    run = make("mine").steps(20)
    (run.dir / "checkpoints" / "last.pt").write_bytes(b"weights")
    run.end("failed", error=RunError(rank=1, type="ValueError", message="a label", step=7))

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        card = app.screen.query_one(FailureCard)
        await until(pilot, lambda: card.has_class("-failed"), "failed")
        text = str(card.render())
        assert "the log (l), then Z reruns" in text
        assert "F resumes" in text

    play(story, runs_dir, '"run.rerun" = "Z"\n"run.resume" = "F"', run.id)


def test_a_log_is_copied_with_the_key_that_copies(ended: Make, runs_dir: Path) -> None:
    run = ended("mine")
    (run.dir / "logs" / "rank-0.log").write_text("one line\n")

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("l")
        log = app.screen.query_one(LogPane)
        await until(pilot, lambda: log._page and log._page.total, "read")
        await pilot.press("y")
        assert not app.clipboard
        await pilot.press("Y")
        assert app.clipboard == "one line"

    play(story, runs_dir, '"app.copy" = "Y"', run.id)


def test_a_file_with_a_mistake_is_left_for_its_writer_to_mend(ended: Make, runs_dir: Path) -> None:
    ended("mine")

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        await until(pilot, lambda: app._notifications, "told")
        app.remember(bell=True)
        assert app.settings.bell

    play(story, runs_dir, '"run.stop" = "k"\n[no such thing]')
    assert "run.stop" in settings.path().read_text("utf-8")


def test_of_two_apps_each_keeps_what_the_other_has_chosen(runs_dir: Path) -> None:
    async def both() -> None:
        one, other = DistrainApp(runs_dir), DistrainApp(runs_dir)
        async with one.run_test(), other.run_test():
            one.remember(bell=True)
            other.remember(log_y=True)

    asyncio.run(both())
    found, _ = settings.load()
    assert (found.bell, found.log_y) == (True, True)


def test_settings_that_cannot_be_written_leave_nothing_behind() -> None:
    settings.path().mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        settings.save(settings.Settings(bell=True))
    assert [*settings.path().parent.iterdir()] == [settings.path()]


def test_an_axis_that_is_none_is_told(runs_dir: Path) -> None:
    settings.path().parent.mkdir(parents=True)
    settings.path().write_text('axis = "epochs"\n', encoding="utf-8")
    found, complaint = settings.load()
    assert found.axis == "step"
    assert "epochs" in complaint


def test_ctrl_c_says_what_leaves(ended: Make, runs_dir: Path) -> None:
    ended("mine")

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("ctrl+c")
        await until(pilot, lambda: app._notifications, "told")
        [told] = app._notifications
        assert told.message == "Z leaves the app; runs go on"

    play(story, runs_dir, '"app.quit" = "Z"')


def test_help_names_the_keys_that_are_in_use(ended: Make, runs_dir: Path) -> None:
    ended("mine")

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        await pressed(pilot, "ctrl+k", HelpScreen)
        found = keymap.pressed("app.help", app.settings.keys)
        assert [binding.key for binding in found] == ["ctrl+k", "f1"]

    play(story, runs_dir, '"app.help" = "ctrl+k, f1"')


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ({}, ""),
        ({"run.stop": "k"}, ""),
        ({"run.stop": "r", "run.rerun": "s"}, ""),
        ({"run.stop": ""}, ""),
        ({"run.stopp": "k"}, "[keys] names run.stopp, which is no action"),
        ({"run.stop": "l"}, "[keys] gives l to both run.stop and run.logs"),
        ({"app.new": "x"}, "[keys] gives x to both app.new and plot.axis"),
        ({"run.logs": "?"}, "[keys] gives question_mark to both app.help and run.logs"),
    ],
)
def test_a_remapping_that_cannot_work_is_told(keys: dict[str, str], complaint: str) -> None:
    assert keymap.complaints(keys) == ([complaint] if complaint else [])


def test_the_app_says_what_is_wrong_with_the_keys(ended: Make, runs_dir: Path) -> None:
    ended("mine")

    async def story(pilot: Pilot[None], app: DistrainApp) -> None:
        assert "run.stopp" in " ".join(note.message for note in app._notifications)

    play(story, runs_dir, '"run.stopp" = "k"')
