"""Remapped keys on every screen."""

from __future__ import annotations

import asyncio
import os
import resource
import tomllib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from textual.drivers import linux_driver
from textual.events import Paste
from textual.pilot import Pilot
from textual.screen import Screen

from distrain.runners.records.reader import Record
from distrain.runners.records.state import RunError
from distrain.runners.runs import Run
from distrain.tui import keymap, settings
from distrain.tui.app import DistrainApp
from distrain.tui.command import main, read_terminal_safely
from distrain.tui.dialogs.dialog import ChoiceDialog
from distrain.tui.dialogs.help import HelpDialog
from distrain.tui.screens.compare_screen import CompareScreen
from distrain.tui.screens.config_screen import ConfigScreen
from distrain.tui.screens.launch_screen import LaunchScreen
from distrain.tui.screens.run_screen import RunScreen
from distrain.tui.screens.runs_screen import RunsScreen
from distrain.tui.widgets.failure_card import FailureCard
from distrain.tui.widgets.log_pane import LogPane
from tests.support.records import RunBuilder

from .app_driver import messages, screen_lines, until

Make = Callable[..., RunBuilder]
Scenario = Callable[[Pilot[None], DistrainApp], Awaitable[None]]


def play(scenario: Scenario, runs_dir: Path, keys: str, run: str | None = None) -> None:
    """Play a scenario in an app with these lines in `[keys]` of its settings."""

    async def played() -> None:
        app = DistrainApp(runs_dir, session=run and Run(Record(runs_dir / run)))
        async with app.run_test(size=(120, 60)) as pilot:
            await until(pilot, lambda: _ready(app.screen), "opened")
            await scenario(pilot, app)
            if app.internal_errors:
                raise app.internal_errors[0]

    settings.path().parent.mkdir(parents=True, exist_ok=True)
    settings.path().write_text(f"[keys]\n{keys}\n", encoding="utf-8")
    asyncio.run(played())


def _ready(screen: Screen[object]) -> bool:
    if isinstance(screen, RunScreen):
        return screen.frame is not None
    return isinstance(screen, RunsScreen) and screen.is_complete


async def pressed(pilot: Pilot[None], key: str, opens: type[Screen[object]]) -> None:
    await pilot.press(key)
    await until(pilot, lambda: isinstance(pilot.app.screen, opens), f"{key} opens {opens}")


def test_remapped_keys_work_on_every_screen(ended: Make, runs_dir: Path) -> None:
    ended("new", ago=10)
    ended("old", ago=9000)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("M", "M")
        await pressed(pilot, "K", CompareScreen)
        await pressed(pilot, "X", RunsScreen)
        await pilot.press("X")
        await pressed(pilot, "enter", RunScreen)
        await pressed(pilot, "I", ConfigScreen)
        await pressed(pilot, "I", RunScreen)
        await pressed(pilot, "X", RunsScreen)
        await pressed(pilot, "L", LaunchScreen)
        await pressed(pilot, "X", RunsScreen)

    keys = {
        "app.back": "X",
        "app.new": "L",
        "runs.mark": "M",
        "runs.compare": "K",
        "run.config": "I",
    }
    play(scenario, runs_dir, "\n".join(f'"{id}" = "{key}"' for id, key in keys.items()))


def test_texts_name_the_remapped_keys(make: Make, runs_dir: Path) -> None:
    run = make("mine").steps(20)
    (run.dir / "checkpoints" / "last.pt").write_bytes(b"weights")
    run.end("failed", error=RunError(rank=1, type="ValueError", message="a label", step=7))

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        card = app.screen.query_one(FailureCard)
        await until(pilot, lambda: card.has_class("-failed"), "failed")
        text = str(card.render())
        assert "in the log (l), fix the cause, then Z reruns" in text
        assert "F resumes" in text

    play(scenario, runs_dir, '"run.rerun" = "Z"\n"run.resume" = "F"', run.id)


def test_a_log_is_copied_with_a_remapped_key(ended: Make, runs_dir: Path) -> None:
    run = ended("mine")
    (run.dir / "logs" / "rank-0.log").write_text("one line\n")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("l")
        log = app.screen.query_one(LogPane)
        await until(pilot, lambda: log.page and log.page.total, "read")
        await pilot.press("y")
        assert not app.clipboard
        await pilot.press("Y")
        assert app.clipboard == "one line"

    play(scenario, runs_dir, '"app.copy" = "Y"', run.id)


