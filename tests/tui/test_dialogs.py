"""All dialogs: where the focus starts, what Escape asks, and letters that are typed as text."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Button, Input, OptionList, Select, TextArea

from distrain.runners import bench
from distrain.runners.config.presets import load_preset
from distrain.runners.runs import Run
from distrain.runners.supervision import device_queue
from distrain.tui import keymap
from distrain.tui.app import DistrainApp
from distrain.tui.dialogs import busy_devices
from distrain.tui.dialogs.add_entry import AddEntryDialog
from distrain.tui.dialogs.bench_rules import BenchRulesDialog
from distrain.tui.dialogs.busy_devices import BusyDevicesDialog
from distrain.tui.dialogs.dialog import Answer, ChoiceDialog, Dialog
from distrain.tui.dialogs.edit import EditDialog
from distrain.tui.dialogs.palette import PaletteDialog
from distrain.tui.dialogs.pick_one import PickOneDialog
from distrain.tui.dialogs.prompt import PromptDialog
from distrain.tui.screens.launch_screen import LaunchScreen
from distrain.tui.screens.run_screen import RunScreen
from distrain.tui.widgets.form_table import FormTable
from tests.support.records import RunBuilder

from .app_driver import messages, screen_lines, until

Make = Callable[..., RunBuilder]
FOLDER = Path(__file__).parents[2] / "tui" / "dialogs"
FIELDS = (Input, Select, TextArea)
LETTERS = sorted(
    {
        binding.key
        for key in keymap.KEYMAP
        for binding in keymap.parse_keys(key.id, {})
        if len(binding.key) == 1
    }
)


class WatchedApp(DistrainApp):
    """Remembers the actions of keys that were executed."""

    CSS_PATH = FOLDER.parent / "app.tcss"

    def __init__(self, runs_dir: Path) -> None:
        super().__init__(runs_dir)
        self.executed: list[object] = []

    async def run_action(self, action: Any, *rest: Any, **options: Any) -> bool:
        self.executed.append(action)
        return await super().run_action(action, *rest, **options)


def play(runs_dir: Path, scenario: Callable[[Pilot[None], WatchedApp], Awaitable[None]]) -> None:
    async def played() -> None:
        app = WatchedApp(runs_dir)
        async with app.run_test(size=(120, 36)) as pilot:
            await scenario(pilot, app)
            assert app.internal_errors == []

    asyncio.run(played())


def dialogs(runs_dir: Path) -> Iterator[Dialog[Any]]:
    """Yield one of each dialog that asks, or takes text."""
    configs = {name: load_preset(name) for name in ("single", "ddp")}
    definition = bench.make(configs, {"unequal": True})
    plans = bench.plans(definition)
    yield ChoiceDialog("Delete it?", "It is lost.", [Answer("yes", "Delete", "error")])
    yield BusyDevicesDialog("rerun it", list(plans.values()), runs_dir, ["cpu:0: first"])
    yield BenchRulesDialog(definition, plans)
    yield EditDialog("Edit", {"name": "", "notes": ""}, lambda fields: "")
    yield PromptDialog("Save", "It is saved here.", "mine")
    yield AddEntryDialog()
    yield PickOneDialog("Pick", [(f"{number}", f"name {number}") for number in range(40)])


def test_enter_changes_nothing_in_a_dialog_that_was_just_opened(runs_dir: Path) -> None:
    async def scenario(pilot: Pilot[None], app: WatchedApp) -> None:
        for dialog in dialogs(runs_dir):
            await app.push_screen(dialog)
            await pilot.pause()
            cancel = [*dialog.query("#cancel").results(Button)]
            typed = isinstance(app.focused, (Input, OptionList))
            assert typed or cancel == [app.focused], dialog
            if not typed:
                await pilot.press("enter")
                assert app.screen is not dialog, "Cancel closes it"
            else:
                dialog.dismiss(None)
            await pilot.pause()

    play(runs_dir, scenario)


def test_a_dialog_that_is_closed_before_it_is_mounted_is_no_error(runs_dir: Path) -> None:
    """As by keys that arrive together over a slow connection."""

    async def scenario(pilot: Pilot[None], app: WatchedApp) -> None:
        for dialog in [*dialogs(runs_dir), PaletteDialog([])]:
            app.push_screen(dialog)
            dialog.action_dismiss_without()
            await pilot.pause()
            assert dialog not in app.screen_stack

    play(runs_dir, scenario)


def test_every_dialog_with_answers_has_the_base_that_carries_the_rule() -> None:
    modules = [import_module(f"distrain.tui.dialogs.{file.stem}") for file in FOLDER.glob("*.py")]
    classes = {
        found
        for module in modules
        for _, found in inspect.getmembers(module, inspect.isclass)
        if issubclass(found, Screen) and found.__module__ == module.__name__
    }
    assert classes
    assert [found for found in classes if not issubclass(found, Dialog)] == []


def test_escape_asks_before_it_discards_a_long_text(runs_dir: Path) -> None:
    async def scenario(pilot: Pilot[None], app: WatchedApp) -> None:
        dialog = AddEntryDialog()
        await app.push_screen(dialog)
        await pilot.press(*"train.py --lr 0.1 --epochs 3", "escape")
        assert isinstance(app.screen, ChoiceDialog)
        await pilot.press("enter")
        assert app.screen is dialog
        assert dialog.query_one(Input).value == "train.py --lr 0.1 --epochs 3"
        await pilot.press("escape", "right")
        await until(pilot, lambda: "enter: Discard" in "\n".join(screen_lines(app)), "focus shown")
        await pilot.press("escape", "escape")
        assert "Keep editing (esc)" in "\n".join(screen_lines(app))
        assert "enter: Keep editing" in "\n".join(screen_lines(app))
        await pilot.press("d")
        await until(pilot, lambda: not isinstance(app.screen, Dialog), "discarded")
        short = PromptDialog("Save", "It is saved here.", "mine")
        await app.push_screen(short)
        await pilot.press("x", "escape")
        assert app.screen is not short

    play(runs_dir, scenario)


def test_ctrl_q_quits_from_a_dialog_and_asks_before_it_discards_a_long_text(
    runs_dir: Path,
) -> None:
    async def scenario(pilot: Pilot[None], app: WatchedApp) -> None:
        await app.push_screen(AddEntryDialog())
        await pilot.press(*"train.py --lr 0.1 --epochs 3", "ctrl+q")
        assert isinstance(app.screen, ChoiceDialog)
        assert not app._exit
        await pilot.press("d")
        await until(pilot, lambda: app._exit, "quit")

    async def without_text(pilot: Pilot[None], app: WatchedApp) -> None:
        await app.push_screen(ChoiceDialog("Delete it?", "", [Answer("yes", "Delete", "error")]))
        await pilot.press("ctrl+q")
        await until(pilot, lambda: app._exit, "quit")

    play(runs_dir, scenario)
    play(runs_dir, without_text)


def test_letters_are_typed_and_do_nothing_else_in_a_field(make: Make, runs_dir: Path) -> None:
    run = make("mine").steps(3)
    (run.dir / "logs" / "rank-0.log").write_text("one line\n")

    async def check(pilot: Pilot[None], app: WatchedApp, *fields: Any) -> None:
        screen = app.screen
        for field in fields or [field for kind in FIELDS for field in screen.query(kind)]:
            if not field.focusable:
                continue
            field.focus()
            await pilot.pause()
            app.executed.clear()
            for letter in LETTERS:
                await pilot.press(letter)
            assert app.executed == [], (screen, field)
            assert app.screen is screen

    async def scenario(pilot: Pilot[None], app: WatchedApp) -> None:
        await pilot.press("slash")
        await check(pilot, app)
        await pilot.press("escape")
        runs = app.screen
        for dialog in dialogs(runs_dir):
            await app.push_screen(dialog)
            await pilot.pause()
            await check(pilot, app)
            dialog.dismiss(None)
            await until(pilot, lambda: app.screen is runs, "closed")
        await pilot.press("n")
        await until(pilot, lambda: isinstance(app.screen, LaunchScreen), "opened")
        await until(pilot, lambda: app.screen.query_one(FormTable).field, "read")
        await check(pilot, app, app.screen.query_one(FormTable))
        await pilot.press("escape", "right", "enter")  # much was typed into the field
        await until(pilot, lambda: isinstance(app.screen, LaunchScreen), "discarded")
        app.screen.query_one(FormTable).focus()
        await pilot.press("slash")
        await check(pilot, app)
        await pilot.press("escape", "escape", "escape")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "opened")
        await pilot.press("l", "slash")
        await check(pilot, app)

    play(runs_dir, scenario)


@pytest.mark.parametrize(("key", "answer"), [("ctrl+e", "queue"), ("enter", None)])
def test_busy_devices_are_not_used_by_accident_and_one_key_queues(
    runs_dir: Path, key: str, answer: str | None
) -> None:
    answers: list[str | None] = []

    async def scenario(pilot: Pilot[None], app: WatchedApp) -> None:
        [dialog] = [each for each in dialogs(runs_dir) if isinstance(each, BusyDevicesDialog)]
        await app.push_screen(dialog, answers.append)
        await pilot.press(key)
        await until(pilot, lambda: answers, "answered")

    play(runs_dir, scenario)
    assert answers == [answer]


def test_a_driver_that_does_not_answer_keeps_one_thread_of_the_question_about_devices(
    runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    ticks: list[int] = []
    answer = threading.Event()

    def find_obstacles(*_: object) -> list[str]:
        looks.append(1)
        answer.wait(60)
        return []

    monkeypatch.setattr(device_queue, "find_obstacles_of_any", find_obstacles)
    monkeypatch.setattr(busy_devices, "POLL_S", 0.01)

    async def scenario(pilot: Pilot[None], app: WatchedApp) -> None:
        [dialog] = [each for each in dialogs(runs_dir) if isinstance(each, BusyDevicesDialog)]
        await app.push_screen(dialog)
        await until(pilot, lambda: looks, "asked")
        dialog.set_interval(0.01, lambda: ticks.append(1))
        await until(pilot, lambda: len(ticks) > 5, "time has passed")
        assert len(looks) == 1
        answer.set()
        await until(pilot, lambda: len(looks) > 1, "asked again")
        dialog.dismiss(None)

    play(runs_dir, scenario)


def test_a_paste_is_one_line_of_text_or_is_refused(runs_dir: Path) -> None:
    async def scenario(pilot: Pilot[None], app: WatchedApp) -> None:
        await pilot.press("slash")
        field = app.focused
        assert isinstance(field, Input)
        app.post_message(events.Paste("lr>0.1\r\nשלום\t漢字 \x07👩\u200d👧\n"))
        await until(pilot, lambda: field.value, "pasted")
        assert field.value == "lr>0.1 שלום 漢字  👩\u200d👧"
        app.post_message(events.Paste("x " * 500_000))
        await until(pilot, lambda: messages(app), "refused")
        assert messages(app) == [
            "the pasted text has 1,000,000 characters; at most 20,000 can be pasted"
        ]
        assert len(field.value) < 40

    RunBuilder(runs_dir, "first").steps(3).end()
    play(runs_dir, scenario)


def test_a_message_that_two_threads_send_at_once_is_shown_once(runs_dir: Path) -> None:
    async def scenario(pilot: Pilot[None], app: WatchedApp) -> None:
        app.notify("it is gone")
        app.notify("it is gone")
        await until(pilot, lambda: messages(app), "shown")
        await pilot.pause()
        assert messages(app) == ["it is gone"]

    RunBuilder(runs_dir, "first").steps(3).end()
    play(runs_dir, scenario)


def test_keys_work_while_a_supervisor_does_not_answer_a_stop(
    make: Make, runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(make("mine").steps(3).record)
    has_gone_on = threading.Event()
    waits = []

    def stop(_: Run, now: bool = False) -> None:
        waits.append(has_gone_on.wait(5))

    monkeypatch.setattr(Run, "stop", stop)

    async def scenario(pilot: Pilot[None], app: WatchedApp) -> None:
        app.sessions.stop(run)
        await until(pilot, lambda: isinstance(app.screen, ChoiceDialog), "asked")
        await pilot.press("c", "slash")
        has_gone_on.set()
        await until(pilot, lambda: "stopping mine" in messages(app), "stopped")
        assert waits == [True]

    play(runs_dir, scenario)
