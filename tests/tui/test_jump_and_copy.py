"""Jump mode, copying of any value, and the shell in a run's folder."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import OptionList

from distrain.tui.actions.jump import find_targets
from distrain.tui.app import DistrainApp
from distrain.tui.data.copying import CopyValue, flat_values
from distrain.tui.data.jump import make_labels
from distrain.tui.dialogs.copy import CopyDialog
from distrain.tui.dialogs.help import HelpDialog
from distrain.tui.dialogs.jump import JumpDialog
from distrain.tui.screens.launch_screen import LaunchScreen
from distrain.tui.screens.run_screen import RunScreen
from distrain.tui.screens.shell_screen import ShellScreen, find_problem, run_shell
from distrain.tui.widgets.form_table import FormTable
from distrain.tui.widgets.preset_list import PresetList
from distrain.tui.widgets.rank_table import RankTable
from tests.support.records import RunBuilder

from .app_driver import messages, until
from .test_palette import play

Make = Callable[..., RunBuilder]


async def jump(pilot: Pilot[None], to: Callable[[Any], bool]) -> None:
    """Start jump mode and type the label of the target that fits, which may move meanwhile."""
    screen = pilot.app.screen
    for _ in range(5):
        await until(pilot, lambda: any(map(to, find_targets(screen))), "laid out")
        await pilot.press("ctrl+o")
        await until(pilot, lambda: isinstance(pilot.app.screen, JumpDialog), "labelled")
        assert isinstance(pilot.app.screen, JumpDialog)
        labels = [label for label, target in pilot.app.screen.targets.items() if to(target)]
        await pilot.press(*(labels[0] if labels else ["escape"]))
        await until(pilot, lambda: not isinstance(pilot.app.screen, JumpDialog), "gone")
        if labels:
            return
    raise AssertionError("the target moved each time")


def test_a_letter_focuses_a_pane(ended: Make, runs_dir: Path) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        ranks = app.screen.query_one(RankTable)
        await jump(pilot, lambda target: target.y == ranks.region.y)
        assert ranks.has_focus

    play(scenario, runs_dir, ended("mine"))


def test_a_letter_shows_a_pane_that_a_small_screen_hides(ended: Make, runs_dir: Path) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.resize_terminal(80, 24)
        third = app.screen.query_one("#plot-2")
        await until(pilot, lambda: not third.region, "hidden")
        await jump(pilot, lambda target: target.name == third.border_title)
        await until(pilot, lambda: third.has_focus and third.region, "shown")

    play(scenario, runs_dir, ended("mine"))


def test_a_letter_goes_to_a_field_of_the_form_and_escape_stays(ended: Make, runs_dir: Path) -> None:
    ended("mine")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("n")
        screen = app.screen
        assert isinstance(screen, LaunchScreen)
        table = screen.query_one(FormTable)
        await until(pilot, lambda: table.field and table.region, "filled")
        await pilot.press("ctrl+o", "escape")
        assert screen.query_one(PresetList).has_focus
        fields = table.jump_targets()
        await jump(pilot, lambda target: (target.x, target.y) == fields[3][:2])
        assert table.has_focus
        before = table.field
        await jump(pilot, lambda target: (target.x, target.y) == fields[0][:2])
        assert table.field != before

    play(scenario, runs_dir)


@pytest.mark.parametrize("count", [0, 1, 26, 27, 300])
def test_no_label_begins_with_another(count: int) -> None:
    labels = make_labels(count)
    assert len(set(labels)) == count
    assert len({len(label) for label in labels}) <= 1


def test_any_value_of_a_run_is_copied(ended: Make, runs_dir: Path) -> None:
    run = ended("mine")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("y")
        await until(pilot, lambda: isinstance(app.screen, CopyDialog), "offered")
        await pilot.press(*"train.lr", "enter")
        await until(pilot, lambda: app.clipboard == "train.lr=0.1", "copied")
        await pilot.press("y")
        await until(pilot, lambda: isinstance(app.screen, CopyDialog), "offered")
        await pilot.press(*"eval.top1", "enter")
        await until(pilot, lambda: app.clipboard == "0.9", "copied")
        app.screen.query_one(RankTable).focus()
        await pilot.press("y")
        await until(pilot, lambda: isinstance(app.screen, CopyDialog), "offered")
        first = app.screen.query_one(OptionList).get_option_at_index(0)
        assert str(first.prompt).startswith("line")

    play(scenario, runs_dir, run)


def test_the_copy_key_twice_copies_the_usual_value(ended: Make, runs_dir: Path) -> None:
    run = ended("mine")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("y", "y")
        await until(pilot, lambda: app.clipboard == run.id, "copied")

    play(scenario, runs_dir)


def test_nested_values_have_dotted_keys() -> None:
    values = {"a": {"b": 1, "c": None}, "on": True, "many": [1], "empty": ""}
    assert list(flat_values(values)) == [CopyValue("a.b", "1"), CopyValue("on", "true")]


def test_a_shell_opens_in_the_folder_of_the_run(
    ended: Make, runs_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = ended("mine")
    shell = tmp_path / "shell"
    shell.write_text(f"#!/bin/sh\npwd > {tmp_path}/where\n")
    shell.chmod(0o755)
    monkeypatch.setenv("SHELL", str(shell))

    @contextmanager
    def suspend(app: DistrainApp):  # type: ignore[no-untyped-def]  # a test has no terminal
        yield

    monkeypatch.setattr(DistrainApp, "suspend", suspend)
    monkeypatch.setattr("distrain.tui.screens.shell_screen.lend_terminal", nullcontext)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        # A key that was typed before the shell opened covers what waits for its end.
        await pilot.press("exclamation_mark", "question_mark")
        await until(pilot, lambda: (tmp_path / "where").exists(), "opened")
        await until(pilot, lambda: isinstance(app.screen, HelpDialog), "returned")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "left")
        monkeypatch.setenv("SHELL", "/no/such/shell")
        await pilot.press("exclamation_mark")
        await until(pilot, lambda: messages(app), "refused")
        assert messages(app)[0].startswith("cannot start /no/such/shell")

    play(scenario, runs_dir, run)
    assert (tmp_path / "where").read_text().strip() == str(run.dir)


def test_the_line_above_a_shell_has_no_terminal_escapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run\x1b[2J"
    folder.mkdir()
    monkeypatch.setenv("SHELL", "true")
    assert run_shell(folder) == ""
    assert "\x1b" not in capsys.readouterr().out


def test_a_read_only_app_opens_no_shell(ended: Make, runs_dir: Path) -> None:
    ended("mine")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("exclamation_mark")
        await until(pilot, lambda: messages(app), "refused")
        assert not any(isinstance(screen, ShellScreen) for screen in app.screen_stack)

    play(scenario, runs_dir, readonly=True)


def test_no_shell_opens_in_a_folder_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_problem(tmp_path) == ""
    assert find_problem(tmp_path / "none").startswith("cannot open")
    monkeypatch.setattr("os.getuid", lambda: tmp_path.stat().st_uid + 1)
    assert find_problem(tmp_path) == f"{tmp_path} belongs to another user"