def test_a_remapped_key_that_repeats_answers_no_question(make: Make, runs_dir: Path) -> None:
    run = make("mine").steps(20)

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pressed(pilot, "w", ChoiceDialog)
        assert "Stop now (w)" not in "\n".join(screen_lines(app))
        await pilot.press("w", "w")
        assert isinstance(app.screen, ChoiceDialog)
        assert not messages(app)

    play(scenario, runs_dir, '"run.stop" = "w"\n"plot.smooth" = "W"', run.id)


def test_an_invalid_settings_file_is_not_overwritten(ended: Make, runs_dir: Path) -> None:
    ended("mine")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        settings.path().write_text("[no such thing]", encoding="utf-8")
        app.remember(bell=True)
        assert app.settings.bell
        await until(pilot, lambda: "settings.toml.damaged-1" in " ".join(messages(app)), "kept")

    play(scenario, runs_dir, '"run.stop" = "k"')
    assert settings.path().with_name("settings.toml.damaged-1").read_text() == "[no such thing]"
    found = settings.load().settings
    assert (found.bell, found.keys) == (True, {"run.stop": "k"})


def test_settings_of_a_newer_version_are_reported_and_kept(runs_dir: Path) -> None:
    settings.path().parent.mkdir(parents=True)
    settings.path().write_text('them = "nord"\n[later]\nx = 1\n', encoding="utf-8")

    async def played() -> None:
        app = DistrainApp(runs_dir)
        async with app.run_test() as pilot:
            await until(pilot, lambda: len(messages(app)) == 2, "reported")
            assert "there is no setting 'them'; did you mean theme" in messages(app)[1]
            app.remember(bell=True)

    asyncio.run(played())
    table = tomllib.loads(settings.path().read_text())
    assert (table["them"], table["later"], table["bell"]) == ("nord", {"x": 1}, True)


def test_two_apps_keep_each_others_settings(runs_dir: Path) -> None:
    async def both() -> None:
        one, other = DistrainApp(runs_dir), DistrainApp(runs_dir)
        async with one.run_test(), other.run_test():
            one.remember(bell=True)
            other.remember(log_y=True)
            one.remember(filters={"a": "name:a", "b": "name:b"})
            other.remember(filters={"c": "name:c"})
            one.remember(filters={"b": "name:B"})

    asyncio.run(both())
    found = settings.load().settings
    assert (found.bell, found.log_y) == (True, True)
    assert found.filters == {"b": "name:B", "c": "name:c"}


def test_settings_that_cannot_be_written_leave_no_files() -> None:
    settings.path().mkdir(parents=True)
    with pytest.raises(OSError, match="not a regular file"):
        settings.save(settings.Settings(bell=True))
    assert [*settings.path().parent.iterdir()] == [settings.path()]


def test_an_unknown_axis_is_reported(runs_dir: Path) -> None:
    settings.path().parent.mkdir(parents=True)
    settings.path().write_text('axis = "epochs"\n', encoding="utf-8")
    found, complaint, _ = settings.load()
    assert found.axis == "step"
    assert "epochs" in complaint


def test_ctrl_c_names_the_key_that_quits(ended: Make, runs_dir: Path) -> None:
    ended("mine")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("ctrl+c")
        await until(pilot, lambda: messages(app), "shown")
        [message] = messages(app)
        assert message == "Z quits the app; runs continue"

    play(scenario, runs_dir, '"app.quit" = "Z"')


def test_help_uses_the_remapped_keys(ended: Make, runs_dir: Path) -> None:
    ended("mine")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pressed(pilot, "ctrl+k", HelpDialog)
        found = keymap.parse_keys("app.help", app.settings.keys)
        assert [binding.key for binding in found] == ["ctrl+k", "f1"]

    play(scenario, runs_dir, '"app.help" = "ctrl+k, f1"')


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ({}, ""),
        ({"run.stop": "k"}, ""),
        ({"run.stop": "r", "run.rerun": "s"}, ""),
        ({"run.stop": "l"}, "l has two actions, run.stop and run.logs"),
        ({"app.new": "x"}, "x has two actions, app.new and plot.axis"),
        ({"run.logs": "?"}, "question_mark has two actions, app.help and run.logs"),
    ],
)
def test_a_key_with_two_actions_is_reported(keys: dict[str, str], complaint: str) -> None:
    assert keymap.find_clashes(keys) == ([f"[keys]: {complaint}"] if complaint else [])


