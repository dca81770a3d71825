"""Real verifications in the app, which go on while they are not shown."""

from __future__ import annotations

import asyncio
import shlex
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from textual.pilot import Pilot
from textual.widgets import OptionList, Static

from distrain.runners.config.presets import load_preset
from distrain.runners.config.schema import RunConfig
from distrain.runners.verification import cases
from distrain.tui.app import DistrainApp
from distrain.tui.data.draft import Draft
from distrain.tui.data.verification_feed import (
    PresetToVerify,
    Progress,
    VerificationEntry,
    VerificationFeed,
)
from distrain.tui.dialogs.pick_one import PickOneDialog
from distrain.tui.screens.launch_screen import LaunchScreen
from distrain.tui.screens.verify_screen import VerifyScreen, ask_what_to_verify
from distrain.tui.widgets.verify_table import VerifyTable

from .app_driver import messages, until

RUNS_S = 240.0  # three processes that load torch, where others compute as well
Steps = Callable[[Pilot[None], DistrainApp], Awaitable[None]]


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that only the records of verification use."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("DISTRAIN_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return folder


def play(steps: Steps) -> None:
    async def played() -> None:
        app = DistrainApp()
        async with app.run_test(size=(100, 30)) as pilot:
            await steps(pilot, app)
            assert app.internal_errors == []

    asyncio.run(played())


