"""`bench`: ways of training measured beside each other, and looking on while that is done."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from msgspec.structs import asdict

from runners import bench, words
from runners.bench.definition import Definition, Target
from runners.bench.duration import left
from runners.bench.state import BenchState
from runners.bench.wording import at, outlook, to_go
from runners.cli.commands import share
from runners.cli.ending import CODES
from runners.cli.signals import Signals
from runners.cli.starting import changes
from runners.cli.text import Column, aligned, is_terminal, painted, print_json, say
from runners.comparison import Comparison, verdicts, wording
from runners.errors import ConfigError, DistrainError

TICK_S = 0.1
LOOK_S = 1.0  # between two looks at what was measured: the runs need the cores
COLUMNS = (
    Column("contestant"),
    Column("rounds", right=True, spare=2),
    Column("samples/s", right=True),
    Column("95 % interval", spare=1),
    Column("ratio", right=True),
    Column("95 % interval"),
)


def run(arguments: Namespace) -> int:
    """Begin a bench of presets, or of the definition in a file, and follow it."""
    definition = _definition(arguments)
    plans = bench.plans(definition)
    _announce(definition, plans)
    return started(
        arguments,
        lambda: bench.start(
            definition,
            name=arguments.name or "",
            runs_dir=arguments.runs_dir,
            queue=arguments.queue,
        ),
    )


def started(arguments: Namespace, begin: Callable[[], bench.Bench]) -> int:
    """Follow a bench that begins now, unless it is to be left alone."""
    with Signals() as signals:
        begun = begin()
        if not arguments.detach:
            return follow(begun, signals, stops=True, as_json=arguments.json)
    if signals.interrupts:
        begun.stop()
        say(f"stopped {begun.id} before it was left alone")
        return CODES["stopped"]
    if arguments.json:
        print_json({"bench_id": begun.id, "dir": str(begun.dir)})
    else:
        print(begun.id)
    return 0


def follow(
    what: bench.Bench,
    signals: Signals,
    *,
    stream: TextIO = sys.stderr,
    stops: bool = False,
    as_json: bool = False,
) -> int:
    """Show a bench until it ends and give its exit code; with `stops`, Ctrl-C stops it."""
    view = Painted(stream) if is_terminal(stream) else Lines(stream)
    asked, due = 0, 0.0
    try:
        while (state := what.state).live:
            if signals.ended_by is not None:
                return 128 + signals.ended_by
            if signals.interrupts > asked:
                asked += 1
                if not stops or asked > 1:
                    say(f"leaving; the bench goes on: distrain watch {what.id}")
                    return 130 if stops else 0
                say("stopping: its present run is ended; Ctrl-C again only leaves")
                with suppress(DistrainError):  # it has ended meanwhile
                    what.stop()
            if time.monotonic() >= due:
                view.show(what, state)
                due = time.monotonic() + LOOK_S
            time.sleep(TICK_S)
        view.show(what, state)
    finally:
        view.close()
    return _ended(what, as_json)


def _definition(arguments: Namespace) -> Definition:
    given: dict[str, Any] = {
        "repeats": arguments.repeats,
        "seconds": arguments.seconds,
        "precision": arguments.precision,
        "baseline": arguments.baseline,
        "unequal": arguments.unequal or None,
        "seed": arguments.seed,
    }
    rules = {key: value for key, value in given.items() if value is not None}
    target = _target(arguments.target)
    if len(arguments.presets) == 1 and (saved := _saved(arguments.presets[0])):
        changed = saved.with_changes(changes(arguments))
        return bench.make(changed.configs, asdict(saved.rules) | rules, target or saved.target)
    return bench.make(bench.contestants(arguments.presets, changes(arguments)), rules, target)


def _saved(path: str) -> Definition | None:
    """The definition in a file that has contestants; None where it is something else."""
    try:
        text = Path(path).read_text("utf-8") if path.endswith(".toml") else ""
    except (OSError, UnicodeDecodeError):
        return None
    return Definition.from_toml(text) if "[contestants" in text else None


def _target(text: str | None) -> Target | None:
    """A metric and its value, as "top1=95%" or "loss=0.1"; raises ConfigError."""
    if text is None:
        return None
    metric, _, value = text.partition("=")
    try:
        return Target(metric=metric.strip(), value=share(value))
    except ValueError:
        message = f"--target wants METRIC=VALUE, e.g. --target top1=95%, not {text!r}"
        raise ConfigError(message) from None


def _announce(definition: Definition, plans: dict[str, Any]) -> None:
    """What is equal, what differs, and how long it will take."""
    equal, differences = definition.settings(plans)
    say(f"equal: {wording.settings(equal)}", "dim")
    for each in differences:
        text = f"{'differs' if each.fair else 'UNEQUAL'}: {wording.difference(each, list(plans))}"
        say(text, "dim" if each.fair else "warning")
    say(outlook(definition))


def _ended(what: bench.Bench, as_json: bool) -> int:
    from runners.cli import comparing  # numpy and tables, which a bench that begins can wait for

    state, comparison = what.state, what.comparison()
    if as_json:
        comparing.show(comparison, "json", None)
    else:
        unequal = verdicts.unequal(comparison)
        said = [painted(unequal, "warning")] * bool(unequal)
        print(*said, *standing(comparison), *comparison.verdicts, sep="\n", flush=True)
        for text in comparison.warnings:
            say(f"note: {text}", "warning")
    say(f"{painted(state.status, state.status, sys.stderr)}: {state.reason}")
    say(f"distrain compare {what.id} shows more", "dim")
    return CODES.get(state.status, 1)


def standing(comparison: Comparison, room: int | None = None) -> list[str]:
    """The contestants beside each other, a line each, under a head."""
    rows = [wording.cells(each, comparison) for each in comparison.contestants]
    return aligned(COLUMNS, rows, room)


def headline(what: bench.Bench, state: BenchState) -> str:
    """Which round and run it is at, and how much is left."""
    if not state.live or state.now is None:
        return f"{state.status}: {state.reason}" if state.reason else state.status
    expected = left(what.definition, state)
    return f"{state.status}  {at(what.definition, state)}  {to_go(expected)}"


class Lines:
    """For pipes: a line for each measurement."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._told = stream, 0

    def show(self, what: bench.Bench, state: BenchState) -> None:
        fresh, self._told = state.measurements[self._told :], len(state.measurements)
        for each in fresh:
            print(
                f"round {each.round}  {each.contestant}  {words.rate(each.rate)} over "
                f"{words.duration(each.seconds)} after a warm-up of "
                f"{words.duration(each.warmup_s)}",
                file=self._stream,
                flush=True,
            )

    def close(self) -> None: ...


class Painted:
    """For terminals: the standing, painted in place."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=stream, highlight=False)
        self._area = Live(console=self._console, auto_refresh=False, vertical_overflow="crop")
        self._area.start()

    def show(self, what: bench.Bench, state: BenchState) -> None:
        from rich.text import Text

        lines = [headline(what, state)]
        if state.measurements:
            lines += standing(what.comparison(), self._console.width)
        self._area.update(Text("\n".join(lines), no_wrap=True, overflow="ellipsis"), refresh=True)

    def close(self) -> None:
        self._area.stop()
