"""The line after `:`, with completion, actions and commands of the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, Label

from distrain.tui import keymap
from distrain.tui.app import DistrainApp
from distrain.tui.data import command_history, command_words
from distrain.tui.data.command_words import Completion, complete
from distrain.tui.dialogs.command import CommandDialog
from distrain.tui.dialogs.dialog import ChoiceDialog
from distrain.tui.dialogs.output import OutputDialog
from distrain.tui.screens.compare_screen import CompareScreen
from distrain.tui.screens.run_screen import RunScreen
from distrain.tui.screens.runs_screen import RunsScreen
from tests.support.records import RunBuilder

from .app_driver import messages, screen_lines, until
from .test_palette import play

Make = Callable[..., RunBuilder]
LETTERS = {" ": "space", ":": "colon", ".": "full_stop", "-": "minus", "_": "underscore"}


async def typed(pilot: Pilot[None], text: str, *then: str) -> None:
    """Open the line for commands, type a text and press keys."""
    await pilot.press("colon")
    await until(pilot, lambda: isinstance(pilot.app.screen, CommandDialog), "opened")
    await pilot.press(*(LETTERS.get(letter, letter) for letter in text), *then)


def shown(app: DistrainApp) -> str:
    return "\n".join(screen_lines(app))


def test_a_name_is_an_action_of_the_screen_and_a_text_is_typed_into_its_line(
    ended: Make, runs_dir: Path
) -> None:
    ended("apple")
    ended("pear")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await typed(pilot, "filter pear", "enter")
        await until(pilot, lambda: "apple" not in shown(app), "filtered")
        await typed(pilot, "runs.mark", "enter")
        await until(pilot, lambda: "1 marked" in shown(app), "marked")
        await typed(pilot, "mark x", "enter")
        await until(pilot, lambda: messages(app) == ["mark takes no text"], "refused")
        await pilot.pause()
        assert "1 marked" in shown(app)
        assert keymap.BY_ID.keys() >= keymap.TAKE_TEXT
        await typed(pilot, "markk", "enter")
        await until(pilot, lambda: len(messages(app)) == 2, "refused")
        assert messages(app)[-1].startswith("there is no command 'markk' here; did you mean mark")
        await typed(pilot, "theme dracula", "enter")
        await until(pilot, lambda: app.theme == "dracula", "changed")
        await typed(pilot, "open apple", "enter")
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "opened")

    play(scenario, runs_dir)


def test_a_command_imports_nothing_from_the_current_folder(
    ended: Make, runs_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended("mine")
    (tmp_path / "msgspec.py").write_text("raise SystemExit('a file of the current folder')")
    monkeypatch.chdir(tmp_path)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await typed(pilot, "show mine", "enter")
        await until(pilot, lambda: isinstance(app.screen, OutputDialog), "opened")
        state = app.screen.query_one("#output-state", Label)
        await until(pilot, lambda: "running" not in str(state.content), "ended")
        assert "done" in str(state.content), shown(app)

    play(scenario, runs_dir)


def test_a_command_runs_as_a_process_and_shows_its_output(ended: Make, runs_dir: Path) -> None:
    ended("mine")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await typed(pilot, "show mine", "enter")
        await until(pilot, lambda: isinstance(app.screen, OutputDialog), "opened")
        state = app.screen.query_one("#output-state", Label)
        await until(pilot, lambda: "done" in str(state.content), "done")
        assert "$ distrain show mine" in shown(app)
        await pilot.press("y")
        await until(pilot, lambda: "completed" in app.clipboard, "copied")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, RunsScreen), "closed")
        await typed(pilot, "show nobody", "enter")
        await until(pilot, lambda: isinstance(app.screen, OutputDialog), "opened")
        await until(pilot, lambda: "exit code 2" in shown(app), "failed")
        assert "nobody" in shown(app)

    play(scenario, runs_dir)


def test_a_command_that_only_tells_what_it_would_start_shows_its_output(runs_dir: Path) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await typed(pilot, "run ddp --dry-run", "enter")
        await until(pilot, lambda: "done" in shown(app) or messages(app), "ended")
        assert "distrain.runners.training.worker" in shown(app)
        assert messages(app) == []

    play(scenario, runs_dir)


def test_an_output_without_an_id_stays(runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of that of --json, and of a run in another runs folder."""
    monkeypatch.setattr("distrain.tui.dialogs.output.bind", lambda _: {"args": ["echo", "}"]})

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await typed(pilot, "run ddp --json", "enter")
        await until(pilot, lambda: "done" in shown(app) or messages(app), "ended")
        assert messages(app) == []

    play(scenario, runs_dir)


