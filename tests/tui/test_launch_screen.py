"""The launch screen, driven by keys: launch, change, save, reset, filter, broken files."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, Static

from runners import runs
from runners.errors import DistrainError
from runners.presets import load_preset, user_folder
from runners.runs import Run
from tui import settings
from tui.app import DistrainApp
from tui.data import drafts
from tui.screens.dialogs import Choice
from tui.screens.launch import LaunchScreen
from tui.widgets.consequences import Consequences
from tui.widgets.form_pane import FormPane
from tui.widgets.preset_list import PresetList
from tui.widgets.sheet import Sheet

from .conftest import until

Steps = Callable[[Pilot[None], LaunchScreen], Awaitable[None]]
WIDE, SMALL = (120, 36), (80, 24)
LR = ["right", *["down"] * 8]  # from the list to train.lr


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DISTRAIN_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("DISTRAIN_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return tmp_path


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What would have been launched; every launch fails, so that no run needs to be there."""
    calls: list[dict[str, Any]] = []

    def launch(config: Any, **how: Any) -> Run:
        calls.append({"config": config, **how})
        raise DistrainError("this is a test")

    monkeypatch.setattr(runs, "launch", launch)
    return calls


def on_screen(steps: Steps, size: tuple[int, int] = WIDE) -> None:
    """Open the app on an empty runs folder, which shows the launch screen, and do `steps`."""

    async def main() -> None:
        app = DistrainApp()
        async with app.run_test(size=size) as pilot:
            screen = app.screen
            assert isinstance(screen, LaunchScreen)
            await settled(pilot, screen)
            await steps(pilot, screen)
            assert app.mishaps == []

    asyncio.run(main())


async def settled(pilot: Pilot[None], screen: LaunchScreen) -> None:
    """Until the presets are read and what follows is worked out."""
    await pilot.pause(0.02)
    await until(pilot, lambda: screen._presets and (screen._draft is None or screen._is_known))
    await pilot.pause(0.02)


def text_of(screen: LaunchScreen, kind: type[Sheet] | type[Consequences]) -> str:
    return "\n".join(line.plain for line in screen.query_one(kind)._lines)


@pytest.mark.parametrize("size", [WIDE, SMALL])
def test_enter_launches_the_preset_that_is_there(
    size: tuple[int, int], launched: list[dict[str, Any]]
) -> None:
    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        await pilot.press("enter")
        await until(pilot, lambda: launched)

    on_screen(steps, size)
    assert launched[0]["config"] == load_preset("ddp")
    assert launched[0]["command"] == ["distrain", "run", "ddp"]
    assert launched[0]["name"] == "ddp"


def test_a_launch_that_fails_leaves_the_form_as_it_was(launched: list[dict[str, Any]]) -> None:
    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        await pilot.press(*LR, *"0.05", "enter", "ctrl+r")
        await until(pilot, lambda: launched and not screen.distrain._launching)
        await until(pilot, lambda: "launching" not in str(screen._form.border_subtitle))
        assert pilot.app.screen is screen
        assert launched[0]["config"].train.lr == 0.05

    on_screen(steps)


def test_a_value_goes_to_the_preset_that_it_was_typed_for() -> None:
    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        screen.post_message(FormPane.Changed("single", "train.lr", 0.07))
        await until(pilot, lambda: screen._drafts["single"].get("train.lr") == 0.07)
        assert screen._drafts["ddp"].get("train.lr") != 0.07

    on_screen(steps)


def test_a_launch_that_begins_gives_way_to_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    began = threading.Event()

    class Begun:
        id = "20260101-000000-ddp-abcd"

    def launch(config: Any, **how: Any) -> Any:
        began.wait(10)
        return Begun()

    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        await pilot.press("enter", "enter")
        began.set()
        await until(pilot, lambda: opened)
        assert screen not in pilot.app.screen_stack

    monkeypatch.setattr(runs, "launch", launch)
    monkeypatch.setattr(DistrainApp, "watch_run", lambda self, run: opened.append(run.id))
    on_screen(steps)
    assert opened == [Begun.id]


def test_a_complaint_that_makes_the_form_scroll_is_not_cut_off() -> None:
    user_folder().mkdir(parents=True)
    (user_folder() / "aside.toml").write_text('devices = "every one of them"')
    settings.save(settings.Settings(preset="aside"))

    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        sheet = screen.query_one(Sheet)
        await until(pilot, lambda: sheet.show_vertical_scrollbar, "scrolls")
        await pilot.pause()
        assert max(line.cell_len for line in sheet._lines) <= sheet.width

    on_screen(steps, WIDE)


@pytest.mark.parametrize("size", [WIDE, SMALL])
def test_a_complaint_stands_at_the_field_while_typing(size: tuple[int, int]) -> None:
    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        await pilot.press(*LR, "minus", "1")
        assert "must be a number > 0, not -1" in text_of(screen, Sheet)
        await pilot.press("enter")
        assert screen._draft
        assert screen._draft.get("train.lr") == 0.1
        await pilot.press("backspace", "backspace", *"0.05")
        assert "must be" not in text_of(screen, Sheet)
        await pilot.press("enter")
        await settled(pilot, screen)
        assert "0.05  was 0.1" in text_of(screen, Sheet)
        words = text_of(screen, Consequences).split()
        assert words[-5:] == ["distrain", "run", "ddp", "--set", "train.lr=0.05"]

    on_screen(steps, size)


def test_keys_that_come_in_one_burst_are_not_lost() -> None:
    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        await pilot.press(*LR)
        for key in [*"0.05", "enter"]:
            pilot.app.simulate_key(key)
        await until(pilot, lambda: screen._draft and screen._draft.get("train.lr") == 0.05)
        assert isinstance(screen.focused, Sheet)

    on_screen(steps)


