"""A run on a terminal: a progress bar, figures, and a line for every rank, painted in place."""

from __future__ import annotations

from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live as Area
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from runners import words
from runners.cli.lines import in_words
from runners.events import PHASES, Evaluation, Event
from runners.snapshot import Follower, RankNow, Snapshot

STYLES = {"completed": "green", "failed": "red", "stopped": "yellow", "stopping": "yellow"}
SHORT = {"forward": "fwd", "backward": "bwd", "optimizer": "opt"}
KEPT_KINDS = ("notice", "warning", "failure", "collateral")  # these stay above the picture
AROUND = 8  # lines of the picture beside those of ranks
SHARES_FROM, USAGE_FROM = 84, 110  # columns of the terminal from which these are shown


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
                self._print(f"{said[0]}: {said[1]}", "yellow" if said[0] != "failure" else "red")
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
    parts: list[RenderableType] = [_title(follower, now), _bar(now, width), _figures(now)]
    if now.last:
        parts.append(_evaluation("last evaluation", now.last))
    if now.best and now.best is not now.last:
        parts.append(_evaluation("best evaluation", now.best))
    if now.ranks:
        parts.append(_ranks(now.ranks[:most_ranks], width))
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


def _bar(now: Snapshot, width: int) -> RenderableType:
    if now.total_steps is None:
        phases = sorted({rank.info.phase for rank in now.ranks}) or ["starting"]
        return Text(f"{' and '.join(phases)} …", "dim")
    text = f"step {now.step:,}/{now.total_steps:,}  {words.percent(now.fraction)}"
    if now.eta is not None:
        text += f"  ETA {words.duration(now.eta)}"
    style = STYLES.get(now.state.status, "cyan")
    grid = Table.grid(padding=(0, 1))
    bar = ProgressBar(
        total=1.0,
        completed=now.fraction or 0.0,
        width=max(8, min(40, width - len(text) - 2)),
        complete_style=style,
        finished_style=style,
    )
    grid.add_row(bar, Text(text, no_wrap=True))
    return grid


def _figures(now: Snapshot) -> Text:
    if now.total_steps is None:
        return Text()
    rate = words.rate(now.samples_per_s) if now.samples_per_s else "warming up"
    text = f"loss {words.figure(now.loss)}  {rate}  epoch {now.epoch}"
    if now.state.reason:
        text += f"  {now.state.reason}"
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


def _ranks(ranks: list[RankNow], width: int) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for name in ("rank", "device", "doing", "step", "loss", "samples/s"):
        left = name in ("device", "doing")
        table.add_column(name, justify="left" if left else "right", no_wrap=True)
    shares = width >= SHARES_FROM
    usage = _usage_columns(ranks) if width >= USAGE_FROM else []
    for name in [*(SHORT.get(name, name) for name in PHASES)] if shares else []:
        table.add_column(name, justify="right", no_wrap=True)
    for name in usage:
        table.add_column(name, justify="right", no_wrap=True)
    for now in ranks:
        cells = [str(now.info.rank), now.info.device, now.info.phase, f"{now.info.step:,}"]
        cells += [words.figure(now.loss), words.round_rate(now.samples_per_s)]
        if shares:
            cells += [words.percent(now.shares.get(name)) for name in PHASES]
        cells += [_usage(now, name) for name in usage]
        table.add_row(*cells)
    return table


def _usage_columns(ranks: list[RankNow]) -> list[str]:
    """The columns that any rank has a figure for."""
    figures = {
        "CPU": any(now.cpu is not None for now in ranks),
        "memory": any(now.rss is not None for now in ranks),
        "GPU": any(now.gpu is not None for now in ranks),
        "GPU memory": any(now.gpu_memory is not None for now in ranks),
    }
    return [name for name, there in figures.items() if there]


def _usage(now: RankNow, name: str) -> str:
    match name:
        case "CPU":
            return words.percent(now.cpu / 100 if now.cpu is not None else None)
        case "GPU":
            return words.percent(now.gpu / 100 if now.gpu is not None else None)
        case "memory":
            return words.size(now.rss)
    return words.size(now.gpu_memory)