def test_an_output_that_comes_in_parts_has_all_characters(
    make: Make, runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make("mine").steps(3).note(notes="größer ≥ 3").end()
    monkeypatch.setattr("distrain.tui.dialogs.output.CHUNK", 2)
    monkeypatch.setattr("distrain.tui.dialogs.output.PAUSE_S", 0)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await typed(pilot, "show mine", "enter")
        await until(pilot, lambda: "done" in shown(app), "done")
        await pilot.press("y")
        await until(pilot, lambda: "größer ≥ 3" in app.clipboard, "copied")
        assert "\ufffd" not in app.clipboard

    play(scenario, runs_dir)


@pytest.mark.parametrize(("limit", "most"), [("MOST_CHARACTERS", 200), ("MOST_LINES", 4)])
def test_of_a_long_output_the_end_is_kept(
    limit: str, most: int, ended: Make, runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log of megabytes without line breaks would stop the app, and fill the memory."""
    run = ended("mine")
    (run.dir / "logs" / "rank-0.log").write_text("first" + " x" * 500 + "\n" * 5 + "last")
    monkeypatch.setattr(f"distrain.tui.dialogs.output.{limit}", most)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await typed(pilot, "logs mine", "enter")
        await until(pilot, lambda: "y copies the end of the output" in shown(app), "done")
        await pilot.press("y")
        await until(pilot, lambda: "last" in app.clipboard, "copied")
        assert "first" not in app.clipboard

    play(scenario, runs_dir)


def test_a_command_that_goes_on_is_ended_by_escape(make: Make, runs_dir: Path) -> None:
    run = make("mine").steps(3)
    (run.dir / "logs" / "rank-0.log").write_text("one line\n")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await typed(pilot, "logs mine -f", "enter")
        await until(pilot, lambda: "one line" in shown(app), "followed")
        dialog = app.screen
        assert isinstance(dialog, OutputDialog)
        process = dialog.process
        await pilot.press("escape")
        await until(pilot, lambda: process and process.returncode is not None, "ended")

    play(scenario, runs_dir)


def test_a_read_only_app_refuses_commands_that_change_something(
    ended: Make, runs_dir: Path
) -> None:
    ended("mine")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await typed(pilot, "rm mine", "enter")
        await until(pilot, lambda: messages(app), "refused")
        assert messages(app)[0].startswith("read-only")
        assert isinstance(app.screen, RunsScreen)

    play(scenario, runs_dir, readonly=True)


def test_with_arguments_it_is_the_command_and_without_the_action(
    make: Make, runs_dir: Path
) -> None:
    make("mine").steps(3)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await typed(pilot, "stop", "enter")
        await until(pilot, lambda: isinstance(app.screen, ChoiceDialog), "asked")
        await pilot.press("escape")
        await typed(pilot, "compare mine mine", "enter")
        await until(pilot, lambda: isinstance(app.screen, OutputDialog), "opened")
        assert not any(isinstance(screen, CompareScreen) for screen in app.screen_stack)
        state = app.screen.query_one("#output-state", Label)
        await until(pilot, lambda: "esc closes" in str(state.content), "ended")

    play(scenario, runs_dir)


def test_tab_completes_and_up_brings_back_earlier_lines(ended: Make, runs_dir: Path) -> None:
    ended("apple")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await typed(pilot, "open app")
        line = app.screen.query_one(Input)
        await until(pilot, lambda: "completed" in shown(app), "runs were read")
        await pilot.press("tab")
        assert line.value == "open apple "
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "opened")
        await typed(pilot, "", "up")
        assert app.screen.query_one(Input).value == "open apple"

    play(scenario, runs_dir)
    assert command_history.load() == ["open apple"]


def test_the_name_of_a_run_is_completed_as_one_word_and_never_as_an_option(
    ended: Make, runs_dir: Path
) -> None:
    ended("net --trust")
    dashed = ended("--trust")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await typed(pilot, "show net")
        dialog = app.screen
        assert isinstance(dialog, CommandDialog)
        line = dialog.query_one(Input)
        await until(pilot, lambda: "net --trust" in shown(app), "read")
        await pilot.press("tab")
        assert line.value == "show 'net --trust' "
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, OutputDialog), "opened")
        await until(pilot, lambda: "done" in shown(app), "done")
        assert "net --trust" in shown(app)
        await pilot.press("escape")
        await typed(pilot, "show ")
        line = app.screen.query_one(Input)
        await until(pilot, lambda: "net --trust" in shown(app), "read")
        found = set()
        for _ in range(3):
            await pilot.press("tab")
            found.add(line.value)
        assert found == {"show latest", "show 'net --trust'", f"show {dashed.dir.name}"}
        await pilot.press("escape")
        await typed(pilot, "open net", "tab", "enter")
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "opened")

    play(scenario, runs_dir)


ARGUMENTS = {
    "RUN": [Completion("first"), Completion("second")],
    "PRESET": [Completion("ddp"), Completion("single")],
    "KEY": [Completion("train.lr="), Completion("train.epochs=")],
    "theme": [Completion("nord")],
}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("st", ["stop", "rest"]),
        ("stop ", ["first", "second"]),
        ("compare first se", ["second"]),
        ("run d", ["ddp"]),
        ("run ddp --set train.l", ["train.lr="]),
        ("run ddp --det", ["--detach"]),
        ("theme n", ["nord"]),
        ("export first --to t", ["tensorboard"]),
        ("nonsense x", []),
    ],
)
def test_words_are_completed_by_what_a_command_takes(text: str, words: list[str]) -> None:
    first = [Completion("rest"), Completion("stop")]
    assert [each.word for each in complete(text, first, ARGUMENTS)] == words


def test_runs_are_started_detached_and_wait_for_busy_devices() -> None:
    line = ["run", "ddp", "--set", "train.lr=0.1"]
    assert command_words.for_app(line) == ["run", "--detach", "--queue", *line[1:]]
    assert command_words.for_app(["show", "mine"]) == ["show", "mine"]


@pytest.mark.parametrize(
    ("line", "is_reading"),
    [
        ("show mine", True),
        ("export mine --to csv", True),
        ("export mine --to csv --out=x.csv", False),
        ("doctor --fix horovod", False),
        ("stop mine", False),
        ("queue", True),
        ("queue move mine up", False),
        ("presets save mine", False),
        ("watch mine", False),
    ],
)
def test_which_commands_a_read_only_app_executes(line: str, is_reading: bool) -> None:
    assert command_words.is_reading(line.split()) == is_reading
