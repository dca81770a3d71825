"""Every screen as a picture. `pytest tests/tui/test_snapshots.py --snapshot-update` makes all of
them again; review each changed picture before you commit it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Input

from distrain.runners.bench import Bench
from distrain.runners.config.presets import load_preset
from distrain.runners.horovod.install import Progress
from distrain.runners.protocol.events import Attempt, Exited, Job
from distrain.runners.runs import Run
from distrain.tui import settings
from distrain.tui.app import DistrainApp
from distrain.tui.data.verification_feed import VerificationFeed
from distrain.tui.dialogs.error import ErrorDialog
from distrain.tui.dialogs.install_horovod import InstallHorovodDialog
from distrain.tui.screens.bench_screen import BenchScreen
from distrain.tui.screens.compare_screen import CompareScreen
from distrain.tui.screens.config_screen import ConfigScreen
from distrain.tui.screens.launch_screen import LaunchScreen
from distrain.tui.screens.run_screen import RunScreen
from distrain.tui.screens.runs_screen import RunsScreen
from distrain.tui.screens.verify_screen import VerifyScreen
from distrain.tui.widgets.log_pane import LogPane
from distrain.tui.widgets.plot_pane import PlotPane
from distrain.tui.widgets.verify_table import VerifyTable
from tests.support.benches import RATES, make_bench

from .app_driver import screen_lines, until
from .realistic_runs import (
    DAY,
    HOUR,
    MINUTE,
    NOW,
    Clock,
    RealisticRun,
    freeze,
    gpus,
    logs,
    verified,
)

Begin = Callable[..., RealisticRun]
Look = Callable[..., bool]

SMALL, MIDDLE, LARGE = (80, 24), (120, 36), (200, 60)
LOW = 100, 30  # the least size that is neither narrow nor short


def sizes(*each: tuple[int, int]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("size", each, ids=[f"{w}x{h}" for w, h in each])


STILL = 3  # looks that see the same: a scroll bar that comes makes a pane paint again

at_every_size = sizes(SMALL, MIDDLE, LARGE)
at_usual_sizes = sizes(SMALL, MIDDLE)
at_one_size = sizes(MIDDLE)
in_every_theme = pytest.mark.parametrize("theme", ["textual-light", "ansi-dark", "no-color"])


@pytest.fixture(autouse=True)
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """Time, ids, machine and terminal are the same everywhere, and paths are relative."""
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        yield freeze(patch)
    time.tzset()


@pytest.fixture
def begin(runs_dir: Path, clock: Clock) -> Begin:
    """Launch a run so many seconds ago."""

    def begin(name: str = "", ago: float = 40, **how: Any) -> RealisticRun:
        clock.now = NOW - ago
        run = RealisticRun(runs_dir, name, **how)
        clock.now = NOW
        return run

    return begin


@pytest.fixture
def looks(
    snap_compare: Callable[..., bool], size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> Look:
    """Open the app, press keys, and compare what is to be seen with the picture."""

    def look(
        *keys: str,
        run: RealisticRun | Bench | None = None,
        until_seen: str = "",
        over: Callable[[], Screen[Any]] | None = None,
        theme: str = "",
    ) -> bool:
        if theme == "no-color":
            monkeypatch.setenv("NO_COLOR", "1")
        elif theme:
            settings.save(settings.Settings(theme=theme))
        app = DistrainApp(session=Run(run.record) if isinstance(run, RealisticRun) else run)
        app.runs_dir = Path("runs")
        app.animation_level = "none"

        async def play(pilot: Pilot[None]) -> None:
            try:
                await settled(pilot)
                await pilot.press(*keys)
                if over:
                    await app.push_screen(over())
                for field in app.screen.query(Input):
                    field.cursor_blink = False
                await settled(pilot, until_seen)
            except BaseException:
                app.exit()  # else it goes on after a test that has failed
                raise

        same = snap_compare(app, terminal_size=size, run_before=play)
        assert app.internal_errors == []
        return same

    return look


async def settled(pilot: Pilot[None], seen: str = "") -> None:
    """Wait until all threads have reported what they read and the screen is still."""
    app = pilot.app
    await until(pilot, lambda: all(map(has_read, app.screen_stack)), "read")
    await until(pilot, lambda: seen in text_of(app), f"seen: {seen}")
    still, before = 0, ""
    while still < STILL:
        await pilot.pause()
        await pilot.pause(0.05)
        still = still + 1 if before == text_of(app) else 0
        before = text_of(app)


def has_read(screen: Screen[Any]) -> bool:
    match screen:
        case LaunchScreen():
            return bool(screen.drafts.presets) and (
                screen.drafts.current is None or screen.preview.is_current
            )
        case RunScreen():
            shown = not screen.has_class("-logs") or screen.query_one(LogPane).page is not None
            read = screen.frame.charts if screen.frame else {}
            charts = [read.get(name) for name in screen.view.plots]
            return charts == [plot.chart for plot in screen.query(PlotPane)] and shown
        case RunsScreen():
            return screen.is_complete and screen.shows_all
        case CompareScreen():
            return screen.frame is not None
        case BenchScreen():
            return screen.frame is not None
        case VerifyScreen():
            return bool(screen.query_one(VerifyTable).entries)
    return True


def text_of(app: Any) -> str:
    return "\n".join(screen_lines(app))


# --- launch ---


@at_every_size
def test_launch(looks: Look, begin: Begin) -> None:
    begin("before", ago=HOUR).train(40).end()
    assert looks("n")


@at_every_size
def test_launch_with_a_changed_field(looks: Look) -> None:
    assert looks("right", "down", "space")


@at_usual_sizes
def test_launch_with_a_field_that_cannot_run(looks: Look) -> None:
    keys = ["right", *["down"] * 5, "1", "enter"]
    assert looks(*keys, until_seen="is smaller than")


@at_usual_sizes
def test_a_preset_is_saved_under_a_name(looks: Look) -> None:
    assert looks("ctrl+s", until_seen="Save as a preset")


@at_usual_sizes
def test_a_script_is_asked_for(looks: Look) -> None:
    assert looks("s", *"--devices cpu:2 ", until_seen="name a script")


@at_usual_sizes
def test_presets_are_verified(looks: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VerificationFeed, "updates", lambda verifier: iter([verified()]))
    assert looks(over=lambda: VerifyScreen([]), until_seen="stopped")


COMPILED = [
    f"[{percent:3}%] Building CXX object horovod/torch/CMakeFiles/pytorch.dir/{name}.cc.o"
    for percent, name in ((59, "__/common/controller"), (60, "__/common/half"), (62, "adapter_v2"))
]


@at_usual_sizes
def test_horovod_is_built(looks: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    message = InstallHorovodDialog.Progressed(Progress("building", 0.62, COMPILED[-1]), COMPILED)
    monkeypatch.setattr(
        InstallHorovodDialog, "_install", lambda screen: screen.post_message(message)
    )
    assert looks(over=InstallHorovodDialog, until_seen="62")


@at_usual_sizes
def test_horovod_could_not_be_built(looks: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    why = "the build of Horovod failed: horovod/common/half.cc:12:3: error: 'x' is no type; all"
    ended = InstallHorovodDialog.Ended(
        f"{why} of it is in ~/.cache/distrain/build.log", False, COMPILED
    )
    monkeypatch.setattr(InstallHorovodDialog, "_install", lambda screen: screen.post_message(ended))
    assert looks(over=InstallHorovodDialog, until_seen="esc goes back")


@at_usual_sizes
def test_what_to_verify_is_asked(looks: Look) -> None:
    assert looks("v")


@at_one_size
def test_launch_by_slurm(looks: Look, tmp_path: Path) -> None:
    folder = tmp_path / "config" / "presets"
    folder.mkdir(parents=True)
    (folder / "cluster.toml").write_text(CLUSTER)
    settings.save(settings.Settings(preset="cluster"))
    assert looks("right", until_seen="2 nodes")


CLUSTER = """
description = "Two nodes of a cluster"
strategy = "ddp"
launcher = "slurm"
[slurm]
partition = "gpu"
nodes = 2
gpus_per_node = 4
time = "1:00:00"
"""


# --- a run ---


@pytest.fixture
def live(begin: Begin) -> RealisticRun:
    """Eight ranks on a machine without GPUs."""
    return begin("wide mlp", world=8, **{"train.epochs": 40}).train(290).samples()


@pytest.fixture
def failed(begin: Begin) -> RealisticRun:
    run = begin("unlucky", world=4, ago=HOUR, **{"train.epochs": 40}).train(150)
    logs(run.dir, range(4), 60, "epoch 15")
    return run.fail(2, "a label is out of range: 11 of 10 classes")


@at_every_size
def test_a_live_run_without_gpus(looks: Look, live: RealisticRun) -> None:
    assert looks(run=live)


@at_every_size
def test_a_live_run_on_eight_gpus(looks: Look, begin: Begin) -> None:
    run = begin("eight", devices=gpus(8), **{"train.epochs": 40}).train(290).samples()
    assert looks(run=run)


@at_usual_sizes
def test_a_gpu_that_does_not_offer_everything(looks: Look, begin: Begin) -> None:
    device = gpus(1, "NVIDIA GeForce MX150")
    run = begin("laptop", devices=device, strategy="single", launcher="inline").train(25)
    run.sample_with_nothing_but(utilisation=83.0, temperature=71.0)
    assert looks(run=run)


@at_usual_sizes
def test_a_run_of_one_rank(looks: Look, begin: Begin) -> None:
    run = begin("alone", world=1, strategy="single", launcher="inline").train(25).samples()
    assert looks(run=run)


@at_usual_sizes
def test_a_completed_run(looks: Look, begin: Begin) -> None:
    assert looks(run=begin("done", ago=HOUR).train(40).samples().end())


@sizes(SMALL, LOW, MIDDLE, LARGE)
def test_a_failed_run(looks: Look, failed: RealisticRun) -> None:
    assert looks(run=failed)


@at_usual_sizes
def test_a_queued_run(looks: Look, begin: Begin) -> None:
    run = begin("patient", devices=gpus(2))
    run.wait("GPU 0: run eight has it", "GPU 1: run eight has it")
    assert looks(run=run)


# --- a run on several nodes ---


NODES = [f"node-{number:02}" for number in range(1, 5)]


@at_every_size
def test_a_live_run_on_four_nodes(looks: Look, begin: Begin) -> None:
    run = begin("wide", hosts=NODES, devices=gpus(8), **{"train.epochs": 40}).train(290).samples()
    assert looks(run=run)


@at_usual_sizes
def test_the_ranks_and_gpus_of_one_node(looks: Look, begin: Begin) -> None:
    run = begin("wide", hosts=NODES, devices=gpus(4), **{"train.epochs": 40}).train(290).samples()
    assert looks("shift+tab", "shift+tab", "down", "space", "f", run=run)


@at_one_size
def test_the_gpus_of_one_node_among_others(looks: Look, begin: Begin) -> None:
    run = begin("wide", hosts=NODES, devices=gpus(4), **{"train.epochs": 40}).train(290).samples()
    assert looks("shift+tab", "down", "space", run=run)


@at_one_size
def test_two_nodes_without_gpus_of_which_one_has_failed(looks: Look, begin: Begin) -> None:
    run = begin("small", hosts=NODES[:2], world=4, **{"train.epochs": 40}).train(150).samples()
    run.writer.add(Exited(time=NOW, rank=2, pid=1002, code=-9))
    run.writer.commit()
    assert looks(run=run)


@at_usual_sizes
def test_a_job_that_waits_for_its_nodes(looks: Look, begin: Begin) -> None:
    run = begin("patient", devices=gpus(8), launcher="slurm", begun=False, **{"slurm.nodes": 4})
    run.writer.set_state(status="starting", job=PENDING)
    assert looks(run=run)


@at_usual_sizes
def test_a_job_that_was_queued_again(looks: Look, begin: Begin) -> None:
    changes = {"slurm.nodes": 4, "slurm.gpus_per_node": 8, "train.epochs": 40}
    run = begin("long", hosts=NODES, devices=gpus(8), launcher="slurm", **changes)
    run.train(290).samples()
    run.writer.add(Attempt(time=NOW, number=1, step=100, lost=123, reason="node-02 failed"))
    run.writer.commit()
    run.writer.set_state(job=RUNNING, attempts=1)
    assert looks(run=run)


PENDING = Job(
    time=NOW, id="4711", state="PENDING", reason="Resources", jobs_ahead=3, starts=NOW + 2 * HOUR
)
RUNNING = Job(time=NOW, id="4711", state="RUNNING", nodes=NODES, ends=NOW + 3 * HOUR, restarts=1)


# --- its plots and logs ---


@at_every_size
def test_a_plot_on_the_full_screen(looks: Look, live: RealisticRun) -> None:
    assert looks("f", "w", run=live)


@at_every_size
def test_a_cursor_reads_values_off_all_plots(looks: Look, live: RealisticRun) -> None:
    assert looks(*["left"] * 9, run=live)


@at_every_size
def test_a_search_in_a_log(looks: Look, failed: RealisticRun) -> None:
    assert looks("l", "slash", *"label", run=failed, until_seen="match ")


# --- many runs ---


@pytest.fixture
def many(begin: Begin) -> None:
    """Runs of every state, with everything that people note of them."""
    begin("baseline", ago=9 * DAY, world=1, strategy="single", launcher="inline").train(40).end()
    begin("", ago=8 * DAY).train(40).end()
    begin("ddp", ago=8 * DAY).train(40).end()
    lower = {"train.lr": 0.02, "precision": "bf16"}
    begin("a lower rate", ago=3 * DAY, **lower).train(40).end().note(tags=["digits", "lr"])
    begin("by hand", ago=2 * DAY, strategy="allreduce", world=4).train(20).end(
        "stopped", reason="stopped by a person after step 20"
    )
    begin("broken", ago=DAY, world=3).train(20).fail(1, "a label is out of range: 11 of 10 classes")
    begin("thesis", ago=5 * HOUR, launcher="spawn").train(40).end().note(
        pinned=True, tags=["thesis"], notes="the one of chapter 4; do not delete"
    )
    begin("resnet on eight", ago=2 * HOUR, devices=gpus(8), **{"model.name": "resnet18"}).train(30)
    begin("stopping", ago=4 * MINUTE).train(25).writer.set_state(status="stopping")
    begin("starting", ago=8).writer.set_state(status="starting", facts=None)
    begin("patient", ago=2, devices=gpus(2)).wait("GPU 0: run resnet on eight has it")


@at_one_size
def test_runs_of_slurm_among_others(looks: Look, begin: Begin) -> None:
    begin("here", ago=HOUR).train(40).end()
    how = {"hosts": NODES, "devices": gpus(8), "launcher": "slurm", "slurm.nodes": 4}
    running = begin("long", ago=HOUR / 2, **how, **{"train.epochs": 40}).train(290)
    running.writer.set_state(job=RUNNING)
    over = begin("too long", ago=HOUR / 3, **how).train(30)
    late = msgspec.structs.replace(RUNNING, state="TIMEOUT")
    over.end("failed", reason="job 4711 TIMEOUT: its time was up", job=late)
    waiting = begin("patient", ago=20, begun=False, **how)
    waiting.writer.set_state(status="starting", job=PENDING)
    assert looks()


@sizes(SMALL, LOW, MIDDLE, LARGE)
@pytest.mark.usefixtures("many")
def test_runs_of_all_states(looks: Look) -> None:
    assert looks("down", "down", "space")


@at_usual_sizes
def test_no_runs_yet(looks: Look) -> None:
    assert looks("escape", until_seen="No runs yet")


@at_usual_sizes
@pytest.mark.usefixtures("many")
def test_runs_are_filtered(looks: Look) -> None:
    assert looks("slash", *"ddp", until_seen="of 11 runs")


@at_every_size
def test_runs_in_groups_with_a_preview(looks: Look, begin: Begin) -> None:
    settings.save(settings.Settings(group_by="config:train.lr", tour_shown=True))
    for number, (rate, worst) in enumerate(((0.02, 3.1), (0.1, 2.3), (0.1, 2.5), (0.5, 4.0))):
        run = begin(f"lr-{rate}-{number}", ago=HOUR * (number + 1), **{"train.lr": rate})
        run.train(40, worst).end()
    run.note(pinned=True)
    assert looks("end", "k", "k", "k")


@at_every_size
def test_two_runs_compared(looks: Look, begin: Begin) -> None:
    begin("one", ago=HOUR).train(40).end()
    begin("two", ago=2 * HOUR, world=4, **{"train.lr": 0.02}).train(40, worst=3.1).end()
    assert looks("space", "space", "c")


@at_usual_sizes
def test_three_runs_compared(looks: Look, begin: Begin) -> None:
    for name, rate, worst in (("low", 0.02, 3.1), ("middle", 0.1, 2.3), ("high", 0.5, 4.0)):
        begin(name, ago=HOUR * worst, **{"train.lr": rate}).train(40, worst).end()
    assert looks("space", "space", "space", "c")


@at_every_size
def test_what_a_run_was_launched_with(looks: Look, begin: Begin) -> None:
    run = begin("done", ago=HOUR, **{"train.lr": 0.02}).train(40).end()
    run.note(tags=["digits"], notes="as in the thesis")
    record = run.record
    record.dir = Path("runs") / run.id
    assert looks(over=lambda: ConfigScreen(record))


# --- benches ---


@at_usual_sizes
def test_a_live_bench(looks: Look, runs_dir: Path) -> None:
    rates = {**RATES, "allreduce": 7900.0}
    assert looks(run=make_bench(runs_dir, rates, name="three ways", status="running", begun=1))


@at_usual_sizes
def test_a_stopped_bench_of_ten_that_are_unequal(looks: Look, runs_dir: Path) -> None:
    names = [f"ddp,train.batch_size={size},model.dropout=0.1" for size in range(64, 704, 64)]
    changed = {
        name: load_preset("ddp", {"train.batch_size": 64 * at}) for at, name in enumerate(names, 1)
    }
    rates = {name: 4000.0 + 300 * at for at, name in enumerate(names)}
    how = {"status": "stopped", "reason": "stopped on request"}
    assert looks(run=make_bench(runs_dir, rates, configs=changed, name="batches", **how))


@at_usual_sizes
def test_a_bench_in_which_one_has_failed(looks: Look, runs_dir: Path) -> None:
    rates = {**RATES, "allreduce": 7900.0}
    out = {"allreduce": "failed in round 4: ValueError: a label is out of range: 11 of 10 classes"}
    known = "every ratio is known within ±2 %"
    assert looks(run=make_bench(runs_dir, rates, name="three ways", excluded=out, reason=known))


@at_usual_sizes
def test_benches_among_runs(looks: Look, begin: Begin, runs_dir: Path) -> None:
    begin("baseline", ago=HOUR).train(40).end()
    make_bench(runs_dir, name="precisions", ago=HOUR / 2, reason="all 20 rounds were done")
    make_bench(runs_dir, name="three ways", status="running", begun=1)
    assert looks()


@at_usual_sizes
def test_a_bench_of_marked_presets_is_asked_for(looks: Look) -> None:
    assert looks("home", "space", "down", "down", "space", "c", until_seen="Start")


# --- dialogs ---


@at_every_size
def test_help_on_a_plot(looks: Look, live: RealisticRun) -> None:
    assert looks("question_mark", run=live)


@at_every_size
def test_the_palette_on_a_run(looks: Look, live: RealisticRun) -> None:
    assert looks("ctrl+p", run=live)


@at_usual_sizes
def test_the_line_for_commands(looks: Look, begin: Begin) -> None:
    begin("done", ago=HOUR).train(40).end()
    assert looks("colon", *"stop", "space", until_seen="latest")


@at_usual_sizes
def test_jump_mode_labels_panes_and_fields(looks: Look) -> None:
    assert looks("ctrl+o")


@at_usual_sizes
def test_a_stop_is_asked_for(looks: Look, live: RealisticRun) -> None:
    assert looks("s", run=live)


@at_usual_sizes
def test_a_deletion_is_asked_for(looks: Look, begin: Begin) -> None:
    begin("done", ago=HOUR).train(40).end()
    assert looks("d")


@at_usual_sizes
def test_an_error_of_the_app(looks: Look, begin: Begin) -> None:
    begin("done", ago=HOUR).train(40).end()
    assert looks(over=lambda: ErrorDialog(_mistake()))


def _mistake() -> Exception:
    try:
        exec(compile("\n\n1 / 0", "<a widget>", "exec"))
    except ZeroDivisionError as error:
        return error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
    raise AssertionError


# --- colours ---


@at_one_size
@in_every_theme
def test_a_run_in_other_colours(looks: Look, live: RealisticRun, theme: str) -> None:
    assert looks(run=live, theme=theme)


@at_one_size
@in_every_theme
@pytest.mark.usefixtures("many")
def test_runs_in_other_colours(looks: Look, theme: str) -> None:
    assert looks("down", "down", "space", theme=theme)
