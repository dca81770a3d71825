"""A run on several nodes: the data of its screen, and folding nodes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from textual.pilot import Pilot

from distrain.runners.protocol.events import GPUS_PER_HOST, Exited, GpuSample, HostSample
from distrain.tui.app import DistrainApp
from distrain.tui.data.chart_lines import MOST_GAUGES, MOST_SOLO
from distrain.tui.data.chart_source import ChartView
from distrain.tui.data.node_status import NodeStatus
from distrain.tui.data.run_feed import RunFeed
from distrain.tui.screens.run_screen import RunScreen
from distrain.tui.widgets.hardware_pane import HardwarePane
from distrain.tui.widgets.rank_table import RankTable
from tests.support.records import RunBuilder

from .app_driver import until
from .test_run_screen import shown, watch

Make = Callable[..., RunBuilder]
HOSTS = [f"node-{number}" for number in range(4)]


def nodes_of(run: RunBuilder) -> list[NodeStatus]:
    return RunFeed(run.record).read(ChartView()).nodes


def sampled(run: RunBuilder, time: float, **of_gpus: float) -> None:
    for host in range(len(run.hosts)):
        memory = {"memory_used": 1e9 * (host + 1), "memory_total": 8e9}
        run.writer.add(HostSample(time=time, host=host, cpu=10.0 * host, load=1.0, **memory))
        gpu = GPUS_PER_HOST * host
        uuid = f"GPU-{host}"
        run.writer.add(GpuSample(time=time, gpu=gpu, uuid=uuid, name="Fake", **of_gpus))
    run.writer.commit()


@pytest.mark.parametrize("hosts", [HOSTS, ["ubuntu"] * 4], ids=["names", "one name"])
def test_ranks_gpus_and_hosts_are_grouped_by_node(make: Make, hosts: list[str]) -> None:
    run = make(world=8, hosts=hosts).steps(5)
    sampled(run, run.now, utilisation=50.0)
    found = nodes_of(run)
    assert [node.name for node in found] == hosts
    assert [[rank.info.rank for rank in node.ranks] for node in found] == [
        [0, 1],
        [2, 3],
        [4, 5],
        [6, 7],
    ]
    assert [node.host.sample.cpu for node in found if node.host] == [0.0, 10.0, 20.0, 30.0]
    assert [gauge.sample.host for node in found for gauge in node.gpus] == [0, 1, 2, 3]
    assert not any(node.problem for node in found)


def test_a_node_with_a_dead_rank_a_lost_gpu_or_no_samples_is_in_trouble(make: Make) -> None:
    run = make(world=8, hosts=HOSTS).steps(5)
    sampled(run, run.now, utilisation=50.0)
    run.writer.add(Exited(time=run.now, rank=3, pid=1003, code=-9))
    later = HostSample(time=run.now + 20, cpu=1.0, memory_used=1.0, memory_total=2.0, load=0.0)
    run.writer.add(later)
    lost = GPUS_PER_HOST
    run.writer.add(GpuSample(time=run.now + 1, gpu=lost, uuid="GPU-1", name="Fake"))
    run.writer.commit()
    assert [node.problem for node in nodes_of(run)] == [
        "",
        "rank 3 failed, GPU 0 lost, no samples for 20.0 s",
        "no samples for 20.0 s",
        "no samples for 20.0 s",
    ]


def test_a_host_that_has_joined_has_no_rank_yet(make: Make) -> None:
    run = make(world=2, hosts=HOSTS[:2])
    run.writer.set_state(hosts=HOSTS[:3])
    found = nodes_of(run)
    assert [node.waiting_for for node in found] == ["", "", "no ranks yet"]
    assert not any(node.problem for node in found)


def test_a_plot_of_many_ranks_shows_their_mean_and_extremes(make: Make) -> None:
    run = make(world=MOST_SOLO + 4, hosts=HOSTS).steps(40)
    charts = RunFeed(run.record).read(ChartView(plots=("loss", "throughput"))).charts
    [loss], [rate] = charts["loss"].lines, charts["throughput"].lines
    assert loss.name == rate.name == "mean of ranks"
    assert loss.low is not None
    assert list(loss.low) == pytest.approx(list(loss.y))
    assert rate.y[-1] == pytest.approx(64 / run.step_s)


def test_many_gauges_are_shown_as_mean_minimum_and_maximum(make: Make) -> None:
    hosts = [f"node-{number}" for number in range(MOST_GAUGES + 1)]
    run = make(world=MOST_GAUGES + 1, hosts=hosts).steps(40)
    for second in range(1, 4):
        sampled(run, run.began + second)
    [line] = RunFeed(run.record).read(ChartView(plots=("host cpu",))).charts["host cpu"].lines
    assert line.name == "mean of all hosts"
    assert line.low is not None
    assert line.high is not None
    assert (line.low[-1], line.y[-1], line.high[-1]) == (0.0, 40.0, 80.0)


def test_plots_of_many_ranks_are_read_once_in_a_while_and_when_it_has_ended(make: Make) -> None:
    run = make(world=64, hosts=HOSTS).steps(10)
    feed = RunFeed(run.record)
    first = feed.read(ChartView(plots=("loss",)))
    run.steps(10)
    second = feed.read(ChartView(plots=("loss",)))
    assert second.snapshot.step == 20, "figures are always new"
    assert second.charts["loss"] is first.charts["loss"]
    assert feed.has_changed(), "the plots are owed"
    run.end()
    assert feed.read(ChartView(plots=("loss",))).charts["loss"].lines[0].x[-1] == 20


def test_nodes_are_folded_where_their_ranks_do_not_fit_and_unfold_by_a_key(make: Make) -> None:
    run = make(world=32, hosts=HOSTS).steps(25)

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        text = shown(app)
        assert "32 ranks on 4 nodes" in text
        assert all(f"▸ {host}" in text for host in HOSTS)
        assert "● 16" not in text
        screen.query_one(RankTable).focus()
        await pilot.press("down", "down", "space")
        await until(pilot, lambda: "▾ node-2" in shown(app), "unfolded")
        assert "● 16" in shown(app)
        assert "▸ node-1" in shown(app)
        await pilot.press("enter")
        await until(pilot, lambda: "▸ node-2" in shown(app), "folded again")
        assert "● 16" not in shown(app)

    watch(run, scenario)


def test_both_tables_unfold_and_fold_together(make: Make) -> None:
    run = make(world=32, hosts=HOSTS).steps(25)
    sampled(run, run.now, utilisation=50.0)

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        ranks, hardware = screen.query_one(RankTable), screen.query_one(HardwarePane)
        ranks.focus()
        await pilot.press("a")
        await until(pilot, lambda: len(ranks.lines) == 1 + 4 + 32, "all ranks")
        assert len(hardware.lines) == 1 + 4 + 4
        await pilot.press("a")
        await until(pilot, lambda: len(ranks.lines) == 1 + 4, "none")
        assert len(hardware.lines) == 1 + 4

    watch(run, scenario)


def test_nodes_whose_ranks_have_not_started_are_not_in_trouble(make: Make) -> None:
    run = make(world=2, hosts=HOSTS[:2], begun=False)

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        text = shown(app)
        assert "no ranks yet on 2 nodes" in text
        assert "with problems" not in text

    watch(run, scenario)


def test_a_node_in_trouble_comes_first_and_is_named(make: Make) -> None:
    run = make(world=32, hosts=HOSTS).steps(25)
    run.writer.add(Exited(time=run.now, rank=20, pid=1020, code=1))
    run.writer.commit()

    async def scenario(pilot: Pilot[None], app: DistrainApp, screen: RunScreen) -> None:
        text = shown(app)
        assert "1 node with problems" in text
        assert "rank 20 failed" in text
        assert text.index("node-2") < text.index("node-0") < text.index("node-1")

    watch(run, scenario)
