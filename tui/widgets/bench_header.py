"""The header of a bench: its name and status, its progress, and the run that it measures now."""

from __future__ import annotations

from rich.text import Text

from distrain.runners import formatting
from distrain.runners.bench import Definition
from distrain.runners.bench.progress import describe_remaining, format_rounds
from distrain.tui.data.bench_feed import BenchFrame
from distrain.tui.widgets.colours import STATUSES
from distrain.tui.widgets.text_pane import TextLines, problem_lines

UNEQUAL = "UNEQUAL comparison"


class BenchHeader(TextLines):
    """Three lines about a bench."""

    DEFAULT_CSS = """
    BenchHeader { height: 3; padding: 0 1; }
    """

    def show(self, frame: BenchFrame, definition: Definition, hint: str = "") -> None:
        self.put(header(frame, definition, self.size.width - 2, hint))

    def show_problem(self, bench_id: str, problem: str) -> None:
        """Show why the record cannot be read, in place of figures that no longer hold."""
        self.put(problem_lines(bench_id, problem))


def header(frame: BenchFrame, definition: Definition, width: int, hint: str = "") -> list[Text]:
    """Return the title, the progress, and the current run or the reason for the end."""
    lines = [_title(frame), _progress(frame, definition, width), _current_run(frame)]
    if hint and lines[0].cell_len + 2 + len(hint) <= width:
        lines[0].append(hint.rjust(width - lines[0].cell_len), "dim")
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _title(frame: BenchFrame) -> Text:
    state = frame.state
    dot, colour = STATUSES[frame.status]
    line = Text.assemble((f"{dot} {frame.status}", f"bold {colour}"), "  ", no_wrap=True)
    if frame.comparison.unequal:
        line.append(UNEQUAL, "bold yellow").append("  ")
    line.append(frame.comparison.title, "bold")
    if frame.comparison.title != state.bench_id:
        line.append(f"  {state.bench_id}")
    return line.append(
        f"  bench of {formatting.plural(len(frame.comparison.candidates), 'candidate')}"
    )


def _progress(frame: BenchFrame, definition: Definition, width: int) -> Text:
    """Return the number of completed rounds, a bar and the remaining time or the duration."""
    state = frame.state
    rules = definition.rules
    seconds = sum(each.duration_s for each in state.measurements)
    done = f"{formatting.plural(state.rounds, 'round')} of {format_rounds(rules, '–')} "
    left = (
        f" {describe_remaining(frame.left)}"
        if frame.left
        else f" duration {formatting.duration(seconds)}"
    )
    room = max(min(width - len(done) - len(left), 60), 0)
    filled = round(room * min(state.rounds / rules.repeats, 1))
    line = Text(done, no_wrap=True).append("━" * filled, STATUSES[state.status][1])
    return line.append("─" * (room - filled), "dim").append(left)


def _current_run(frame: BenchFrame) -> Text:
    state = frame.state
    now = frame.state.current
    if not state.live or now is None:
        reason = formatting.single_line(state.reason or state.status)
        return Text(reason, "red" if state.status == "failed" else "dim", no_wrap=True)
    since = formatting.age(now.began, frame.time)
    line = Text(f"round {now.round}, run {now.number} of {len(now.order)}: ", no_wrap=True)
    line.append(now.candidate, "bold")
    if frame.waiting_for:
        return line.append(f" is queued: {frame.waiting_for}", STATUSES["queued"][1])
    if frame.obstacle:
        return line.append(f"  {frame.obstacle}", STATUSES["stalled"][1])
    return line.append(f" running for {since}" if now.run_id else " is starting")
