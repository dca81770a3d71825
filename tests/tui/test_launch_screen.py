"""The launch screen, driven by keys: launch, change, save, reset, filter, broken files."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from textual import events
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Input, Label, Static

from distrain.runners import runs
from distrain.runners.config import presets
from distrain.runners.config.presets import load_preset, user_folder
from distrain.runners.config.schema import differences
from distrain.runners.errors import DistrainError
from distrain.runners.runs import Run
from distrain.tui import settings
from distrain.tui.actions.session_controller import SessionController
from distrain.tui.app import DistrainApp
from distrain.tui.data import draft_store, recent_scripts
from distrain.tui.data.preset_drafts import PresetDrafts
from distrain.tui.dialogs import add_entry
from distrain.tui.dialogs.dialog import ChoiceDialog
from distrain.tui.dialogs.pick_one import PickOneDialog
from distrain.tui.screens.launch_screen import LaunchScreen
from distrain.tui.widgets.form_pane import FormPane
from distrain.tui.widgets.form_table import FormTable
from distrain.tui.widgets.launch_control import LaunchControl
from distrain.tui.widgets.preset_list import PresetList
from distrain.tui.widgets.preview_pane import PreviewPane
from tests.support.records import RunBuilder

from .app_driver import messages, until
from .test_run_screen import shown

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
    """Return the launches; every launch fails, so that no run is needed."""
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
            assert app.internal_errors == []

    asyncio.run(main())


async def settled(pilot: Pilot[None], screen: LaunchScreen) -> None:
    """Wait until the presets are read and the preview is built."""
    await pilot.pause(0.02)
    await until(
        pilot,
        lambda: (
            screen.drafts.presets and (screen.drafts.current is None or screen.preview.is_current)
        ),
    )
    await pilot.pause(0.02)


def text_of(screen: LaunchScreen, kind: type[FormTable] | type[PreviewPane]) -> str:
    return "\n".join(line.plain for line in screen.query_one(kind).lines)


@pytest.mark.parametrize("is_away", [False, True])
def test_a_launch_that_ends_while_a_person_types_takes_no_letters(
    is_away: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunBuilder(tmp_path, "mine")
    begun, has_typed = threading.Event(), threading.Event()

    def launch(*_: Any, **__: Any) -> Run:
        begun.set()
        has_typed.wait(60)
        return Run(run.record)

    monkeypatch.setattr(runs, "launch", launch)

    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        await pilot.press("ctrl+r")
        await until(pilot, lambda: begun.is_set(), "begun")
        await pilot.press("slash", "b")
        if is_away:  # in another window
            pilot.app.post_message(events.AppBlur())
            await until(pilot, lambda: screen.focused is None, "left")
        has_typed.set()
        await until(pilot, lambda: messages(pilot.app) == ["mine has started"], "started")
        pilot.app.post_message(events.AppFocus())
        await until(pilot, lambda: screen.focused is not None, "came back")
        await pilot.press(*"sw")
        assert pilot.app.screen is screen
        assert screen.query_one("#filter", Input).value == "bsw"

    on_screen(steps)
    assert run.record.live


@pytest.mark.parametrize("size", [WIDE, SMALL])
def test_two_presses_of_enter_launch_the_current_preset(
    size: tuple[int, int], launched: list[dict[str, Any]]
) -> None:
    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        control = screen.query_one(LaunchControl)
        await pilot.press("enter")
        assert control.text == "▶ Launch on cpu:0 cpu:1  (^r)"
        assert control.has_focus
        assert control.region.height == 1
        await pilot.pause(0.1)
        assert not launched
        await pilot.press("enter")
        await until(pilot, lambda: launched)

    on_screen(steps, size)
    assert launched[0]["config"] == load_preset("ddp")
    assert launched[0]["command"] == ["distrain", "run", "ddp"]
    assert launched[0]["name"] == "ddp"


def test_a_launch_has_the_value_that_is_being_typed(launched: list[dict[str, Any]]) -> None:
    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        await pilot.press(*LR, "enter", "ctrl+u", *"0.5", "ctrl+r")
        await until(pilot, lambda: launched, "launched")
        assert launched[0]["config"].train.lr == 0.5
        assert launched[0]["command"][-1] == "train.lr=0.5"

    on_screen(steps)


def test_a_failed_launch_keeps_the_form(launched: list[dict[str, Any]]) -> None:
    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        control = screen.query_one(LaunchControl)
        await pilot.press(*LR, *"0.05", "enter", "ctrl+r")
        await until(pilot, lambda: launched and not screen.distrain.launches.is_launching)
        await until(pilot, lambda: control.text.startswith("▶ Launch"))
        assert pilot.app.screen is screen
        assert launched[0]["config"].train.lr == 0.05

    on_screen(steps)


def test_a_change_that_cannot_be_written_outlasts_a_dialog(home: Path) -> None:
    draft_store.path().mkdir(parents=True)  # no file can replace it

    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        await pilot.press(*LR, *"0.05", "enter", "question_mark")
        await until(pilot, lambda: pilot.app.screen is not screen)
        await pilot.press("escape")
        await until(pilot, lambda: pilot.app.screen is screen)
        await settled(pilot, screen)
        assert screen.drafts.current
        assert screen.drafts.current.get("train.lr") == 0.05
        assert "lasts until this screen is closed" in messages(pilot.app)[-1]

    on_screen(steps)


def test_a_value_changes_the_preset_it_was_typed_for() -> None:
    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        screen.post_message(FormPane.Changed("single", "train.lr", 0.07))
        await until(pilot, lambda: screen.drafts.by_name["single"].get("train.lr") == 0.07)
        assert screen.drafts.by_name["ddp"].get("train.lr") != 0.07

    on_screen(steps)


def test_the_launch_screen_closes_when_the_run_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    began = threading.Event()

    class Begun:
        id = "20260101-000000-ddp-abcd"

    def launch(config: Any, **how: Any) -> Any:
        began.wait(10)
        return Begun()

    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        await pilot.press("enter", "enter", "enter")
        assert screen.query_one(LaunchControl).text == "launching ddp on cpu:0 cpu:1 …"
        began.set()
        await until(pilot, lambda: opened)
        assert screen not in pilot.app.screen_stack

    monkeypatch.setattr(runs, "launch", launch)
    monkeypatch.setattr(SessionController, "open", lambda self, run: opened.append(run.id))
    on_screen(steps)
    assert opened == [Begun.id]


def test_a_problem_that_makes_the_form_scroll_is_not_cut_off() -> None:
    user_folder().mkdir(parents=True)
    (user_folder() / "aside.toml").write_text('devices = "every one of them"')
    settings.save(settings.Settings(preset="aside"))

    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        table = screen.query_one(FormTable)
        await until(pilot, lambda: table.show_vertical_scrollbar, "scrolls")
        await pilot.pause()
        assert max(line.cell_len for line in table.lines) <= table.width

    on_screen(steps, WIDE)


@pytest.mark.parametrize("size", [WIDE, SMALL])
def test_a_problem_is_shown_at_its_field_while_typing(size: tuple[int, int]) -> None:
    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        await pilot.press(*LR, "minus", "1")
        assert "must be a number > 0, not -1" in text_of(screen, FormTable)
        await pilot.press("enter")
        assert screen.drafts.current
        assert screen.drafts.current.get("train.lr") == 0.1
        await pilot.press("backspace", "backspace", *"0.05")
        assert "must be" not in text_of(screen, FormTable)
        await pilot.press("enter")
        await settled(pilot, screen)
        assert "0.05  was 0.1" in text_of(screen, FormTable)
        words = text_of(screen, PreviewPane).split()
        assert words[-5:] == ["distrain", "run", "ddp", "--set", "train.lr=0.05"]

    on_screen(steps, size)


def test_keys_in_one_burst_are_not_lost() -> None:
    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        await pilot.press(*LR)
        for key in [*"0.05", "enter"]:
            pilot.app.simulate_key(key)
        await until(
            pilot, lambda: screen.drafts.current and screen.drafts.current.get("train.lr") == 0.05
        )
        assert isinstance(screen.focused, FormTable)

    on_screen(steps)


def test_an_impossible_combination_is_shown_at_its_field_and_not_launched(
    launched: list[dict[str, Any]],
) -> None:
    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        await pilot.press("right", *["down"] * 5, "1", "enter")  # one sample for two ranks
        await settled(pilot, screen)
        assert "1 is smaller than 2 ranks" in text_of(screen, FormTable)
        assert "cannot run" in text_of(screen, PreviewPane)
        await pilot.press("right", "enter")
        assert "1 is smaller than 2 ranks" in " ".join(messages(pilot.app))
        assert isinstance(screen.focused, FormTable)
        await pilot.press("ctrl+r")
        await pilot.pause()

    on_screen(steps)
    assert launched == []


def test_choices_switches_and_unset_fields() -> None:
    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        await pilot.press("right", "space")
        assert screen.drafts.current
        assert screen.drafts.current.get("strategy") != "ddp"
        await pilot.press(*"dd", "enter", *["down"] * 9, "space")
        assert screen.drafts.current.get("strategy") == "ddp"
        assert screen.drafts.current.get("train.scale_lr") is True
        await pilot.press(*["down"] * 5, "4", "enter")
        assert screen.drafts.current.get("train.threads") == 4
        await pilot.press("enter", "delete", "enter")
        assert screen.drafts.current.get("train.threads") is None

    on_screen(steps)


def test_an_arrow_in_a_terminal_that_has_lost_its_focus_goes_to_a_pane() -> None:
    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        screen.set_focus(None)
        await pilot.press("right")
        await pilot.pause()
        assert screen.query_one(FormPane).has_focus_within

    on_screen(steps)


def test_what_is_being_typed_stays_while_another_window_has_the_focus() -> None:
    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        editor = screen.query_one("#editor", Input)
        await pilot.press(*LR, *"0.")
        pilot.app.post_message(events.AppBlur())
        await until(pilot, lambda: not editor.has_focus, "left")
        await pilot.pause()
        pilot.app.post_message(events.AppFocus())
        await until(pilot, lambda: editor.has_focus, "came back")
        await pilot.press(*"05", "enter")
        await settled(pilot, screen)
        assert screen.drafts.current
        assert screen.drafts.current.get("train.lr") == 0.05

    on_screen(steps)


def test_arrows_move_between_panes_and_change_no_value() -> None:
    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        table, control = screen.query_one(FormTable), screen.query_one(LaunchControl)
        where = []
        for key in ["left", "right", "right", "right", "left", "left", "left"]:
            await pilot.press(key)
            where.append(screen.focused)
        names = screen.query_one(PresetList)
        assert where == [names, table, control, control, table, names, names]
        assert screen.drafts.current
        assert screen.drafts.current.changes == []
        # In a field that is being edited they move the cursor of the text.
        await pilot.press(*LR, *"05", "left", "left", *"0.", "enter")
        assert screen.drafts.current.get("train.lr") == 0.05
        assert screen.focused is table

    on_screen(steps)


def test_a_key_that_quits_is_in_the_footer_where_letters_are_text() -> None:
    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        app = cast(DistrainApp, screen.app)
        for key, footer in (("left", " q Quit"), ("right", " ^q Quit")):
            await pilot.press(key)
            await until(pilot, lambda footer=footer: footer in shown(app), "the footer")
        await pilot.press("ctrl+q")
        await until(pilot, lambda: not app.is_running or app._exit, "the end")

    on_screen(steps, SMALL)


@pytest.mark.parametrize(
    ("down", "typed", "key", "value"),
    [
        (0, "allr", "strategy", "allreduce"),
        (3, "cpu:3", "devices", "cpu:3"),
        (9, "t", "train.scale_lr", True),
        (17, "/data", "data.root", "/data"),
    ],
)
def test_typing_on_any_field_edits_it(down: int, typed: str, key: str, value: Any) -> None:
    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        await pilot.press("right", *["down"] * down, *typed)
        assert pilot.app.screen is screen
        await pilot.press("enter")
        await settled(pilot, screen)
        assert screen.drafts.current
        assert screen.drafts.current.get(key) == value

    on_screen(steps)


def test_escape_discards_a_long_text_only_after_a_question() -> None:
    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        editor = screen.query_one("#editor", Input)
        await pilot.press("right", *["down"] * 17, *"/data", "escape")
        assert isinstance(screen.focused, FormTable), "little was typed"
        await pilot.press(*"/data/imagenet/2012/all", "escape")
        assert isinstance(pilot.app.screen, ChoiceDialog)
        await pilot.press("escape")
        assert pilot.app.screen is screen
        assert editor.has_focus
        assert editor.value == "/data/imagenet/2012/all"
        for _ in range(5):
            pilot.app.simulate_key("escape")
        await pilot.pause()
        assert len(pilot.app.screen_stack) <= 3, "a burst of them asks once"
        if pilot.app.screen is screen:
            await pilot.press("escape")
        await pilot.press("right", "enter")
        await until(pilot, lambda: isinstance(screen.focused, FormTable), "discarded")
        assert screen.drafts.current
        assert screen.drafts.current.changes == []

    on_screen(steps)


def test_a_field_is_reset() -> None:
    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        await pilot.press(*LR, *"0.5", "enter", "ctrl+z")
        assert screen.drafts.current
        assert screen.drafts.current.changes == []

    on_screen(steps)


def test_all_fields_and_the_filter() -> None:
    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        assert "bucket_mb" not in text_of(screen, FormTable)
        await pilot.press("right", "ctrl+l")
        assert "bucket_mb" in text_of(screen, FormTable)
        await pilot.press("slash", *"warm-up", "enter")
        assert "skip_steps" in text_of(screen, FormTable)
        assert "bucket_mb" not in text_of(screen, FormTable)
        await pilot.press("escape")
        assert "bucket_mb" in text_of(screen, FormTable)
        await pilot.press("slash", *"xyzzy")
        assert "no field" in str(screen.query_one("#about", Static).render())

    on_screen(steps)


def test_a_saved_preset_is_the_same_run() -> None:
    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        await pilot.press(*LR, *"0.05", "enter", "ctrl+s")
        await pilot.pause()
        name = pilot.app.screen.query_one(Input)
        name.value = "ddp"
        await pilot.press("enter")
        assert pilot.app.screen is not screen, "a built-in preset keeps its name"
        name.value = "x" * 300
        await pilot.press("enter")
        assert pilot.app.screen is not screen, "a name has at most 100 characters"
        name.value = "mine"
        await pilot.press("enter")
        await until(pilot, lambda: screen.query_one(PresetList).name_now == "mine")
        await settled(pilot, screen)
        assert screen.drafts.current
        assert screen.drafts.current.config == load_preset("mine")
        assert screen.command == "distrain run mine"

    on_screen(steps)
    described = {"description": "ddp with train.lr 0.05", "code_dir": str(user_folder())}
    assert load_preset("mine") == load_preset("ddp", {"train.lr": 0.05, **described})


@pytest.mark.parametrize("is_listed", [True, False], ids=["listed", "saved meanwhile"])
def test_a_users_preset_is_replaced_only_after_confirmation(is_listed: bool) -> None:
    def write() -> None:
        user_folder().mkdir(parents=True)
        (user_folder() / "mine.toml").write_text('description = "old"\n')

    if is_listed:
        write()

    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        await pilot.press("ctrl+s")
        if not is_listed:
            write()  # by another app
        await pilot.pause()
        pilot.app.screen.query_one(Input).value = "mine"
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(pilot.app.screen, ChoiceDialog)
        assert "Replacing it removes the comments in it." in str(pilot.app.screen.text.render())
        assert load_preset("mine").description == "old"
        await pilot.press("right", "enter")
        await until(pilot, lambda: not differences(load_preset("mine"), load_preset("ddp")))

    on_screen(steps)


@pytest.mark.parametrize("size", [WIDE, SMALL])
def test_an_invalid_preset_file_is_shown_with_its_problem_and_not_launched(
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


def test_a_missing_file_that_is_there_by_now_keeps_no_preset_from_running(
    home: Path, launched: list[dict[str, Any]]
) -> None:
    file = home / "last.pt"
    draft_store.save_changes("ddp", [f'checkpoint.load="{file}"'])

    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        assert "there is no file" in text_of(screen, PreviewPane)
        file.touch()
        await pilot.press("ctrl+r")
        await settled(pilot, screen)
        await until(pilot, lambda: not screen.preview.problems, "looked again")
        assert launched == []
        await pilot.press("ctrl+r")
        await until(pilot, lambda: bool(launched), "launched")

    on_screen(steps)


def test_the_command_is_copied() -> None:
    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        await pilot.press("y", "y")
        await until(pilot, lambda: pilot.app.clipboard == "distrain run ddp", "copied")

    on_screen(steps)


def test_changes_to_a_preset_are_remembered() -> None:
    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        await pilot.press(*LR, *"0.05", "enter", "escape", "down")
        await settled(pilot, screen)
        assert screen.drafts.current
        assert screen.drafts.current.changes == []
        await pilot.press("up", "escape")
        assert pilot.app.screen is not screen

    async def next_time(pilot: Pilot[None], screen: LaunchScreen) -> None:
        assert screen.drafts.current
        assert screen.drafts.current.get("train.lr") == 0.05
        await pilot.press("ctrl+z")
        assert isinstance(pilot.app.screen, ChoiceDialog)
        await pilot.press("right", "enter")
        await settled(pilot, screen)
        assert screen.drafts.current.changes == []
        assert draft_store.load_changes() == ({}, "")

    on_screen(steps)
    on_screen(next_time)


def test_two_apps_keep_each_others_changes_to_one_preset() -> None:
    """The second one is open since before the first one made its changes."""
    first, second = PresetDrafts("ddp"), PresetDrafts("ddp")
    for drafts in (first, second):
        drafts.update(presets.listing())

    def change(drafts: PresetDrafts, key: str, value: object) -> None:
        assert drafts.current
        drafts.keep(drafts.current.with_value(key, value))

    change(first, "train.lr", 0.05)
    change(first, "train.seed", 7)
    change(second, "train.epochs", 3)
    change(first, "train.seed", 0)  # as in the preset
    stored = draft_store.load_changes()[0]
    assert sorted(stored["ddp"]) == ["train.epochs=3", "train.lr=0.05"]
    draft_store.path().unlink()
    change(first, "train.lr", 0.02)
    change(first, "train.seed", 8)
    assert sorted(draft_store.load_changes()[0]["ddp"]) == ["train.lr=0.02", "train.seed=8"]


def test_remembered_changes_apply_to_an_edited_preset_file() -> None:
    user_folder().mkdir(parents=True)
    settings.save(settings.Settings(preset="mine"))
    draft_store.save_changes("mine", ["train.lr=x", "train.epochs=3"])
    draft_store.save_changes("gone", ["a=1"])
    (user_folder() / "mine.toml").write_text('strategy = "dp"\n')

    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        assert screen.drafts.current_name == "mine"
        assert screen.drafts.current
        assert [field.key for field in screen.drafts.current.changes] == ["train.epochs"]

    on_screen(steps)


def test_a_preset_that_is_deleted_meanwhile_is_not_replaced_without_a_word() -> None:
    user_folder().mkdir(parents=True)
    settings.save(settings.Settings(preset="mine"))
    file = user_folder() / "mine.toml"
    file.write_text('strategy = "single"\n')

    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        await pilot.press("right", "enter")
        assert isinstance(pilot.app.screen, PickOneDialog)
        file.unlink()
        await pilot.press("down", "enter")
        said = "mine no longer exists: ddp is shown instead"
        await until(pilot, lambda: said in messages(pilot.app), "said")
        assert screen.drafts.current_name == "ddp"
        assert screen.drafts.changed_names == []

    on_screen(steps)


def test_a_preset_that_is_edited_meanwhile_is_launched_only_as_it_is_shown(
    launched: list[dict[str, Any]],
) -> None:
    user_folder().mkdir(parents=True)
    settings.save(settings.Settings(preset="mine"))
    file = user_folder() / "mine.toml"
    args = 'data = {name = "synthetic", args = {noise = nan}}'  # nan is not equal to nan
    file.write_text(f"train.epochs = 3\n{args}\n")

    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        await pilot.press(*LR, *"0.05", "enter")
        file.write_text(f"train.epochs = 4\n{args}\n")
        await pilot.press("ctrl+r")
        said = "mine has changed on disk; check it, then press the key again"
        await until(pilot, lambda: said in messages(pilot.app), "said")
        await until(pilot, lambda: screen.preview.is_current, "previewed")
        assert launched == []
        assert screen.drafts.current
        assert screen.drafts.current.config.train.epochs == 4
        await pilot.press("ctrl+r")
        await until(pilot, lambda: bool(launched), "launched")

    on_screen(steps)
    train = launched[0]["config"].train
    assert (train.epochs, train.lr) == (4, 0.05)


def test_damaged_changes_and_scripts_are_kept_and_said_once() -> None:
    draft_store.path().parent.mkdir(parents=True)
    for path in (draft_store.path(), recent_scripts.path()):
        path.write_text('ddp = ["train.lr=0.05"')

    async def first(pilot: Pilot[None], screen: LaunchScreen) -> None:
        def are_said() -> bool:
            said = " ".join(messages(pilot.app))
            return all(f"{name}.toml.damaged-1" in said for name in ("drafts", "scripts"))

        await until(pilot, are_said, "said")
        await pilot.press(*LR, *"0.05", "enter")
        await until(
            pilot, lambda: draft_store.load_changes()[0] == {"ddp": ["train.lr=0.05"]}, "saved"
        )

    async def second(pilot: Pilot[None], screen: LaunchScreen) -> None:
        assert "damaged" not in " ".join(messages(pilot.app))

    on_screen(first)
    on_screen(second)
    for path in (draft_store.path(), recent_scripts.path()):
        assert path.with_name(f"{path.name}.damaged-1").read_text() == 'ddp = ["train.lr=0.05"'


def test_the_maximized_form_includes_its_input_line() -> None:
    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        await pilot.press(*LR)
        pilot.app.action_full()  # its key would be typed into the field
        await pilot.press("7")
        assert screen.query_one(FormPane).size.width > 100
        assert screen.query_one("#editor").region.width > 0

    on_screen(steps)


# --- scripts --------------------------------------------------------------------------------------


def test_a_script_is_typed_completed_launched_and_remembered(
    home: Path, monkeypatch: pytest.MonkeyPatch, launched: list[dict[str, Any]]
) -> None:
    monkeypatch.chdir(home)
    (home / "train.py").write_text("print()")
    (home / "training.txt").write_text("")

    async def add(pilot: Pilot[None], screen: LaunchScreen) -> None:
        await pilot.press("s")
        dialog = pilot.app.screen
        await pilot.press(*"--devices cpu:2 tr")
        await until(pilot, lambda: "name a script" in labels_of(dialog), "refused")
        await pilot.press("right")
        await pilot.press(*" --lr 1")
        await until(pilot, lambda: "name a script" not in labels_of(dialog), "accepted")
        await pilot.press("enter")
        await until(pilot, lambda: screen.drafts.current_name == "train.py --lr 1", "chosen")
        await until(pilot, lambda: screen.preview.is_current, "previewed")
        assert screen.command == "distrain run --devices cpu:2 train.py --lr 1"
        await pilot.press("f5")
        await until(pilot, lambda: bool(launched), "launched")

    on_screen(add)
    assert launched[0]["name"] == "train"
    assert launched[0]["config"].script.args == ["--lr", "1"]

    async def again(pilot: Pilot[None], screen: LaunchScreen) -> None:
        assert screen.query_one(PresetList).name_now == "train.py --lr 1"
        assert screen.drafts.current is not None
        assert screen.drafts.current.config == launched[0]["config"]

    on_screen(again)


def test_no_key_of_a_rapid_burst_is_lost(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    typed = "--devices cpu:2 train.py --lr 0.1"
    is_checked, may_check = threading.Event(), threading.Event()

    def check_slowly(text: str) -> tuple[None, str]:
        is_checked.set()
        may_check.wait(60)
        return None, f"{text}: checked"

    monkeypatch.setattr(add_entry, "read_entry", check_slowly)

    async def steps(pilot: Pilot[None], screen: LaunchScreen) -> None:
        fields = screen.query_one("#filter", Input)
        for key in ("slash", *"scale"):  # letters that are actions in the list
            pilot.app.post_message(events.Key(key, key))
        await until(pilot, lambda: fields.value == "scale", "filtered")
        await pilot.press("escape", "left")
        for key in f"s{typed}":  # as a terminal sends them, without a pause
            pilot.app.post_message(events.Key(key, key))
        await until(
            pilot,
            lambda: [line.value for line in pilot.app.screen.query(Input)] == [typed],
            "typed",
        )
        await until(pilot, is_checked.is_set, "checked")
        await pilot.press("!")  # the check does not delay the next key
        assert pilot.app.screen.query_one(Input).value == f"{typed}!"
        may_check.set()
        dialog = pilot.app.screen
        await until(pilot, lambda: f"{typed}!: checked" in labels_of(dialog), "checked again")

    on_screen(steps)


def labels_of(screen: Screen[Any]) -> str:
    return " ".join(str(label.render()) for label in screen.query(Label))


def test_a_preset_file_from_anywhere_is_added_changed_launched_and_remembered(
    home: Path, monkeypatch: pytest.MonkeyPatch, launched: list[dict[str, Any]]
) -> None:
    monkeypatch.chdir(home)
    (home / "far").mkdir()
    file = home / "far" / "mine.toml"
    file.write_text("train.epochs = 3\n")

    async def add(pilot: Pilot[None], screen: LaunchScreen) -> None:
        await pilot.press("s", *"far/mine.toml", "enter")
        await until(pilot, lambda: screen.drafts.current_name == str(file), "chosen")
        await until(pilot, lambda: screen.preview.is_current, "previewed")
        assert "mine.toml ◆ file" in str(screen.query_one(PresetList).get_option_at_index(0).prompt)
        await pilot.press("right", "/", *"epochs", "enter", "enter", "backspace", "4", "enter")
        await until(pilot, lambda: screen.preview.is_current, "previewed")
        assert screen.command == f"distrain run {file} --set train.epochs=4"
        await pilot.press("f5")
        await until(pilot, lambda: bool(launched), "launched")

    on_screen(add)
    assert launched[0]["name"] == "mine"
    assert launched[0]["config"].train.epochs == 4
    assert launched[0]["config"].code_dir == str(file.parent)

    async def again(pilot: Pilot[None], screen: LaunchScreen) -> None:
        assert screen.query_one(PresetList).name_now == str(file)

    on_screen(again)
    file.unlink()

    async def gone(pilot: Pilot[None], screen: LaunchScreen) -> None:
        assert str(file) not in screen.drafts.presets

    on_screen(gone)
    assert recent_scripts.remember_preset(f"/{'x' * 300}.toml") == ""  # such as one of another user
    assert recent_scripts.load() == ([], "")


def test_what_is_no_entry_of_the_list_says_why(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    os.mkfifo(home / "pipe.toml")
    for typed, problem in (
        ("--devices cpu:2 mine.toml", "mine.toml is a preset: type its path alone, and change it"),
        ("mine.toml", f"there is no preset file {home / 'mine.toml'}"),
        ("pipe.toml", f"{home / 'pipe.toml'} cannot be read"),
        ("~nobody-of-this-name/mine.toml", "there is no preset file"),
        ("--lr 1", "--lr"),
    ):
        entry, found = add_entry.read_entry(typed)
        assert entry is None
        assert problem in found