def test_an_impossible_combination_stands_at_its_field_and_is_not_launched(
    launched: list[dict[str, Any]],
) -> None:
    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        await pilot.press("right", *["down"] * 5, "1", "enter")  # one sample for two ranks
        await settled(pilot, screen)
        assert "1 is smaller than 2 ranks" in text_of(screen, Sheet)
        assert "this cannot run" in text_of(screen, Consequences)
        await pilot.press("ctrl+r")
        await pilot.pause()

    on_screen(steps)
    assert launched == []


def test_choices_switches_and_unset_fields() -> None:
    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        await pilot.press("right", "right")
        assert screen._draft
        assert screen._draft.get("strategy") != "ddp"
        await pilot.press("left", *["down"] * 9, "space")
        assert screen._draft.get("strategy") == "ddp"
        assert screen._draft.get("train.scale_lr") is True
        await pilot.press(*["down"] * 5, "4", "enter")
        assert screen._draft.get("train.threads") == 4
        await pilot.press("enter", "delete", "enter")
        assert screen._draft.get("train.threads") is None

    on_screen(steps)


def test_a_field_is_reset() -> None:
    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        await pilot.press(*LR, *"0.5", "enter", "ctrl+z")
        assert screen._draft
        assert screen._draft.changes == []

    on_screen(steps)


def test_all_fields_and_the_filter() -> None:
    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        assert "bucket_mb" not in text_of(screen, Sheet)
        await pilot.press("right", "a")
        assert "bucket_mb" in text_of(screen, Sheet)
        await pilot.press("slash", *"warm-up", "enter")
        assert "skip_steps" in text_of(screen, Sheet)
        assert "bucket_mb" not in text_of(screen, Sheet)
        await pilot.press("escape")
        assert "bucket_mb" in text_of(screen, Sheet)
        await pilot.press("slash", *"xyzzy")
        assert "no field" in str(screen.query_one("#about", Static).render())

    on_screen(steps)


def test_a_preset_of_ones_own_is_the_same_run() -> None:
    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        await pilot.press(*LR, *"0.05", "enter", "ctrl+s")
        await pilot.pause()
        name = pilot.app.screen.query_one(Input)
        name.value = "ddp"
        await pilot.press("enter")
        assert pilot.app.screen is not screen, "a built-in preset keeps its name"
        name.value = "mine"
        await pilot.press("enter")
        await until(pilot, lambda: screen.query_one(PresetList).name_now == "mine")
        await settled(pilot, screen)
        assert screen._draft
        assert screen._draft.config == load_preset("mine")
        assert screen._command() == "distrain run mine"

    on_screen(steps)
    told = {"description": "ddp with train.lr 0.05"}
    assert load_preset("mine") == load_preset("ddp", {"train.lr": 0.05, **told})


def test_ones_own_preset_is_replaced_only_when_asked() -> None:
    user_folder().mkdir(parents=True)
    (user_folder() / "mine.toml").write_text('description = "old"\n')

    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        await pilot.press("ctrl+s")
        await pilot.pause()
        pilot.app.screen.query_one(Input).value = "mine"
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(pilot.app.screen, Choice)
        assert load_preset("mine").description == "old"
        await pilot.press("enter")
        await until(pilot, lambda: load_preset("mine") == load_preset("ddp"))

    on_screen(steps)


@pytest.mark.parametrize("size", [WIDE, SMALL])
def test_a_broken_file_is_shown_with_its_reason_and_not_launched(
    size: tuple[int, int], launched: list[dict[str, Any]]
) -> None:
    user_folder().mkdir(parents=True)
    (user_folder() / "aaa.toml").write_text("[train]\nlr = -1\n")

    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        await pilot.press("home", "enter", "right", "ctrl+s")
        await settled(pilot, screen)
        assert screen.query_one(PresetList).name_now == "aaa"
        assert "train.lr: must be" in str(screen.query_one("#about", Static).render())
        assert pilot.app.screen is screen

    on_screen(steps, size)
    assert launched == []


def test_the_command_is_copied() -> None:
    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        await pilot.press("y")
        assert pilot.app.clipboard == "distrain run ddp"

    on_screen(steps)


def test_changes_stay_with_their_preset_also_for_the_next_time() -> None:
    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        await pilot.press(*LR, *"0.05", "enter", "escape", "down")
        await settled(pilot, screen)
        assert screen._draft
        assert screen._draft.changes == []
        await pilot.press("up", "escape")
        assert pilot.app.screen is not screen

    async def next_time(pilot: Pilot[None], screen: LaunchScreen) -> None:
        assert screen._draft
        assert screen._draft.get("train.lr") == 0.05
        await pilot.press("ctrl+z")
        assert isinstance(pilot.app.screen, Choice)
        await pilot.press("enter")
        await settled(pilot, screen)
        assert screen._draft.changes == []
        assert drafts.kept() == {}

    on_screen(steps)
    on_screen(next_time)


def test_what_was_changed_of_a_preset_that_says_something_else_now_may_no_longer_hold() -> None:
    user_folder().mkdir(parents=True)
    settings.save(settings.Settings(preset="mine"))
    drafts.keep("mine", ["train.lr=x", "train.epochs=3"])
    drafts.keep("gone", ["a=1"])
    (user_folder() / "mine.toml").write_text('strategy = "dp"\n')

    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        assert screen._now == "mine"
        assert screen._draft
        assert [field.key for field in screen._draft.changes] == ["train.epochs"]

    on_screen(steps)


def test_the_form_fills_the_screen_with_the_line_to_type_in() -> None:
    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        await pilot.press(*LR, "f", "7")
        assert screen.query_one(FormPane).size.width > 100
        assert screen.query_one("#editor").region.width > 0

    on_screen(steps)
