"""A run on a terminal: a progress bar, figures, and a line for every rank, painted in place."""

from __future__ import annotations

from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live as Area
from rich.text import Text

from runners import jobs, words
from runners.cli.lines import in_words
from runners.cli.text import Column, aligned, bar
from runners.events import OTHER, PHASES, Evaluation, Event
from runners.snapshot import Follower, RankNow, Snapshot

STYLES = {
    "queued": "magenta",
    "completed": "green",
    "failed": "red",
    "stopped": "yellow",
    "stopping": "yellow",
}
KEPT_KINDS = ("notice", "warning", "attempt")  # these stay above the picture
AROUND = 11  # lines of the picture beside those of ranks
COLUMNS = (
    Column("rank", right=True),
    Column("node"),
    Column("device"),
    Column("doing"),
    Column("step", right=True),
    Column("loss", right=True),
    Column("samples/s", right=True),
    Column("data", right=True, spare=1),
    Column("fwd", right=True, spare=3),
    Column("bwd", right=True, spare=4),
    Column("comm", right=True, spare=2),
    Column("opt", right=True, spare=5),
    Column("other", right=True, spare=5),
    Column("CPU", right=True, spare=6),
    Column("memory", right=True, spare=7),
    Column("GPU", right=True, spare=1),
    Column("GPU memory", right=True, spare=2),
)


class Live:
    """Paints when told to; its last picture stays on the screen."""

    def __init__(self, stream: TextIO) -> None:
        self.console = Console(file=stream, highlight=False)
        self._area = Area(console=self.console, auto_refresh=False, vertical_overflow="crop")
        self._area.start()

    def show(self, follower: Follower, news: list[Event]) -> None:
        for event in news:
            said = in_words(event)
            if said and said[0] in KEPT_KINDS:
                self._print(f"{said[0]}: {said[1]}", "yellow")
        width, height = self.console.size
        self._area.update(
            picture(follower, follower.snapshot(), width, max(1, height - AROUND)), refresh=True
        )

    def say(self, text: str) -> None:
        self._print(text, "yellow")

    def close(self) -> None:
        self._area.stop()

    def _print(self, text: str, style: str) -> None:
        self.console.print(Text(text, style))


def picture(follower: Follower, now: Snapshot, width: int, most_ranks: int) -> RenderableType:
    """Everything about one moment, for a terminal so many columns wide."""
    epochs = follower.record.config.train.epochs
    parts: list[RenderableType] = [_title(follower, now)]
    if told := _scheduled(now):
        parts.append(Text(told, "yellow", no_wrap=True, overflow="ellipsis"))
    if now.state.status == "queued":
        return Group(*parts, *map(Text, now.state.waiting_for[:most_ranks]))
    parts += [_bar(now, width), _figures(now, epochs)]
    if now.last:
        parts.append(_evaluation("last evaluation", now.last))
    if now.best and now.best is not now.last:
        parts.append(_evaluation("best evaluation", now.best))
    if now.ranks:
        several = len(now.state.hosts) > 1
        parts += [Text(), _ranks(now.ranks[:most_ranks], several, width)]
    if len(now.ranks) > most_ranks:
        parts.append(Text(f"… and {words.things(len(now.ranks) - most_ranks, 'rank')}", "dim"))
    return Group(*parts)


def _title(follower: Follower, now: Snapshot) -> Text:
    config, status = follower.record.config, now.state.status
    precision = now.state.plan.precision if now.state.plan else config.precision
    return Text.assemble(
        (status, f"bold {STYLES.get(status, 'cyan')}"),
        "  ",
        (now.run_id, "bold"),
        "  ",
        (
            " · ".join(
                [
                    config.strategy,
                    config.launcher,
                    precision,
                    f"{config.model.name} on {config.data.name}",
                ]
            ),
            "dim",
        ),
        no_wrap=True,
        overflow="ellipsis",
    )


def _scheduled(now: Snapshot) -> str:
    """What the scheduler says, and how often the ranks were started anew."""
    state = now.state
    return "; ".join(
        filter(None, (jobs.of_run(state, now.time), jobs.anew(state.attempts, now.done_again)))
    )


def _bar(now: Snapshot, width: int) -> Text:
    if now.total_steps is None:
        phases = sorted({rank.info.phase for rank in now.ranks}) or ["starting"]
        return Text(f"{' and '.join(phases)} …", "dim")
    text = f"step {now.step:,}/{now.total_steps:,}  {words.percent(now.fraction)}"
    if now.eta:
        text += f"  ETA {words.duration(now.eta)}"
    style = STYLES.get(now.state.status, "cyan")
    length = max(8, min(40, width - len(text) - 2))
    done, rest = bar(now.fraction or 0.0, length)
    return Text.assemble((done, style), (rest, "bright_black"), f" {text}", no_wrap=True)


def _figures(now: Snapshot, epochs: int) -> Text:
    if now.total_steps is None:
        return Text()
    rate = words.rate(now.samples_per_s) if now.samples_per_s else "warming up"
    text = f"epoch {now.epoch}/{epochs}  loss {words.figure(now.loss)}  {rate}"
    return Text(text, no_wrap=True, overflow="ellipsis")


def _evaluation(title: str, event: Evaluation) -> Text:
    figures = "  ".join(words.metric(name, each.value) for name, each in event.metrics.items())
    return Text.assemble(
        (f"{title}  ", "dim"),
        figures,
        (f"  epoch {event.epoch}, step {event.step:,}", "dim"),
        no_wrap=True,
        overflow="ellipsis",
    )


def _ranks(ranks: list[RankNow], several: bool, width: int) -> Text:
    """The table of ranks, with their nodes where these are `several`."""
    rows = [_cells(now, now.info.host if several else "") for now in ranks]
    # What nobody measures here (no GPU, no psutil) is not shown as a column of dashes.
    there = [i for i in range(len(COLUMNS)) if any(row[i] != words.MISSING for row in rows)]
    columns, rows = [COLUMNS[i] for i in there], [[row[i] for i in there] for row in rows]
    head, *lines = aligned(columns, rows, width)
    text = Text("\n".join([head, *lines]), no_wrap=True)
    text.stylize("dim", 0, len(head))
    return text


def _cells(now: RankNow, node: str) -> list[str]:
    info = now.info
    return [
        str(info.rank),
        node or words.MISSING,
        info.device,
        info.phase,
        f"{info.step:,}",
        words.figure(now.loss),
        words.round_rate(now.samples_per_s),
        *(words.percent(now.shares.get(name)) for name in (*PHASES, OTHER)),
        words.percent(None if now.cpu is None else now.cpu / 100),
        words.size(now.rss),
        words.percent(None if now.gpu is None else now.gpu / 100),
        words.size(now.gpu_memory),
    ]