def test_the_app_reports_a_key_with_two_actions(ended: Make, runs_dir: Path) -> None:
    ended("mine")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        assert "o has two actions" in " ".join(messages(app))

    play(scenario, runs_dir, '"runs.stop" = "o"')


def test_keys_that_textual_knows_are_accepted() -> None:
    keys = "ctrl+shift+k, f24, é, plus, alt+question_mark, _, pagedown, ctrl+at"
    assert keymap.find_unknown({"run.stop": keys}) == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[keys]\n"run.stop" = "hiper+k"\n"run.rerum" = "k"', "run.rerum is not an action"),
        ('[keys]\n"run.stop" = "hiper+k"', "there is no key 'hiper+k'"),
        ('[keys]\n"app.help" = ""', "app.help has no key"),
        ("theme = 'nordic'", "there is no theme 'nordic'; did you mean nord"),
        ("bell = 3", "Expected `bool`, got `int` - at `$.bell`"),
        ("bell", "Expected '=' after a key"),
    ],
)
def test_invalid_settings_are_refused_at_start(
    text: str, complaint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.path().parent.mkdir(parents=True)
    settings.path().write_text(text, encoding="utf-8")
    _start_in_a_terminal(monkeypatch)
    assert main() == 2
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith(f"distrain-tui: {settings.path()}: ") for line in lines)
    assert complaint in "".join(lines)


def _start_in_a_terminal(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    """Let `main` find a terminal, and an app that ends at once."""
    monkeypatch.setattr("sys.argv", ["distrain-tui", *arguments])
    monkeypatch.setattr(DistrainApp, "run", lambda *_, **__: None)
    for stream in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True, raising=False)


def test_the_app_may_open_more_files_than_a_process_usually_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The table of runs has three of each live run open."""
    _start_in_a_terminal(monkeypatch)
    monkeypatch.setattr(linux_driver, "getincrementaldecoder", linux_driver.getincrementaldecoder)
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, usual[1]))
    try:
        assert main() == 0
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 512
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)


@pytest.mark.parametrize("what", ["current folder", "folder $DISTRAIN_RUNS_DIR", "argument"])
def test_a_folder_whose_name_is_not_utf_8_is_refused_at_start(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")  # Latin-1
    folder.mkdir()
    _start_in_a_terminal(monkeypatch, *([f"--runs-dir={folder}"] if what == "argument" else []))
    if what == "current folder":
        monkeypatch.chdir(folder)
    elif what != "argument":
        monkeypatch.setenv("DISTRAIN_RUNS_DIR", str(folder))
    assert main() == 2
    name = f"--runs-dir={folder}" if what == "argument" else str(folder)
    expected = f"distrain-tui: the {what} {name!a} is not valid UTF-8\n"
    assert capsys.readouterr().err == expected


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Return a function that reads bytes as a terminal sends them, one part after another, and
    returns the keys and the texts that were pasted.
    """
    names = vars(linux_driver)
    monkeypatch.setitem(names, "getincrementaldecoder", names["getincrementaldecoder"])
    read_terminal_safely()

    def read(*parts: bytes) -> list[str]:
        decode = names["getincrementaldecoder"]("utf-8")().decode
        parser = linux_driver.XTermParser(False)
        texts = filter(None, map(decode, parts))
        events = [event for text in texts for event in parser.feed(text)]
        return [event.text if isinstance(event, Paste) else event.key for event in events]

    return read


def test_bytes_that_are_not_utf8_do_not_end_the_app(typed: Callable[..., list[str]]) -> None:
    assert typed(b"\xc3(", b"\xc3", b"\xa9") == ["replacement_character", "left_parenthesis", "é"]


def test_a_paste_with_control_sequences_is_text_and_no_keys(
    typed: Callable[..., list[str]],
) -> None:
    coloured = b"\x1b[31mred\x1b[0m \x1b]0;title\x07q\x1b"
    assert typed(b"a\x1b[200~" + coloured + b"\x1b[201~\x1b[Bd") == ["a", "red q", "down", "d"]


def test_a_paste_may_arrive_in_parts(typed: Callable[..., list[str]]) -> None:
    sent = "j\x1b[200~d\u00e9t\x1b[201~k".encode()
    assert typed(*(bytes([each]) for each in sent)) == ["j", "d\u00e9t", "k"]
