"""Measure the response times of the terminal app and its cost next to a training.

Targets: a table of 300 runs is painted in 0.5 s and a run of 10 million step rows opens in 0.5 s.
Watching 8 ranks with 100 steps per second takes at most 10 % of a core, watching 256 ranks on 32
nodes too, an ended run 1 %. A key is answered within 50 ms (95 of 100). The app uses at most 150 MB
and never loads torch.

The app runs in a pseudo-terminal (`terminal.py`) and shows simulated runs (`simulation.py`).
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

import msgspec

from benchmarks.burst import burst
from benchmarks.open import build
from benchmarks.report import Table, median_interval, publish
from benchmarks.simulation import STEPS, TICK_S, ended_runs, simulated
from benchmarks.terminal import Terminal
from distrain.runners.records.reader import Record

SETTLED_S = 1.0  # after the first paint, before a key is pressed
HOLD_S = 10.0  # until memory is read again
CURVE = re.compile(rb"\xe2(?:\xa0[\x81-\xbf]|[\xa1-\xa3][\x80-\xbf])")  # U+2801 to U+28FF
PAINTED = b"\x1b[?2026l"  # ends a repaint where the terminal can show it at once

KEYS = {"right": b"\x1b[C", "x": b"x", "tab": b"\t"}
QUIET_S = 0.015  # without output before a key, so that the next output answers it
ANSWER_S = 1.0  # after which a key counts as not answered
ENTER, NEW, LEAVE = b"\r", b"n", b"\x11"

HEAVY = ("torch", "torchvision", "horovod", "numpy")
BARE = """
from textual.app import App
from textual.widgets import Static
class Bare(App):
    def compose(self):
        yield Static("nothing else")
