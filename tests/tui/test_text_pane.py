"""A pane of lines, in an app of its own."""

from __future__ import annotations

import asyncio

from rich.text import Text
from textual.app import App, ComposeResult
from textual.content import Content

from distrain.tui.widgets.text_pane import TextPane
from tests.tui.app_driver import until


class Alone(App[None]):
    def compose(self) -> ComposeResult:
        yield TextPane()


def test_lines_that_fit_exactly_need_no_scroll_bar() -> None:
    async def play() -> None:
        app = Alone()
        async with app.run_test(size=(40, 12)) as pilot:
            pane = app.query_one(TextPane)
            await until(pilot, lambda: pane.height)
            pane.put([Text("line")] * (pane.height + 1))
            await until(pilot, lambda: pane.show_vertical_scrollbar)
            pane.put([Text("line")] * pane.height)
            await until(pilot, lambda: not pane.show_vertical_scrollbar, timeout=10)

    asyncio.run(play())


def test_a_title_is_not_markup() -> None:
    title = "$ distrain run --set a='[/x]' '[red]'"
    assert Content.from_markup(TextPane(title).border_title).plain == title
