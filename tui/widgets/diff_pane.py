"""Beside the curves of several runs: how each did, and what their configs differ in."""

from __future__ import annotations

from collections.abc import Sequence

from rich.style import Style
from rich.text import Text

from runners import words
from runners.comparison import verdicts
from tui.data.comparison import Compared, Comparison, Setting, settings
from tui.keymap import keyed
from tui.widgets.columns import Column, aligned, fitting, taken
from tui.widgets.inks import STATUSES, UNKNOWN, legible
from tui.widgets.text_pane import TextPane, wrapped

KEY, LEAST = 24, 9  # cells of a key at most, of a value at least
UNSET = "–"


class RunSummaries(TextPane):
    """A line for each run: the legend of all plots and the figures that sum it up."""

    HELP = "What each run came to; its colour and mark are those of its line in every plot."
    DEFAULT_CSS = "RunSummaries { border: none; height: auto; &:focus { border: none; } }"
    fixed = 1

    def show(self, found: Comparison, hint: str = "") -> None:
        runs = found.runs
        inks = [legible(run.mark.colour, self.background_colors[1]) for run in runs]
        self.put([*summaries(runs, inks, self.width, hint), *sentences(found, self.width)])


class DiffPane(TextPane):
    """`show` gives it the runs; `everything` shows keys that are alike as well."""

    HELP = (
        "The settings that differ between the runs; {compare.differences} shows all. What stands "
        "after “ran on” follows from the machine, not from the config."
    )

    def show(self, runs: Sequence[Compared], everything: bool = False) -> None:
        found = settings([run.setting for run in runs])
        shown = [each for each in found if everything or each.differs]
        differing = sum(each.differs for each in found)
        hint = keyed(f"{{compare.differences}}: {'less' if everything else 'all'}", self.app)
        self.border_subtitle = f"{differing} of {len(found)} differ · {hint}"
        inks = [legible(run.mark.colour, self.background_colors[1]) for run in runs]
        across = fits(len(runs), self.width)
        self.fixed = 1 if across else 0
        if not shown:
            self.put([Text("The configs are the same.", "dim")])
        else:
            self.put((beside if across else below)(runs, shown, inks, self.width))


def fits(runs: int, width: int) -> bool:
    """Whether each run has a column of its own."""
    return width - KEY >= runs * (LEAST + 1)


def beside(
    runs: Sequence[Compared], found: Sequence[Setting], inks: Sequence[Style], width: int
) -> list[Text]:
    """A column for each run."""
    key = min(KEY, max(len(each.key) for each in found))
    room = min((width - key) // len(runs) - 1, 32)
    head = Text(" " * key, no_wrap=True)
    for run, ink in zip(runs, inks, strict=True):
        head.append(" ").append_text(_cell(f"{run.mark.shape} {run.name}", room, ink))
    lines = [head]
    for each in found:
        line = _cell(each.key, key, Style(dim=True))
        for value in each.values:
            style = Style(dim=value is None or not each.differs)
            line.append(" ").append_text(_cell(value or UNSET, room, style))
        lines.append(line)
    return lines


def below(
    runs: Sequence[Compared], found: Sequence[Setting], inks: Sequence[Style], width: int
) -> list[Text]:
    """A line for each value with the runs that have it, where there is no room for columns."""
    lines = []
    for each in found:
        if not each.differs:
            lines.append(_cell(f"{each.key}  {each.values[0]}", width, Style(dim=True)))
            continue
        lines.append(_cell(each.key, width, Style(bold=True)))
        for value in dict.fromkeys(each.values):
            line = Text(" ", no_wrap=True)
            for run, own, ink in zip(runs, each.values, inks, strict=True):
                line.append(run.mark.shape if own == value else " ", ink)
            line.append(f" {value or UNSET}")
            line.truncate(width, overflow="ellipsis")
            lines.append(line)
    return lines


COLUMNS = (
    Column("status", 11, 2),
    Column("samples/s", 9),
    Column("ratio", 7, 1),
    Column("95 % interval", 13, 5),
    Column("metric", 14),
    Column("took", 11),
    Column("ranks", 5, 3),
    Column("devices", 16, 4),
)
LEAST_NAME = 16  # cells


def summaries(
    runs: Sequence[Compared], inks: Sequence[Style], width: int, hint: str = ""
) -> list[Text]:
    """The head and a line for each run, as wide as there is room."""
    columns = fitting(COLUMNS, width - LEAST_NAME)
    room = max(width - taken(columns), 8)
    longest = max(len(run.name) for run in runs) + 4
    name = min(room, max(longest, len(hint) + 8))
    wanted = max(len(" ".join(run.row.devices)) for run in runs)
    if columns[-1].name == "devices":
        devices = columns[-1].width
        wide = max(devices, min(devices + room - name, wanted))
        columns[-1] = columns[-1]._replace(width=wide)
    head = _cell(f"  run   {hint}", name, Style(dim=True))
    for column in columns:
        head.append(" ").append_text(aligned(Text(column.name, "dim"), column))
    lines = [head]
    for run, ink in zip(runs, inks, strict=True):
        line, texts = _cell(f"{run.mark.shape} {run.name}", name, ink), _figures(run)
        for column in columns:
            line.append(" ").append_text(aligned(texts[column.name], column))
        lines.append(line)
    return lines


def sentences(found: Comparison, width: int) -> list[Text]:
    """The verdicts, below what makes them worth little."""
    told = [(found.unequal, "bold yellow")] * bool(found.unequal)
    told += [(verdict, "") for verdict in found.verdicts]
    return [line for text, style in told for line in wrapped(text, style, width)]


def _figures(run: Compared) -> dict[str, Text]:
    row, ratio = run.row, run.ratio
    done = f" {100 * row.fraction:.0f} %" if row.live and row.fraction is not None else ""
    value = words.metric(row.metric, row.value) if row.metric else words.MISSING
    return {
        "status": Text(done.strip() or row.status, STATUSES.get(row.status, UNKNOWN)[1]),
        "samples/s": Text(words.round_rate(run.rate or row.samples_per_s)),
        "ratio": Text(verdicts.times(ratio.value) if ratio else words.MISSING),
        "95 % interval": Text(verdicts.span(ratio) if ratio else words.MISSING),
        "metric": Text(value),
        "took": Text(words.duration(row.seconds)),
        "ranks": Text(words.count(row.ranks)),
        "devices": Text(" ".join(row.devices) or words.MISSING, "dim"),
    }


def _cell(text: str, width: int, style: Style) -> Text:
    cell = Text(text, style, no_wrap=True)
    cell.truncate(width, overflow="ellipsis", pad=True)
    return Text.assemble(cell)
