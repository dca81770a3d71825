"""A run on a terminal, repainted in place: a progress bar, figures, and a line for each rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from distrain.runners import formatting
from distrain.runners.cli.run_lines import describe_event
from distrain.runners.cli.terminal import TextColumn, align_columns, progress_bar
from distrain.runners.config.plan import describe_setup
from distrain.runners.protocol.events import OTHER, PHASES, Evaluation
from distrain.runners.records import job_status
from distrain.runners.records.reader import Record
from distrain.runners.records.snapshot import Follower, RankNow, Snapshot
from distrain.runners.records.stall import PROGRESS_UNKNOWN

STATUS_STYLES = {
    "queued": "magenta",
    "completed": "green",
    "failed": "red",
    "stopped": "yellow",
    "stopping": "yellow",
}
PRINTED_EVENTS = ("notice", "warning", "attempt")  # these stay above the picture
OTHER_LINES = 11  # lines of the picture other than those of ranks
RANK_COLUMNS = (
    TextColumn("rank", right=True),
    TextColumn("node"),
    TextColumn("device"),
    TextColumn("phase"),
    TextColumn("step", right=True),
    TextColumn("loss", right=True),
    TextColumn("samples/s", right=True),
    TextColumn("data", right=True, drop_order=1),
    TextColumn("fwd", right=True, drop_order=3),
    TextColumn("bwd", right=True, drop_order=4),
    TextColumn("comm wait", right=True, drop_order=2),
    TextColumn("opt", right=True, drop_order=5),
    TextColumn("other", right=True, drop_order=5),
    TextColumn("CPU", right=True, drop_order=6),
    TextColumn("memory", right=True, drop_order=7),
    TextColumn("GPU", right=True, drop_order=1),
    TextColumn("GPU memory", right=True, drop_order=2),
)


class RunPicture:
    """Repaints the picture of a run; the last one stays on the screen."""

    interval_s = 0.25

    def __init__(self, record: Record, stream: TextIO) -> None:
        self._follower = Follower(record)
        self._console = Console(file=stream, highlight=False)
        self._area = Live(console=self._console, auto_refresh=False, vertical_overflow="crop")
        self._area.start()

    def update(self) -> bool:
        for event in self._follower.new_events():
            line = describe_event(event)
            if line and line[0] in PRINTED_EVENTS:
                self.message(": ".join(line))
        width, height = self._console.size
        max_ranks = max(1, height - OTHER_LINES)
        picture = render_run(self._follower, self._follower.snapshot(), width, max_ranks)
        self._area.update(picture, refresh=True)
        return self._follower.state.live

    def message(self, text: str) -> None:
        self._console.print(Text(text, "yellow"))

    def close(self) -> None:
        self._area.stop()


def render_run(
    follower: Follower, snapshot: Snapshot, width: int, max_ranks: int
) -> RenderableType:
    """Return the picture of a snapshot, for a terminal that is `width` columns wide."""
    parts: list[RenderableType] = [_render_title(follower, snapshot)]
    job = _describe_job(snapshot)
    if job:
        parts.append(_line(job, "yellow"))
    if stall := snapshot.stall:
        parts.append(_line(stall.describe(snapshot.time), "yellow"))
    if snapshot.state.status == "queued":
        return Group(*parts, *map(Text, snapshot.state.waiting_for[:max_ranks]))
    parts.append(_render_bar(snapshot, width))
    parts.append(_render_figures(snapshot, follower.record.config.train.epochs))
    if snapshot.last:
        parts.append(_render_evaluation("last evaluation", snapshot.last))
    if snapshot.best and snapshot.best != snapshot.last:
        parts.append(_render_evaluation("best checkpoint", snapshot.best))
    if snapshot.ranks:
        is_multi_node = len(snapshot.state.hosts) > 1
        parts += [Text(), _render_ranks(snapshot.ranks[:max_ranks], is_multi_node, width)]
    hidden = len(snapshot.ranks) - max_ranks
    if hidden > 0:
        parts.append(Text(f"… and {formatting.plural(hidden, 'more rank')}", "dim"))
    return Group(*parts)


def _line(text: str, style: str = "") -> Text:
    return Text(text, style, no_wrap=True, overflow="ellipsis")


def _render_title(follower: Follower, snapshot: Snapshot) -> Text:
    config = follower.record.config
    status = snapshot.state.current_status
    plan = snapshot.state.plan
    setup = [*describe_setup(config, plan), snapshot.state.workload(config)]
    return Text.assemble(
        (status, f"bold {STATUS_STYLES.get(status, 'cyan')}"),
        "  ",
        (snapshot.run_id, "bold"),
        "  ",
        (" · ".join(setup), "dim"),
        no_wrap=True,
        overflow="ellipsis",
    )


def _describe_job(snapshot: Snapshot) -> str:
    """Return the state of the scheduler's job, and how often the ranks were restarted."""
    state = snapshot.state
    texts = [
        job_status.describe_job_of(state, snapshot.time),
        job_status.describe_restarts(state.attempts, snapshot.repeated_steps),
    ]
    return "; ".join(text for text in texts if text)


