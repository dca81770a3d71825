"""Horovod installed from the app: what is seen of it, and its end when somebody leaves."""

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

from runners import horovod
from runners.horovod import building, install
from runners.horovod.presence import Presence
from runners.horovod.toolchain import Toolchain
from tui.app import DistrainApp
from tui.data.consequences import Outlooks
from tui.screens.install import InstallHorovod
from tui.screens.launch import LaunchScreen

from .conftest import until

Steps = Callable[[Pilot[None], DistrainApp, LaunchScreen], Awaitable[None]]
WHY = f"Horovod is not installed; install it with `{horovod.FIX}`"


@pytest.fixture(autouse=True)
def _missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Horovod, with a place of its own to build it in."""
    monkeypatch.setenv("DISTRAIN_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    monkeypatch.setattr(horovod, "problem", lambda: WHY)
    monkeypatch.setattr(install, "presence", lambda afresh: Presence("it is not there"))
    monkeypatch.setattr(install, "look", lambda: Toolchain(torch="2.13.0"))


def pip_does(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    for module in (building, install):
        monkeypatch.setattr(module, "PIP", [sys.executable, "-c", code])


def play(steps: Steps) -> None:
    async def played() -> None:
        app = DistrainApp()
        async with app.run_test(size=(100, 30)) as pilot:
            screen = app.screen
            assert isinstance(screen, LaunchScreen)
            await until(pilot, lambda: screen._is_known, "what follows is known")
            await steps(pilot, app, screen)
            assert app.mishaps == []

    asyncio.run(played())


def seen(app: DistrainApp) -> str:
    texts = app.screen.query(Static)
    return "\n".join(str(text.render()) for text in texts)


def test_what_pip_says_is_seen_and_in_the_end_what_came_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pip_does(monkeypatch, "print('one thing'); raise SystemExit('ERROR: no network')")

    async def steps(pilot: Pilot[None], app: DistrainApp, screen: LaunchScreen) -> None:
        await pilot.press("i")
        await until(pilot, lambda: isinstance(app.screen, InstallHorovod), "opened")
        await until(pilot, lambda: "esc goes back" in seen(app), "ended")
        assert "one thing" in seen(app)
        assert "installing what Horovod needs failed: no network; all of it is in" in seen(app)
        before = screen._outlook
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is screen and screen._is_known, "worked out")
        assert screen._outlook is not before

    play(steps)


@pytest.mark.parametrize("leave", ["escape", "exit"])
def test_nothing_goes_on_when_somebody_leaves(
    leave: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sleeps = "import time; time.sleep(600)"
    code = f"import subprocess, sys; print('at work', flush=True); \
subprocess.run([sys.executable, '-c', {sleeps!r}])"
    pip_does(monkeypatch, code)

    def compilers() -> list[psutil.Process]:
        return psutil.Process().children(recursive=True)

    async def steps(pilot: Pilot[None], app: DistrainApp, screen: LaunchScreen) -> None:
        await pilot.press("i")
        await until(pilot, lambda: len(compilers()) >= 2, "at work")
        assert app.screen.query_one("#install-keys", Label)
        if leave == "escape":
            await pilot.press("escape")
            await until(pilot, lambda: not compilers(), "ended")
            assert app.screen is screen
        else:
            app.exit()

    play(steps)
    assert compilers() == []
    assert list((tmp_path / "scratch").iterdir()) == []


def test_the_key_says_so_where_there_is_nothing_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(horovod, "problem", lambda: "")

    async def steps(pilot: Pilot[None], app: DistrainApp, screen: LaunchScreen) -> None:
        await pilot.press("i")
        said = "Horovod is installed and works"
        await until(pilot, lambda: said in [each.message for each in app._notifications], "refused")
        assert app.screen is screen

    play(steps)


def test_the_footer_has_the_key_where_horovod_is_what_is_wanting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual = Outlooks.of
    wanting = (("strategy", WHY),)
    monkeypatch.setattr(
        Outlooks, "of", lambda self, config: usual(self, config)._replace(problems=wanting)
    )

    def offered(app: DistrainApp) -> bool:
        bar = app.screen.query_one("KeyBar")
        return "Install" in bar.render_line(0).text

    async def steps(pilot: Pilot[None], app: DistrainApp, screen: LaunchScreen) -> None:
        await until(pilot, lambda: offered(app), "offered")
        monkeypatch.setattr(Outlooks, "of", usual)
        screen._after_install(None)
        await until(pilot, lambda: not offered(app), "gone")

    play(steps)