def at_work(folder: Path, stage: str = "") -> list[str]:
    """Return the command lines of processes of the runs in a folder, filtered by a module."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            command = shlex.join(process.cmdline())
            if str(folder) in command + process.environ().get("DISTRAIN_RUN", ""):
                found.append(command)
    return [command for command in found if stage in command]


def entries_of(app: DistrainApp) -> list[VerificationEntry]:
    return list(app.screen.query_one(VerifyTable).entries)


def test_a_preset_is_verified_with_the_changes_of_the_form(scratch: Path) -> None:
    async def steps(pilot: Pilot[None], app: DistrainApp) -> None:
        screen = app.screen
        assert isinstance(screen, LaunchScreen)
        await until(pilot, lambda: screen.drafts.by_name, "the presets are read")
        screen.drafts.current_name = "single"
        screen.drafts.by_name["single"] = screen.drafts.by_name["single"].with_value(
            "train.threads", 1
        )
        await pilot.press("v")
        await until(pilot, lambda: isinstance(app.screen, PickOneDialog), "asked")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, VerifyScreen), "opened")
        await until(
            pilot, lambda: [each.state for each in entries_of(app)] == ["done"], "done", RUNS_S
        )
        (entry,) = entries_of(app)
        assert entry.result.preset == "single"
        assert entry.outcome == "the same", entry.result.sentence
        await pilot.press("y")
        assert "✔ the same" in app.clipboard
        assert "nearest to its limit: " in app.clipboard

    play(steps)
    assert list(scratch.iterdir()) == []


def test_a_verification_goes_on_when_it_is_left_and_is_found_again(scratch: Path) -> None:
    draft = Draft.of("single", load_preset("single", {"train.threads": 1}))

    async def steps(pilot: Pilot[None], app: DistrainApp) -> None:
        await until(pilot, lambda: isinstance(app.screen, LaunchScreen), "opened")
        ask_what_to_verify(app, draft, [draft])
        await until(pilot, lambda: isinstance(app.screen, PickOneDialog), "asked")
        await pilot.press("enter")
        await until(pilot, lambda: at_work(scratch), "at work", RUNS_S)
        screen = app.screen
        assert isinstance(screen, VerifyScreen)
        await until(pilot, lambda: "verifying 1 of 1 for" in progress(app), "progress is shown")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, LaunchScreen), "left")
        assert at_work(scratch)
        await until(pilot, lambda: has_ended(app), "the end is reported", RUNS_S)
        ask_what_to_verify(app, draft, [draft])
        await until(pilot, lambda: app.screen is screen and "all done" in progress(app), "found")
        await pilot.press("escape")
        ask_what_to_verify(app, draft, [draft])
        await until(pilot, lambda: isinstance(app.screen, PickOneDialog), "asks again")

    play(steps)


def has_ended(app: DistrainApp) -> bool:
    return any("verification: 1 the same" in message for message in messages(app))


def progress(app: DistrainApp) -> str:
    return str(app.screen.query_one("#progress", Static).render())


@pytest.mark.parametrize(
    ("end", "stage"),
    [
        ("s", "distrain.runners.training.worker"),
        ("q", "distrain.runners.verification.compare"),
    ],
)
def test_a_verification_ends_by_its_key_and_with_the_app(
    end: str, stage: str, scratch: Path
) -> None:
    wanted = PresetToVerify("single", load_preset("single", {"train.threads": 1}))

    async def steps(pilot: Pilot[None], app: DistrainApp) -> None:
        app.push_screen(VerifyScreen([wanted, wanted]))
        await until(pilot, lambda: at_work(scratch, stage), "at work", RUNS_S)
        assert [each.state for each in entries_of(app)] == ["verifying", "waiting"]
        await pilot.press(end)
        if end == "s":
            await until(pilot, lambda: not at_work(scratch), "ended")
            await until(pilot, lambda: "stopped" in progress(app), "says so")

    play(steps)
    assert at_work(scratch) == []
    assert list(scratch.iterdir()) == []


class StalledRun(SimpleNamespace):
    """A run that makes no progress until it is stopped."""

    is_live = True
    record = SimpleNamespace(state=SimpleNamespace(obstacle="no progress for 9 s: rank 1 hangs"))

    def stop(self, now: bool) -> None:
        self.is_live = False

    def wait_for_supervisor(self) -> None:
        assert not self.is_live


def test_why_a_run_makes_no_progress_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "launch", lambda *_, **__: StalledRun())
    wanted = PresetToVerify("single", load_preset("single"))

    async def steps(pilot: Pilot[None], app: DistrainApp) -> None:
        await app.push_screen(VerifyScreen([wanted]))
        await until(pilot, lambda: "· no progress for 9 s: rank 1 hangs" in progress(app), "named")
        await pilot.press("s")
        await until(pilot, lambda: progress(app) == "stopped", "stopped")

    play(steps)


def test_the_time_left_is_estimated_from_what_was_verified() -> None:
    (entry, *_) = next(iter(VerificationFeed([PresetToVerify("a", RunConfig())]).updates()))
    waiting, done = entry._replace(state="waiting"), entry._replace(state="done")
    found = Progress(0.0)
    assert found.describe(1.0) == "checking which presets can run here …"
    found.update([waiting, waiting, waiting], 2.0)
    assert found.describe(5.0) == "verifying 1 of 3 for 3.0 s"
    found.update([done, waiting, waiting], 12.0)
    assert found.describe(16.0) == "verifying 2 of 3 for 4.0 s · ~16.0 s left"


def test_a_preset_that_cannot_run_shows_why_and_is_not_started(scratch: Path) -> None:
    config = RunConfig().with_changes({"devices": "cpu:2", "train.batch_size": 1})
    *_, entries = VerificationFeed([PresetToVerify("tiny", config)], ranks=(1, 2)).updates()
    (entry,) = entries
    assert entry.outcome == "could not run"
    assert "1 is smaller than 2 ranks" in entry.result.sentence
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(
    ("preset", "offered"), [("ddp", ["own", "ranks", "all"]), ("single", ["own", "all"])]
)
def test_several_ranks_are_offered_to_presets_that_support_them(
    preset: str, offered: list[str]
) -> None:
    async def steps(pilot: Pilot[None], app: DistrainApp) -> None:
        draft = Draft.of(preset, load_preset(preset))
        ask_what_to_verify(app, draft, [draft])
        await until(pilot, lambda: app.screen.query(OptionList), "asked")
        options = app.screen.query_one(OptionList).options
        assert [option.id for option in options] == offered

    play(steps)