def _render_bar(snapshot: Snapshot, width: int) -> Text:
    if snapshot.total_steps is None:
        phases = sorted({rank.info.phase for rank in snapshot.ranks}) or ["starting"]
        if phases == ["running"] and not snapshot.step:  # a script
            return Text(PROGRESS_UNKNOWN, "dim")
        steps = f"step {snapshot.step:,}  " if snapshot.state.facts else ""
        return Text(f"{steps}{' and '.join(phases)} …", "dim")
    text = (
        f"step {snapshot.step:,}/{snapshot.total_steps:,}  {formatting.percent(snapshot.fraction)}"
    )
    if snapshot.eta:
        text += f"  ETA {formatting.duration(snapshot.eta)}"
    style = STATUS_STYLES.get(snapshot.state.status, "cyan")
    length = max(8, min(40, width - len(text) - 2))
    done, remaining = progress_bar(snapshot.fraction or 0.0, length)
    return Text.assemble((done, style), (remaining, "bright_black"), f" {text}", no_wrap=True)


def _render_figures(snapshot: Snapshot, epochs: int) -> Text:
    if snapshot.state.facts is None:
        return Text()
    loss = formatting.figure(snapshot.loss)
    rate = snapshot.throughput if snapshot.samples_per_s else "warming up"
    has_last = snapshot.has_epochs and snapshot.total_steps is not None
    epoch = f"epoch {snapshot.epoch}/{epochs}  " if has_last else ""
    return _line(f"{epoch}loss {loss}  {rate}")


def _render_evaluation(title: str, event: Evaluation) -> Text:
    metrics = [formatting.metric(name, metric.value) for name, metric in event.metrics.items()]
    return Text.assemble(
        (f"{title}  ", "dim"),
        "  ".join(metrics),
        (f"  {event.position}", "dim"),
        no_wrap=True,
        overflow="ellipsis",
    )


def _render_ranks(ranks: Sequence[RankNow], is_multi_node: bool, width: int) -> Text:
    """Return the table of ranks, without the columns that have no value here."""
    rows = [_rank_cells(rank, is_multi_node) for rank in ranks]
    filled = [
        i for i in range(len(RANK_COLUMNS)) if any(row[i] != formatting.MISSING for row in rows)
    ]
    columns = [RANK_COLUMNS[i] for i in filled]
    header, *lines = align_columns(columns, [[row[i] for i in filled] for row in rows], width)
    text = Text("\n".join([header, *lines]), no_wrap=True)
    text.stylize("dim", 0, len(header))
    return text


def _rank_cells(rank: RankNow, is_multi_node: bool) -> list[str]:
    info = rank.info
    return [
        str(info.rank),
        info.host if is_multi_node and info.host else formatting.MISSING,
        info.device,
        info.phase,
        f"{info.step:,}",
        formatting.figure(rank.loss),
        formatting.round_rate(rank.samples_per_s),
        *(formatting.percent(rank.shares.get(name)) for name in (*PHASES, OTHER)),
        formatting.percent(None if rank.cpu is None else rank.cpu / 100),
        formatting.size(rank.rss),
        formatting.percent(None if rank.gpu is None else rank.gpu / 100),
        formatting.size(rank.gpu_memory),
    ]
