"""`doctor --fix horovod`: install Horovod, with live progress on a terminal, else plain lines."""

from __future__ import annotations

import signal
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.text import Text

from distrain.runners import formatting
from distrain.runners.cli.terminal import is_terminal, print_json, progress_bar
from distrain.runners.horovod.install import Installation, Progress

BAR_WIDTH = 30
REPAINTS_PER_S = 8.0
REPORTED_SHARE = 0.1  # of a stage, between two plain lines


def install_horovod(arguments: Namespace) -> int:
    """Build and install Horovod, and print the result to stdout."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # so that no compiler survives this process
        if signal.getsignal(number) != signal.SIG_IGN:  # under nohup, SIGHUP stays ignored
            signal.signal(number, signal.default_int_handler)
    with _progress_reporter() as report_progress:
        result = Installation(report_progress).run()
    if arguments.json:
        print_json({"horovod": result})
    else:
        print(result)
    return 0


@contextmanager
def _progress_reporter() -> Iterator[Callable[[Progress], None]]:
    if not is_terminal(sys.stderr):
        yield InstallLines().show
        return
    console = Console(file=sys.stderr, highlight=False)
    with Live(console=console, refresh_per_second=REPAINTS_PER_S, transient=True) as area:
        yield lambda progress: area.update(render_progress(progress, console.width))


def render_progress(progress: Progress, width: int) -> Text:
    """Return the stage with a bar, and below it the line that was printed last."""
    head = Text(f"{progress.stage} … ", "bold")
    if progress.share is not None:
        done, remaining = progress_bar(progress.share, BAR_WIDTH)
        head.append(done, "cyan").append(remaining, "bright_black")
        head.append(f"  {progress.share:.0%}")
    line = Text(formatting.single_line(progress.line), "dim", no_wrap=True, overflow="ellipsis")
    line.truncate(width)
    return Text("\n").join([head, line])


class InstallLines:
    """Prints a line for each stage and for each tenth of it."""

    def __init__(self) -> None:
        self._printed = ("", 0)  # stage and tenth

    def show(self, progress: Progress) -> None:
        tenth = int((progress.share or 0.0) / REPORTED_SHARE)
        if (progress.stage, tenth) == self._printed:
            return
        self._printed = (progress.stage, tenth)
        share = "" if progress.share is None else f"  {progress.share:.0%}"
        line = f"{formatting.time_of_day(time.time())}  {progress.stage}{share}"
        print(line, file=sys.stderr, flush=True)
