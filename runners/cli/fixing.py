"""`doctor --fix horovod`: what is being done, live on a terminal, as plain lines elsewhere."""

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

from runners import words
from runners.cli.text import bar, is_terminal, print_json
from runners.horovod.install import Installation, Progress

BAR = 30
PER_S = 8.0
TOLD_SHARE = 0.1  # of a stage, between two plain lines


def fix(arguments: Namespace) -> int:
    """Build and install Horovod; what was built is the last line, on stdout."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # no compiler goes on without us
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup
            signal.signal(number, signal.default_int_handler)
    with _told() as told:
        said = Installation(told).run()
    if arguments.json:
        print_json({"horovod": said})
    else:
        print(said)
    return 0


@contextmanager
def _told() -> Iterator[Callable[[Progress], None]]:
    if not is_terminal(sys.stderr):
        yield Lines().show
        return
    console = Console(file=sys.stderr, highlight=False)
    with Live(console=console, refresh_per_second=PER_S, transient=True) as area:
        yield lambda now: area.update(picture(now, console.width))


def picture(now: Progress, width: int) -> Text:
    """The stage with a bar, and below it what was printed last."""
    head = Text(f"{now.stage} … ", "bold")
    if now.share is not None:
        done, rest = bar(now.share, BAR)
        head.append(done, "cyan").append(rest, "bright_black").append(f"  {now.share:.0%}")
    line = Text(words.line(now.line), "dim", no_wrap=True, overflow="ellipsis")
    line.truncate(width)
    return Text("\n").join([head, line])


class Lines:
    """Says each stage once, and each tenth of one."""

    def __init__(self) -> None:
        self._told = ("", 0)

    def show(self, now: Progress) -> None:
        part = int((now.share or 0.0) / TOLD_SHARE)
        if (now.stage, part) == self._told:
            return
        self._told = now.stage, part
        share = f"  {now.share:.0%}" if now.share is not None else ""
        print(f"{words.clock(time.time())}  {now.stage}{share}", file=sys.stderr, flush=True)
