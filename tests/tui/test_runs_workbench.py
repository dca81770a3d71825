"""The table of runs as a workbench: filters, columns, groups, the preview, what is compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from textual import events
from textual.pilot import Pilot
from textual.widgets import Input, Static

from distrain.runners.records.flat_config import FlatConfig
from distrain.tui import settings
from distrain.tui.app import DistrainApp
from distrain.tui.data.column_choice import differing_settings
from distrain.tui.data.row_filter import complete
from distrain.tui.dialogs.pick_columns import ColumnsDialog
from distrain.tui.dialogs.pick_one import PickOneDialog
from distrain.tui.dialogs.prompt import PromptDialog
from distrain.tui.screens.compare_screen import CompareScreen
from distrain.tui.widgets.diff_pane import RunSummaries
from distrain.tui.widgets.run_preview import RunPreviewPane
from distrain.tui.widgets.run_table import RunTable
from distrain.tui.widgets.runs_header import RunsHeader
from tests.support.records import RunBuilder

from .app_driver import until
from .test_run_scanner import a_row
from .test_runs_screen import lines, notifications, run_app, shows, table

Make = Callable[..., RunBuilder]


@pytest.fixture
def sweep(ended: Make) -> list[RunBuilder]:
    """Return four runs: two rates, each with two seeds."""
    return [
        ended(f"lr-{lr}-{seed}", top1=0.97 + lr / 10 + seed / 1000, ago=ago, **settings)
        for ago, (lr, seed) in enumerate([(0.1, 0), (0.1, 1), (0.2, 0), (0.2, 1)], 10)
        for settings in [{"train.lr": lr, "train.seed": seed}]
    ]


def header(app: DistrainApp) -> str:
    return table(app).render_line(0).text


def note(app: DistrainApp) -> str:
    return str(app.screen.query_one("#runs-note", Static).render())


async def pick(pilot: Pilot[None], app: DistrainApp, key: str, *, search: str) -> None:
    """Open a list with a key, search in it, and take what is found."""
    await pilot.press(key)
    await until(pilot, lambda: isinstance(app.screen, PickOneDialog | ColumnsDialog), "opened")
    await pilot.press(*search, "enter")


# --- filters --------------------------------------------------------------------------------------


def test_an_expression_filters_and_a_wrong_one_keeps_the_rows(
    sweep: Sequence[RunBuilder], runs_dir: Path
) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await until(pilot, lambda: all(row.detailed for row in table(app).rows), "read")
        await pilot.press("slash", *"lr>0.1 top1>=99.1%")
        await until(pilot, lambda: shows(app, "lr-0.2-1"), "filtered")
        await pilot.press(*" lrr>")
        await until(pilot, lambda: "no run has the key lrr; did you mean lr?" in note(app), "said")
        assert shows(app, "lr-0.2-1")
        await pilot.press("ctrl+u", *"lr>0.x top1>99%")
        await until(pilot, lambda: "lr> needs a number, not 0.x" in note(app), "said")
        assert shows(app, "lr-0.2-1")

    run_app(scenario, runs_dir)


def test_tab_completes_keys_and_values(sweep: Sequence[RunBuilder], runs_dir: Path) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("slash", *"-stra")
        await until(pilot, lambda: "strategy" in note(app), "offered")
        await pilot.press("tab", *"=d")
        await until(pilot, lambda: "ddp" in note(app), "offered")
        await pilot.press("tab")
        assert app.screen.query_one("#runs-filter", Input).value == "-strategy=ddp"

    run_app(scenario, runs_dir)


def test_values_of_a_key_are_offered_by_how_often_they_occur() -> None:
    rows = [a_row("a", tags=("old", "two words")), a_row("b", tags=("old",)), a_row("c", name="x")]
    assert complete("x tag:", rows).words == ["old", '"two words"']
    start, words = complete("x tag:o", rows)
    assert ("x tag:o"[:start] + words[0]) == "x tag:old"
    assert complete("nokey=", rows).words == ()
    rows = [a_row("d", metrics={"top1": 353 / 360}), a_row("e", metrics={"top1": 0.5})]
    assert complete("top1>", rows).words == ["0.980556", "0.5"]


def test_a_filter_is_saved_and_chosen_by_name(sweep: Sequence[RunBuilder], runs_dir: Path) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("slash", *"name:lr-0.2", "ctrl+s")
        await until(pilot, lambda: isinstance(app.screen, PromptDialog), "asked")
        await pilot.press(*"fast", "enter")
        await until(pilot, lambda: settings.load()[0].filters == {"fast": "name:lr-0.2"}, "saved")
        title = app.screen.query_one(RunsHeader)
        assert "filter fast" in str(title.render())
        await pilot.press("escape")
        await until(pilot, lambda: len(lines(app)) == 4, "cleared")
        await pilot.press("F", "down", "enter")
        await until(pilot, lambda: shows(app, "lr-0.2-0", "lr-0.2-1"), "filtered")
        app.remember(filters={"": "name:lr-0.1"})  # as a person may write it
        await pilot.press("F", "down", "enter")
        await until(pilot, lambda: shows(app, "lr-0.1-0", "lr-0.1-1"), "filtered")

    run_app(scenario, runs_dir)


# --- columns --------------------------------------------------------------------------------------


def test_the_keys_that_differ_are_columns_and_equal_ones_are_left_out(
    sweep: Sequence[RunBuilder], runs_dir: Path
) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await until(pilot, lambda: "seed" in header(app), "shown")
        words = header(app).split()
        assert words[:4] == ["name", "lr", "seed", "steps"]
        assert "top1" in words  # the metric that all of them have
        assert "strategy" not in words
        await pilot.click(RunTable, offset=(header(app).index("lr"), 0))
        assert "↑lr" in header(app)
        await until(pilot, lambda: "lr-0.1" in lines(app)[0], "sorted")

    run_app(scenario, runs_dir, (160, 36))


def test_informative_keys_come_first_and_seeds_last() -> None:
    configs = [
        FlatConfig(
            {
                "train.lr": lr,
                "train.seed": number in (0, 3),
                "train.optimizer": "sgd" if lr > 0.1 else "adam",
                "ddp.bucket_mb": 1 if lr > 0.1 else 2,  # changes with the optimizer
                "train.epochs": 4,
                "description": f"run {number}",
            }
        )
        for number, lr in enumerate([0.05, 0.1, 0.2, 0.4])
    ]
    rare = FlatConfig({"model.args.width": 8, "train.epochs": 4})
    assert differing_settings([*configs, rare]) == ["train.lr", "ddp.bucket_mb", "train.seed"]
    assert differing_settings(configs[:1]) == []


def test_columns_are_chosen_moved_and_remembered(
    sweep: Sequence[RunBuilder], runs_dir: Path
) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pick(pilot, app, "C", search="batch_size")
        await until(pilot, lambda: header(app).split()[1] == "batch_size", "shown")
        await pilot.press("shift+down", "escape")
        assert settings.load()[0].columns[2] == "config:train.batch_size"

    run_app(scenario, runs_dir, (80, 24))

    async def again(pilot: Pilot[None], app: DistrainApp) -> None:
        assert "batch_size" in header(app)
        await pilot.press("C", "enter", "escape")  # automatic
        assert settings.load()[0].columns == []

    run_app(again, runs_dir, (160, 36))


# --- groups ---------------------------------------------------------------------------------------


def test_runs_are_grouped_by_a_key_folded_and_compared(
    sweep: Sequence[RunBuilder], runs_dir: Path
) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await until(pilot, lambda: all(row.detailed for row in table(app).rows), "read")
        await pick(pilot, app, "b", search="train.lr")
        await until(pilot, lambda: len(lines(app)) == 6, "grouped")
        assert "▾ train.lr 0.1  2 runs  best top1 98.10 % (lr-0.1-1)" in lines(app)[0]
        await pilot.press("home", "enter")
        await until(pilot, lambda: len(lines(app)) == 4, "folded")
        assert "▸ train.lr 0.1" in lines(app)[0]
        await pilot.press("c")
        await until(pilot, lambda: isinstance(app.screen, CompareScreen), "compared")
        summaries = app.screen.query_one(RunSummaries)

        def text() -> str:
            return " ".join(" ".join(line.plain for line in summaries.lines).split())

        result = "lr-0.1-1 is best by top1: 98.10 % against 98.00 %; one run each, so no statement"
        await until(pilot, lambda: result in text(), "said")
        await pilot.press("escape", "a")
        await until(pilot, lambda: len(lines(app)) == 2, "all folded")
        await pilot.press("a", "space")
        assert "2 marked" in str(app.screen.query_one(RunsHeader).render())

    run_app(scenario, runs_dir, (160, 50))


# --- the preview, and what is compared ------------------------------------------------------------


def preview(app: DistrainApp) -> str:
    found = app.screen.query(RunPreviewPane)
    return "\n".join(line.plain for pane in found if pane.display for line in pane.lines)


def test_the_preview_shows_curves_and_differences_to_the_pinned_run(
    sweep: Sequence[RunBuilder], make: Make, runs_dir: Path
) -> None:
    sweep[3].note(pinned=True)
    make("bad", ago=5).steps(5).end("failed", reason="rank 1: ValueError: nan")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("down", "down")
        await until(pilot, lambda: "lr-0.1-0" in preview(app) and "█" in preview(app), "read")
        for part in (
            "eval top1",
            "98.00 %",
            "samples/s (mean)",
            "training loss",
            "1 → 0.0250",
        ):
            assert part in preview(app)
        await until(pilot, lambda: "that of lr-0.2-1 (pinned)" in preview(app), "compared")
        pairs = [line.split() for line in preview(app).splitlines()]
        assert ["train.lr", "0.1", "0.2"] in pairs
        await pilot.press("up")
        await until(pilot, lambda: "failed: rank 1: ValueError: nan" in preview(app), "failed")
        await pilot.press("P")
        assert preview(app) == ""
        await pilot.press("P")
        await until(pilot, lambda: "ValueError" in preview(app), "shown again")
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: preview(app) == "", "no room")
        await pilot.resize_terminal(80, 30)
        await until(pilot, lambda: "ValueError" in preview(app), "below the table")
        await pilot.press("down", "down")
        await until(pilot, lambda: "█" in preview(app), "read")
        sides = [line.split("   ", 1) for line in preview(app).splitlines()]
        assert "training loss" in sides[0][1]  # next to the name of the run
        pane, table = app.screen.query_one(RunPreviewPane), app.screen.query_one(RunTable)
        assert (pane.region.x, pane.region.y) == (table.region.x, table.region.bottom)
        assert table.region.height > 8
        await pick(pilot, app, "b", search="train.lr")
        await until(pilot, lambda: len(lines(app)) > 5, "grouped")
        await pilot.press("home")
        await until(pilot, lambda: "train.lr 0.2  2 runs" in preview(app), "a group")
        runs = [line.split()[1:] for line in preview(app).splitlines()[2:]]
        assert runs == [
            ["✔", "lr-0.2-1", "top1", "99.10", "%"],
            ["✔", "lr-0.2-0", "top1", "99.00", "%"],
        ]

    run_app(scenario, runs_dir)


def test_what_is_compared_without_marks(sweep: Sequence[RunBuilder], runs_dir: Path) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        async def compared() -> set[str]:
            await pilot.press("c")
            await until(pilot, lambda: isinstance(app.screen, CompareScreen), "opened")
            screen = app.screen
            assert isinstance(screen, CompareScreen)
            ids = {run.id for run in screen.runs}
            await pilot.press("escape")
            return ids

        await pilot.press("c")
        assert "mark two or more runs" in notifications(app)
        await pilot.press("down", "p")
        await until(pilot, lambda: shows(app, "↥", "lr", "lr", "lr"), "pinned")
        table(app).point_at(3)
        assert await compared() == {sweep[1].id, sweep[3].id}
        await pilot.press("slash", *"name:lr-0.1", "enter")
        await until(pilot, lambda: len(lines(app)) == 2, "filtered")
        assert await compared() == {sweep[0].id, sweep[1].id}

    run_app(scenario, runs_dir)


def test_letters_typed_at_once_after_the_key_of_the_filter_are_text(
    sweep: Sequence[RunBuilder], runs_dir: Path
) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        for character in "/sdnq":  # stop, delete, new, quit
            name = "slash" if character == "/" else character
            app.post_message(events.Key(name, character))
        await until(pilot, lambda: isinstance(app.focused, Input), "focused")
        field = app.screen.query_one("#runs-filter", Input)
        await until(pilot, lambda: field.value == "sdnq", "typed")
        assert len(app.screen_stack) == 1

    run_app(scenario, runs_dir)


def test_text_that_arrives_before_the_focus_of_its_field_replaces_what_was_there_and_is_kept(
    sweep: Sequence[RunBuilder], runs_dir: Path
) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.press("slash", *"lr", "enter")
        field = app.screen.query_one("#runs-filter", Input)
        app.screen.set_focus(field)  # the field is told later
        for character in "tag":
            app.on_key(events.Key(character, character))
        await pilot.press(*":x")
        assert field.value == "tag:x"
        assert field.select_on_focus

    run_app(scenario, runs_dir)
