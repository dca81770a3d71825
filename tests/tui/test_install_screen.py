"""Horovod is installed from the app, also while the dialog is not shown."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest
from textual.pilot import Pilot
from textual.widgets import Label, Static

from distrain.runners import horovod
from distrain.runners.horovod import install, wheel
from distrain.runners.horovod.presence import Presence
from distrain.runners.horovod.toolchain import Toolchain
from distrain.tui.app import DistrainApp
from distrain.tui.data.launch_preview import PreviewBuilder
from distrain.tui.dialogs.install_horovod import NAME, InstallHorovodDialog
from distrain.tui.dialogs.kept import is_kept
from distrain.tui.screens.launch_screen import LaunchScreen

from .app_driver import messages, until

Steps = Callable[[Pilot[None], DistrainApp, LaunchScreen], Awaitable[None]]
WHY = f"Horovod is not installed; install it with `{horovod.FIX}`"


@pytest.fixture(autouse=True)
def _missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set up a machine without Horovod, with a temporary folder to build it in."""
    monkeypatch.setenv("DISTRAIN_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    monkeypatch.setattr(horovod, "problem", lambda: WHY)
    monkeypatch.setattr(install, "presence", lambda refresh: Presence("it is not there"))
    monkeypatch.setattr(install, "find_toolchain", lambda: Toolchain(torch="2.13.0"))


def pip_does(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    for module in (wheel, install):
        monkeypatch.setattr(module, "PIP", [sys.executable, "-c", code])


def play(steps: Steps) -> None:
    async def played() -> None:
        app = DistrainApp()
        async with app.run_test(size=(100, 30)) as pilot:
            screen = app.screen
            assert isinstance(screen, LaunchScreen)
            await until(pilot, lambda: screen.preview.is_current, "built the preview")
            await steps(pilot, app, screen)
            assert app.internal_errors == []

    asyncio.run(played())


def seen(app: DistrainApp) -> str:
    texts = app.screen.query(Static)
    return "\n".join(str(text.render()) for text in texts)


def test_the_install_dialog_shows_the_output_and_the_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pip_does(monkeypatch, "print('one thing'); raise SystemExit('ERROR: no network')")

    async def steps(pilot: Pilot[None], app: DistrainApp, screen: LaunchScreen) -> None:
        await pilot.press("i")
        await until(pilot, lambda: isinstance(app.screen, InstallHorovodDialog), "opened")
        await until(pilot, lambda: "esc goes back" in seen(app), "ended")
        assert "one thing" in seen(app)
        failure = "installing the requirements of Horovod failed: no network"
        assert f"{failure}; the whole output is in" in seen(app)
        before = screen.preview.latest
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is screen and screen.preview.is_current, "built")
        assert screen.preview.latest is not before

    play(steps)


@pytest.mark.parametrize("end", ["s", "exit"])
def test_an_installation_goes_on_when_it_is_left_until_it_is_stopped(
    end: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sleeps = "import time; time.sleep(600)"
    code = f"import subprocess, sys; print('at work', flush=True); \
subprocess.run([sys.executable, '-c', {sleeps!r}])"
    pip_does(monkeypatch, code)

    others = psutil.Process().children(recursive=True)  # of tests before this one

    def compilers() -> list[psutil.Process]:
        return [each for each in psutil.Process().children(recursive=True) if each not in others]

    async def steps(pilot: Pilot[None], app: DistrainApp, screen: LaunchScreen) -> None:
        await pilot.press("i")
        await until(pilot, lambda: len(compilers()) >= 2, "at work")
        dialog = app.screen
        assert dialog.query_one("#install-keys", Label)
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is screen, "left")
        assert len(compilers()) >= 2
        await pilot.press("i")
        await until(pilot, lambda: app.screen is dialog, "found again")
        if end == "s":
            await pilot.press("s")
            await until(pilot, lambda: not compilers(), "ended")
            await pilot.press("escape")
            await until(pilot, lambda: app.screen is screen, "left")
            await until(pilot, lambda: not is_kept(app, NAME), "discarded")
        else:
            app.exit()

    play(steps)
    assert compilers() == []
    assert list((tmp_path / "scratch").iterdir()) == []


def test_the_install_key_reports_if_horovod_is_already_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(horovod, "problem", lambda: "")

    async def steps(pilot: Pilot[None], app: DistrainApp, screen: LaunchScreen) -> None:
        await pilot.press("i")
        said = "Horovod is installed and works"
        await until(pilot, lambda: said in messages(app), "refused")
        assert app.screen is screen

    play(steps)


def test_the_footer_has_the_install_key_if_horovod_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual = PreviewBuilder.build
    wanting = (("strategy", WHY),)
    monkeypatch.setattr(
        PreviewBuilder,
        "build",
        lambda self, *what: usual(self, *what)._replace(problems=wanting),
    )

    def offered(app: DistrainApp) -> bool:
        bar = app.screen.query_one("KeyBar")
        return "Install" in bar.render_line(0).text

    async def steps(pilot: Pilot[None], app: DistrainApp, screen: LaunchScreen) -> None:
        await until(pilot, lambda: offered(app), "offered")
        monkeypatch.setattr(PreviewBuilder, "build", usual)
        screen.rebuild_preview()
        await until(pilot, lambda: not offered(app), "gone")

    play(steps)