Bare().run()
"""
LISTED = """
import atexit, json, pathlib, sys
listing = pathlib.Path(sys.argv.pop(1))
atexit.register(lambda: listing.write_text(json.dumps(sorted(sys.modules))))
from distrain.tui.command import main
main()
"""


def app(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "distrain.tui", *map(str, arguments)]


class Claim(NamedTuple):
    what: str
    found: float
    most: float
    unit: str


Found = tuple[list[Table], list[Claim]]


def _short(run_id: str) -> bytes:
    """Return the part of an id that every list shows and no other run has."""
    return run_id.split("-", 2)[2].encode()


def first_paint(runs: Path, settings: Path, options: argparse.Namespace) -> Found:
    """Measure the time until the table shows its newest run, alternating with a minimal app."""
    newest = ended_runs(runs, options.runs)
    signs = {
        "table of runs": (app("--runs-dir", runs), _short(newest)),
        "a bare Textual app": ([sys.executable, "-c", BARE], b"nothing else"),
    }
    seconds: dict[str, list[float]] = {name: [] for name in signs}
    order = list(signs)
    for turn in range(-1, options.rounds):  # the first one compiles, and is not counted
        for name in order:
            with Terminal(signs[name][0], settings) as terminal:
                waited = terminal.until(signs[name][1]) - terminal.began
            if turn >= 0:
                seconds[name].append(waited)
        order.reverse()
    ours, bare = seconds.values()
    more = [a - b for a, b in zip(ours, bare, strict=True)]
    low, high = median_interval(more)
    title = f"tui: from exec to the first paint, {options.runs} runs, median of {len(ours)} rounds"
    headers = ("what", "ms", "range", "difference to bare", "95 %", "ratio")
    rows = [(name, *_ms(found), "", "", "") for name, found in seconds.items()]
    interval = f"{1e3 * low:+.0f} to {1e3 * high:+.0f}"
    ratio = f"{median(ours) / median(bare):.2f}"
    rows[0] = (*rows[0][:3], f"{1e3 * median(more):+.0f}", interval, ratio)
    tables = [Table(title, headers, rows), _modules(runs, newest, settings)]
    return tables, [Claim("first paint of the table", median(ours), 0.5, "s")]


def _ms(seconds: Sequence[float]) -> tuple[str, str]:
    found = [1e3 * value for value in seconds]
    return f"{median(found):.0f}", f"{min(found):.0f}–{max(found):.0f}"


def _modules(runs: Path, newest: str, settings: Path) -> Table:
    """List the modules that the app imports for the table, and for a run and the launch screen."""
    title, rows = "tui: modules that the app has imported", []
    for what, opens in (("the table", False), ("the table, a run, a launch", True)):
        listing = settings / "modules.json"
        command = [sys.executable, "-c", LISTED, str(listing), "--runs-dir", str(runs)]
        with Terminal(command, settings) as terminal:
            terminal.until(_short(newest))
            terminal.drain(SETTLED_S)
            if opens:
                since = len(terminal.output)
                terminal.press(ENTER)
                terminal.until(CURVE, since)
                terminal.drain(SETTLED_S)
                terminal.press(NEW)
                terminal.drain(3 * SETTLED_S)
            terminal.press(LEAVE)
            terminal.ended()
        names = json.loads(listing.read_text())
        listing.unlink()
        rows.append((what, len(names), *("yes" if name in names else "no" for name in HEAVY)))
    return Table(title, ("after", "modules", *HEAVY), rows)


def live(runs: Path, settings: Path, options: argparse.Namespace) -> Found:
    """Measure the CPU of the app with a live run, an ended run and the table, and of a bare app."""
    with simulated(runs, options.ranks, options.history) as run_id:
        watching = app(run_id, "--runs-dir", runs)
        looks = [("a live run", _taken(watching, CURVE, settings, options))]
    looks.append(("the same run, ended", _taken(watching, CURVE, settings, options)))
    newest = ended_runs(runs / "others", options.runs)
    table = app("--runs-dir", runs / "others")
    looks.append((f"a table of {options.runs}", _taken(table, _short(newest), settings, options)))
    bare = [sys.executable, "-c", BARE]
    looks.append(("a bare Textual app", _taken(bare, b"nothing else", settings, options)))
    title = (
        f"tui: cost for {options.seconds:g} s after {options.settle:g} s; the live run: "
        f"{options.ranks} ranks at {STEPS / TICK_S:g} steps per second, {options.history:g} s old"
    )
    headers = (
        "what is shown",
        "% of a core",
        "repaints per second",
        "kB per second",
        "MB",
        "MB (PSS)",
    )
    rows = [
        (
            name,
            f"{found['core']:.2f}",
            f"{found['repaints']:.2f}",
            f"{found['bytes'] / 1e3:.1f}",
            f"{found['rss']:.0f}",
            f"{found['pss']:.0f}",
        )
        for name, found in looks
    ]
    watched, idle, listed = (found["core"] for _, found in looks[:3])
    claims = [
        Claim("watching a live run", watched, 10.0, "% of a core"),
        Claim("watching an ended run", idle, 1.0, "% of a core"),
        Claim("the table, nothing live", listed, 1.0, "% of a core"),
    ]
    return [Table(title, headers, rows)], claims


def _taken(
    command: Sequence[str],
    sign: bytes | re.Pattern[bytes],
    settings: Path,
    options: argparse.Namespace,
) -> dict[str, float]:
    with Terminal(command, settings) as terminal:
        terminal.until(sign)
        terminal.drain(options.settle)
        return {**_interval(terminal, options.seconds), **terminal.memory()}


def _interval(terminal: Terminal, seconds: float) -> dict[str, float]:
    since, cpu, began = len(terminal.output), terminal.cpu(), time.perf_counter()
    terminal.drain(seconds)
    taken, wall = terminal.cpu() - cpu, time.perf_counter() - began
    written = terminal.output[since:]
    return {
        "core": 100 * taken / wall,
        "repaints": written.count(PAINTED) / wall,
        "bytes": len(written) / wall,
    }


def cluster(runs: Path, settings: Path, options: argparse.Namespace) -> Found:
    """Measure the CPU of the app while many ranks on many nodes train, per interval."""
    ranks, nodes = options.cluster
    with (
        simulated(runs, ranks, options.cluster_history, nodes) as run_id,
        Terminal(app(run_id, "--runs-dir", runs), settings) as terminal,
    ):
        terminal.until(CURVE)
        terminal.drain(2 * options.settle)  # the first read covers the whole history
        found = [_interval(terminal, options.seconds) for _ in range(options.intervals)]
        memory = terminal.memory()
    core = [each["core"] for each in found]
    title = (
        f"tui: cost of watching {ranks} ranks on {nodes} nodes, each at {STEPS / TICK_S:g} "
        f"steps per second, {options.cluster_history:g} s old; {len(core)} intervals of "
        f"{options.seconds:g} s"
    )
    headers = ("", "% of a core", "range", "repaints per second", "kB per second", "MB", "MB (PSS)")
    row = (
        "a live run",
        f"{mean(core):.2f}",
        f"{min(core):.2f}–{max(core):.2f}",
        f"{mean(each['repaints'] for each in found):.2f}",
        f"{mean(each['bytes'] for each in found) / 1e3:.1f}",
        f"{memory['rss']:.0f}",
        f"{memory['pss']:.0f}",
    )
    claim = Claim(f"watching {ranks} ranks on {nodes} nodes", mean(core), 10.0, "% of a core")
    return [Table(title, headers, [row])], [claim]


def keys(runs: Path, settings: Path, options: argparse.Namespace) -> Found:
    """Measure the time from a key to the next output, while a run trains."""
    seconds: dict[str, list[float]] = {name: [] for name in KEYS}
    chosen, skipped, silent = random.Random(0), 0, 0
    with (
        simulated(runs, options.ranks, options.history) as run_id,
        Terminal(app(run_id, "--runs-dir", runs), settings) as terminal,
    ):
        terminal.until(CURVE)
        terminal.drain(options.settle)
        for at in range(options.keys):
            name = list(KEYS)[at % len(KEYS)]
            terminal.drain(chosen.uniform(0.15, 0.35))
            while time.perf_counter() - terminal.last < QUIET_S:
                skipped += 1
                terminal.drain(chosen.uniform(0.02, 0.05))
            pressed = terminal.press(KEYS[name])
            if terminal.read(ANSWER_S):
                seconds[name].append(terminal.last - pressed)
            else:
                silent += 1
    every = [value for found in seconds.values() for value in found]
    if not every:
        raise SystemExit(f"no key was answered in {ANSWER_S:g} s")
    title = (
        f"tui: from a key to its first output, ms, {options.keys} keys while {options.ranks} ranks "
        f"train; {skipped} trials skipped for output just before, {silent} keys without an answer"
    )
    rows = [
        (name, len(found), *(f"{1e3 * _part(found, part):.1f}" for part in (0.5, 0.95, 1.0)))
        for name, found in [*seconds.items(), ("all", every)]
        if found
    ]
    table = Table(title, ("key", "trials", "p50", "p95", "longest"), rows)
    return [table], [Claim("a key, p95", 1e3 * _part(every, 0.95), 50.0, "ms")]


def _part(values: Sequence[float], part: float) -> float:
    """Return the quantile: the smallest value that a share `part` of all does not exceed."""
    return sorted(values)[math.ceil(part * len(values)) - 1]


def opening(runs: Path, settings: Path, options: argparse.Namespace) -> Found:
    """Measure the time until the curves of a very long record are painted, and the memory then."""
    began = time.perf_counter()
    run_id = build(runs, options.rows).name
    _with_summary(runs / run_id)
    print(f"{options.rows:,} rows written in {time.perf_counter() - began:.0f} s", file=sys.stderr)
    painted, opened, launched = [], [], []
    for _ in range(options.rounds):
        with Terminal(app("--runs-dir", runs), settings) as terminal:
            painted.append(terminal.until(_short(run_id)) - terminal.began)
            terminal.drain(SETTLED_S)
            since = len(terminal.output)
            opened.append(-terminal.press(ENTER) + terminal.until(CURVE, since))
        with Terminal(app(run_id, "--runs-dir", runs), settings) as terminal:
            launched.append(terminal.until(CURVE) - terminal.began)
            memory = [("at the first curves", terminal.memory())]
            terminal.drain(0.0 if len(launched) < options.rounds else options.hold)
            memory.append((f"{options.hold:g} s later", terminal.memory()))
    later = [a - b for a, b in zip(launched, painted, strict=True)]
    times = [
        ("from Enter on the table to the first curves", *_ms(opened)),
        ("from exec with the run named to the first curves", *_ms(launched)),
        ("from exec to the first paint of the table", *_ms(painted)),
        ("difference of the last two", *_ms(later)),
    ]
    rows = f"{options.rows:,} step rows"
    held = [(when, *(f"{found[name]:.0f}" for name in MEMORY)) for when, found in memory]
    tables = [
        Table(
            f"tui: a run of {rows} opens, {options.rounds} rounds", ("what", "ms", "range"), times
        ),
        Table(f"tui: memory with {rows} open", ("when", *MEMORY.values()), held),
    ]
    claims = [
        Claim(f"{rows} open, from Enter", median(opened), 0.5, "s"),
        Claim("memory, the most resident", memory[-1][1]["peak"], 150.0, "MB"),
    ]
    return tables, claims


MEMORY = {"rss": "MB", "pss": "MB (PSS)", "peak": "MB at its peak"}


def _with_summary(folder: Path) -> None:
    """Add the summary that a supervisor writes at the end of a run."""
    with Record(folder) as record:
        state = msgspec.structs.replace(record.state, summary=record.summary())
    (folder / "run.json").write_bytes(msgspec.json.encode(state))


MEASURES = {
    "paint": first_paint,
    "live": live,
    "cluster": cluster,
    "keys": keys,
    "burst": burst,
    "open": opening,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=MEASURES, default=list(MEASURES))
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--runs", type=int, default=300, help="in the table")
    parser.add_argument("--ranks", type=int, default=8, help="of the live run")
    parser.add_argument(
        "--history", type=float, default=600.0, help="age of the live run in seconds"
    )
    parser.add_argument(
        "--cluster", type=int, nargs=2, default=(256, 32), metavar=("RANKS", "NODES")
    )
    parser.add_argument("--cluster-history", type=float, default=300.0, metavar="SECONDS")
    parser.add_argument(
        "--intervals", type=int, default=5, help="number of measurements of the cluster"
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="length of a CPU measurement")
    parser.add_argument("--settle", type=float, default=5.0, help="seconds before that")
    parser.add_argument("--keys", type=int, default=60)
    parser.add_argument("--rows", type=int, default=10_000_000, help="of the record that is opened")
    parser.add_argument("--quick", action="store_true", help="a short smoke test")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.hold = HOLD_S
    if options.quick:
        options.rounds, options.runs, options.history, options.rows = 1, 5, 20.0, 20_000
        options.seconds, options.settle, options.keys, options.hold = 3.0, 1.0, 6, 1.0
        options.cluster, options.cluster_history, options.intervals = (16, 4), 20.0, 1
    tables: list[Table] = []
    claims: list[Claim] = []
    with tempfile.TemporaryDirectory(prefix="distrain-tui-") as folder:
        for name in options.only:
            runs, settings = Path(folder) / name, Path(folder) / f"{name}-settings"
            runs.mkdir()
            settings.mkdir()
            print(f"measuring {name}", file=sys.stderr)
            found, claimed = MEASURES[name](runs, settings, options)
            tables, claims = tables + found, claims + claimed
            shutil.rmtree(runs)
    publish(*tables, _claims(claims), json_to=options.json)


def _claims(claims: Sequence[Claim]) -> Table:
    rows = [_claim(*claim) for claim in claims]
    return Table("tui: claims", ("what", "found", "at most", "unit", "holds"), rows)


def _claim(what: str, found: float, most: float, unit: str) -> tuple[Any, ...]:
    return what, f"{found:.3g}", f"{most:g}", unit, "yes" if found <= most else "no"


if __name__ == "__main__":
    main()
