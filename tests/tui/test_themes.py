"""The focus is visible in every theme."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from textual.color import Color
from textual.pilot import Pilot
from textual.theme import BUILTIN_THEMES
from textual.widget import Widget

from distrain.tui.app import DistrainApp
from distrain.tui.widgets.colours import LEAST_CONTRAST, contrast, visible_accent
from tests.support.records import RunBuilder

from .app_driver import until
from .test_palette import play

Make = Callable[..., RunBuilder]
UNFOCUSED = 0.3  # share of the foreground in the border of a pane without the focus


def panes(app: DistrainApp) -> Iterable[Widget]:
    return app.screen.query("#presets, #form, #preview")


def borders(widgets: Iterable[Widget | None]) -> list[str]:
    return [widget.styles.border_top[0] for widget in widgets if widget]


def test_contrast_is_that_of_wcag() -> None:
    assert contrast(Color.parse("#777777"), Color.parse("white")) == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("name", [name for name, theme in BUILTIN_THEMES.items() if not theme.ansi])
def test_the_focused_border_is_visible_in_every_theme(name: str) -> None:
    colours = BUILTIN_THEMES[name].to_color_system().generate()
    background, text = Color.parse(colours["background"]), Color.parse(colours["foreground"])
    accent = Color.parse(visible_accent(colours))
    assert contrast(accent, background) >= LEAST_CONTRAST
    assert contrast(accent, background.blend(text, UNFOCUSED)) > 1.5


@pytest.mark.parametrize("without", ["ansi-dark", "no-color"])
def test_without_colours_the_focused_border_is_heavy(
    ended: Make, runs_dir: Path, monkeypatch: pytest.MonkeyPatch, without: str
) -> None:
    if without == "no-color":
        monkeypatch.setenv("NO_COLOR", "1")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        if without != "no-color":
            app.theme = without
        await pilot.press("l")
        for _ in range(7):
            await pilot.press("tab")
            await until(pilot, lambda: borders([app.focused]) == ["heavy"], "visible")
        await pilot.press("n")
        for _ in range(3):
            await pilot.pause()
            await until(pilot, lambda: borders(panes(app)).count("heavy") == 1, "visible")
            await pilot.press("tab")

    play(scenario, runs_dir, ended("mine"))
