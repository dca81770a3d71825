"""A group of runs: launched from the form, shown with what differs, stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest.mock import DEFAULT, Mock

import pytest
from textual.pilot import Pilot

from distrain.runners.config.planning import plan_here
from distrain.runners.config.schema import RunConfig
from distrain.runners.config.sweep import Axis
from distrain.runners.errors import DistrainError
from distrain.runners.groups import find_group
from distrain.runners.supervision.device_queue import DeviceLease, QueueEntry
from distrain.runners.supervision.queue_order import read_queue
from distrain.runners.system.devices import Device
from distrain.runners.system.host import count_cores
from distrain.tui.app import DistrainApp
from distrain.tui.data.config_fields import fields, parse_typed
from distrain.tui.data.draft import Draft, find_problem
from distrain.tui.dialogs.dialog import ChoiceDialog
from distrain.tui.screens.compare_screen import CompareScreen
from distrain.tui.screens.group_screen import GroupScreen
from distrain.tui.screens.launch_screen import LaunchScreen
from distrain.tui.screens.queue_screen import QueueScreen
from distrain.tui.screens.run_screen import RunScreen
from distrain.tui.widgets.group_table import GroupTable
from distrain.tui.widgets.queue_table import QueueTable
from distrain.tui.widgets.run_table import RunTable
from tests.support.records import RunBuilder

from .app_driver import messages, screen_lines, until

FIELDS = {field.key: field for field in fields()}
SLOW_S = 200.0  # real processes on a machine that is busy
GROUP = "20261124-120000-mine-sweep-ab12"


def set_value(draft: Draft, key: str, text: str) -> Draft:
    assert find_problem(draft, FIELDS[key], text) == ""
    return draft.with_value(key, parse_typed(FIELDS[key], text))


# --- the form -------------------------------------------------------------------------------------


def test_a_field_with_several_values_is_a_sweep_in_the_command_and_in_the_draft_file() -> None:
    draft = Draft.of("ddp", RunConfig())
    draft = set_value(draft, "train.lr", "0.1, 0.05 ,1e-3")
    draft = set_value(draft, "strategy", "ddp, allreduce")
    assert draft.config.train.lr == 0.1
    assert draft.changes == [FIELDS["strategy"], FIELDS["train.lr"]]
    assert draft.command()[3:] == [
        *("--sweep", "strategy=ddp,allreduce"),
        *("--sweep", "train.lr=0.1,0.05,1e-3"),
    ]
    # and they come back from the file
    again = Draft.of("ddp", RunConfig(), draft.assignments)
    assert set(again.axes) == set(draft.axes)
    # one value replaces them
    assert draft.with_value("train.lr", 0.2).axes == (draft.axes[1],)
    assert draft.reset("train.lr").get("train.lr") == 0.1


@pytest.mark.parametrize(
    ("key", "text", "problem"),
    [
        ("train.lr", "0.1, -1", "must be a number > 0, not -1"),
        ("train.lr", "0.1, ", "a value of the sweep is empty"),
        ("train.lr", "0.1, 0.10", "0.10 is in the sweep twice"),
        ("strategy", "ddp, dpp", "unknown strategy 'dpp'"),
    ],
)
def test_each_value_is_checked_while_it_is_typed(key: str, text: str, problem: str) -> None:
    assert problem in find_problem(Draft.of("ddp", RunConfig()), FIELDS[key], text)


def test_text_and_devices_may_contain_commas_and_have_one_value() -> None:
    assert parse_typed(FIELDS["description"], "a, b") == "a, b"
    assert parse_typed(FIELDS["devices"], "0,1") == [0, 1]
    assert isinstance(parse_typed(FIELDS["model.name"], "mlp, cnn"), Axis)


# --- screens --------------------------------------------------------------------------------------

Steps = Callable[[Pilot[None], DistrainApp], Awaitable[None]]


def in_app(runs_dir: Path, steps: Steps, size: tuple[int, int] = (140, 40)) -> None:
    async def main() -> None:
        app = DistrainApp(runs_dir)
        async with app.run_test(size=size) as pilot:
            await steps(pilot, app)
            assert app.internal_errors == []

    asyncio.run(main())


def shows(app: DistrainApp, *words: str) -> bool:
    return any(all(word in line for word in words) for line in screen_lines(app))


@pytest.fixture
def sweep(make: Callable[..., RunBuilder]) -> list[RunBuilder]:
    """Return a group: two runs that have ended, one that trains, one that has not begun."""
    runs = [
        make("lr-0.3", **{"train.lr": 0.3}).steps(40).evaluation(loss=0.4, top1=0.91).end(),
        make("lr-0.1", **{"train.lr": 0.1}).steps(40).evaluation(loss=0.5, top1=0.93).end(),
        make("lr-0.03", **{"train.lr": 0.03}).steps(10).evaluation(loss=0.9, top1=0.8),
        make("lr-0.01", begun=False, **{"train.lr": 0.01}),
    ]
    for run in runs:
        run.writer.set_state(group=GROUP)
    waiting = f"CPU: 2 cores in use by run {runs[2].dir.name} (lr-0.03)"
    runs[-1].writer.set_state(status="queued", waiting_for=[waiting])
    return runs


def test_compare_on_a_run_of_a_sweep_shows_its_group(
    runs_dir: Path, sweep: list[RunBuilder]
) -> None:
    async def steps(pilot: Pilot[None], app: DistrainApp) -> None:
        await until(pilot, lambda: shows(app, "lr-0.01"))
        await pilot.press("c")
        await until(pilot, lambda: isinstance(app.screen, GroupScreen))
        await until(pilot, lambda: shows(app, "best so far of 3: lr-0.1, top1 93.00 %", "n = 1"))
        assert shows(app, "lr-0.1 ", "0.1", "completed", "93.00 %", "best")
        assert shows(app, "lr-0.03 ", "running", "25 %", "80.00 %")
        assert shows(app, "lr-0.01 ", "queued")
        assert shows(app, "lr-0.01 waits for CPU: 2 cores in use by lr-0.03")
        assert shows(app, "mine-sweep", "2 of 4 runs have ended")
        # enter opens the run under the cursor
        await pilot.press("down", "down", "enter")
        await until(pilot, lambda: isinstance(app.screen, RunScreen))
        assert isinstance(app.screen, RunScreen)
        assert app.screen.run.name == "lr-0.03"

    in_app(runs_dir, steps)


@pytest.mark.parametrize("is_script", [False, True])
def test_the_stop_of_a_sweep_promises_checkpoints_only_where_they_are_written(
    runs_dir: Path, make: Callable[..., RunBuilder], is_script: bool
) -> None:
    script = {"script": {"path": "train.py"}}
    for name in ("lr-1", "lr-2"):
        run = make(name, world=1, begun=not is_script, **(script if is_script else {}))
        run.writer.set_state(group=GROUP)

    async def steps(pilot: Pilot[None], app: DistrainApp) -> None:
        await until(pilot, lambda: shows(app, "lr-2"))
        await pilot.press("c")
        await until(pilot, lambda: isinstance(app.screen, GroupScreen))
        await pilot.press("s")
        await until(pilot, lambda: isinstance(app.screen, ChoiceDialog))
        assert shows(app, "Ctrl-C") is is_script
        assert shows(app, "Stop with checkpoints") is not is_script

    in_app(runs_dir, steps)


def test_compare_with_a_filter_shows_the_group_only_if_all_its_runs_match(
    runs_dir: Path, sweep: list[RunBuilder], make: Callable[..., RunBuilder]
) -> None:
    other = make("other").steps(10).end()
    other.note(pinned=True)

    async def steps(pilot: Pilot[None], app: DistrainApp) -> None:
        table = app.screen.query_one(RunTable)
        for text, count, kind in (("name:lr-", 4, GroupScreen), ("top1>0.9", 2, CompareScreen)):
            await pilot.press("slash", *text, "enter")
            await until(pilot, lambda count=count: len(table.rows) == count, "filtered")
            await pilot.press("c")
            await until(pilot, lambda: isinstance(app.screen, CompareScreen), "compared")
            assert type(app.screen) is kind
            await pilot.press("escape", "escape")
            await until(pilot, lambda: len(table.rows) == 5, "not filtered")

    in_app(runs_dir, steps)


def test_several_values_in_the_form_launch_a_group_of_real_runs(
    runs_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    presets = tmp_path / "config" / "presets"
    presets.mkdir(parents=True)
    text = 'strategy = "single"\nlauncher = "inline"\ndevices = "cpu:1"\n[train]\nepochs = 5000\n'
    (presets / "mine.toml").write_text(f"{text}threads = {count_cores()}\n")

    async def steps(pilot: Pilot[None], app: DistrainApp) -> None:
        screen = app.screen
        assert isinstance(screen, LaunchScreen)
        await until(pilot, lambda: "mine" in screen.drafts.by_name)
        screen.drafts.current_name = "mine"
        screen._paint()
        screen._form.go_in("train.lr")
        await pilot.press(*"0.1", "comma")
        assert not shows(app, "a value of the sweep"), "the next one is being typed"
        await pilot.press("enter")
        await until(pilot, lambda: shows(app, "a value of the sweep"))
        await pilot.press("space", *"0.05", "enter")
        await until(pilot, lambda: screen.preview.is_current and screen.drafts.current.axes)  # type: ignore[union-attr]
        await until(pilot, lambda: shows(app, "2, queued as one group"), "the preview")
        assert shows(app, "first run", "lr-0.1, 1 of 2"), "the figures are of one run"
        await pilot.press("escape", "n")
        await until(pilot, lambda: "the screen that launches" in "".join(messages(app)), "why")
        # what takes one value of each key is refused
        await pilot.press("ctrl+s")
        refused = "several values of train.lr"
        await until(pilot, lambda: refused in "".join(messages(app)), refused)
        await pilot.press("ctrl+r")
        await until(pilot, lambda: isinstance(app.screen, GroupScreen), "launched", SLOW_S)
        await until(pilot, lambda: shows(app, "lr-0.05", "queued"), "queued", SLOW_S)
        # all are stopped at once, after a question
        await pilot.press("s")
        await until(pilot, lambda: isinstance(app.screen, ChoiceDialog))
        await pilot.click("#now")
        await until(pilot, lambda: shows(app, "2 of 2 runs have ended"), "stopped", SLOW_S)

    in_app(runs_dir, steps)
    group = find_group("mine-sweep", runs_dir)
    assert [run.name for run in group.runs] == ["lr-0.1", "lr-0.05"]
    assert group.runs[1].record.state.reason == "removed from the queue"


def test_the_queue_is_shown_and_reordered(runs_dir: Path, make: Callable[..., RunBuilder]) -> None:
    runs = {name: make(name) for name in ("one", "two", "three")}
    config = RunConfig(strategy="single").with_changes({"train.threads": count_cores()})
    plan = plan_here(config, [Device(kind="cpu", index=0)])
    for name in ("two", "three"):
        runs[name].writer.set_state(status="queued")
    leases = [
        DeviceLease(QueueEntry.of(plan, run.dir, name, waiting=name != "one"))
        for name, run in runs.items()
    ]

    def order(table: QueueTable) -> list[str]:
        return [line.plain[6:].split()[0] for line in table.lines[1:4]]

    async def steps(pilot: Pilot[None], app: DistrainApp) -> None:
        await until(pilot, lambda: shows(app, "three"))
        await pilot.press("Q")
        await until(pilot, lambda: isinstance(app.screen, QueueScreen))
        table: Any = app.screen.query_one(QueueTable)
        await until(pilot, lambda: len(table.lines) > 3)
        assert order(table) == ["one", "two", "three"]
        assert shows(app, "1 two", "in use by one")
        await pilot.press("down", "down", "K")
        await until(pilot, lambda: order(table) == ["one", "three", "two"])
        # the cursor stays on the run
        await pilot.press("J")
        await until(pilot, lambda: order(table) == ["one", "two", "three"])
        await pilot.press("up", "up", "J")
        await until(pilot, lambda: "has started and cannot be moved" in "".join(messages(app)))
        await pilot.press("down", "s")
        await until(pilot, lambda: isinstance(app.screen, ChoiceDialog))
        await pilot.press("escape", "enter")
        await until(pilot, lambda: isinstance(app.screen, RunScreen))

    try:
        in_app(runs_dir, steps)
    finally:
        for lease in leases:
            lease.close()


def test_a_read_only_app_moves_nothing_and_reads_a_queue_that_could_not_be_read(
    runs_dir: Path, make: Callable[..., RunBuilder], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = QueueEntry(run_id="a", dir=str(make("a").dir), waiting=True, movable=True)
    problems = [DistrainError("not now"), DEFAULT, DistrainError("nor now"), *[DEFAULT] * 1000]
    read = Mock(side_effect=problems, wraps=read_queue)
    monkeypatch.setattr("distrain.tui.screens.queue_screen.read_queue", read)

    async def main() -> None:
        app = DistrainApp(runs_dir, readonly=True)
        async with app.run_test() as pilot:
            await until(pilot, lambda: shows(app, " a "))
            await pilot.press("Q")
            await until(pilot, lambda: isinstance(app.screen, QueueScreen) and shows(app, "place"))
            assert messages(app)[0] == "not now"
            await until(pilot, lambda: "nor now" in messages(app))
            assert shows(app, "place")  # as it was read last
            await pilot.press("K")
            await until(pilot, lambda: "read-only" in "".join(messages(app)))
            assert not app.screen.query(GroupTable)

    with DeviceLease(entry):
        asyncio.run(main())
