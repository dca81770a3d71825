"""What a person waits for in the terminal app, and what the app takes from the training.

Claims: the table of 300 runs is painted in 0.5 s and a run of 10 million step rows opened in
0.5 s; watching 8 ranks at 100 steps a second takes at most 10 % of a core, looking at what has
ended 1 %; a key is answered in 50 ms (95 of 100); at most 150 MB of memory, and never torch.

The app runs in a pseudo-terminal that is read as fast as it writes; no emulator is in the way.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import os
import pty
import random
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, NamedTuple

import msgspec
import psutil

from benchmarks.open import build
from benchmarks.report import ROOT, Table, median_interval, publish, settled_environment
from runners.config import RunConfig
from runners.devices import Device
from runners.events import (
    Evaluation,
    Facts,
    GpuSample,
    Hello,
    HostSample,
    Metric,
    Phase,
    RankSample,
    Saved,
    Window,
)
from runners.plan import make_plan
from runners.record import Record, RecordWriter, create_run, new_run_id
from runners.supervisor import COMMIT_S

COLUMNS, LINES = 120, 36
PATIENCE_S = 60.0
SETTLED_S = 1.0  # after the first paint, before a key is pressed
HOLD_S = 10.0  # until memory is read again
CURVE = re.compile(rb"\xe2(?:\xa0[\x81-\xbf]|[\xa1-\xa3][\x80-\xbf])")  # U+2801 to U+28FF
PAINTED = b"\x1b[?2026l"  # ends a repaint where the terminal can show it at once
# What Textual asks on its start, and what a terminal says that can do the first of them.
ANSWERS = {b"\x1b[?2026$p": b"\x1b[?2026;2$y", b"\x1b[?2048$p": b"\x1b[?2048;0$y"}
ESCAPES = re.compile(rb"\x1b(?:\[[0-9:;<=>?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|.)")

KEYS = {"right": b"\x1b[C", "x": b"x", "tab": b"\t"}
QUIET_S = 0.015  # without output before a key: what follows it is then its answer
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
told = pathlib.Path(sys.argv.pop(1))
atexit.register(lambda: told.write_text(json.dumps(sorted(sys.modules))))
from tui.app import main
main()
"""


# --- a terminal -----------------------------------------------------------------------------------


class Terminal:
    """A process in a pseudo-terminal of its own; whoever has one must keep reading it."""

    def __init__(self, command: Sequence[str], settings: Path) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        unwanted = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "DISTRAIN_", "TEXTUAL")
        environment = {k: v for k, v in settled_environment().items() if not k.startswith(unwanted)}
        environment |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
        environment |= {"DISTRAIN_CONFIG_DIR": str(settings), "PYTHONPATH": str(ROOT)}
        self.output = bytearray()
        self._asked = dict(ANSWERS)
        self._file = ours
        self.began = self.last = time.perf_counter()
        self.process = psutil.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            cwd=ROOT,
            start_new_session=True,
            # Its controlling terminal: it is told to end if this process does.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except psutil.TimeoutExpired:
                self.process.kill()
                self.process.wait(5)
        os.close(self._file)

    def press(self, key: bytes) -> float:
        """When it was pressed."""
        at = time.perf_counter()
        os.write(self._file, key)
        return at

    def until(self, sign: bytes | re.Pattern[bytes], since: int = 0) -> float:
        """When `sign` was read, in what was written from `since` on."""
        wanted = sign if isinstance(sign, re.Pattern) else re.compile(re.escape(sign))
        due = time.perf_counter() + PATIENCE_S
        while not wanted.search(self.output, since):
            if time.perf_counter() > due:
                raise SystemExit(f"{wanted.pattern!r} never came; the end of the screen:\n{self}")
            self.read(0.1)
        return self.last

    def drain(self, seconds: float) -> None:
        """Read for a time."""
        due = time.perf_counter() + seconds
        while (left := due - time.perf_counter()) > 0:
            self.read(left)

    def read(self, patience: float) -> bool:
        """Whether there was output within `patience` seconds; `last` is when."""
        if not select.select([self._file], [], [], patience)[0]:
            return False
        try:
            chunk = os.read(self._file, 1 << 16)
        except OSError:  # EIO: the process has ended
            raise SystemExit(f"{self.process.args} has ended:\n{self}") from None
        self.last = time.perf_counter()
        self.output += chunk
        for question in [question for question in self._asked if question in self.output]:
            os.write(self._file, self._asked.pop(question))
        return True

    def ended(self) -> None:
        """Read until the process has ended of itself."""
        due = time.perf_counter() + PATIENCE_S
        while self.process.poll() is None and time.perf_counter() < due:
            try:
                self.read(0.1)
            except SystemExit:
                self.process.wait(5)

    def cpu(self) -> float:
        """Seconds so far, user and system."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def memory(self) -> dict[str, float]:
        """MB: the most that was resident so far, what is now, and its proportional share."""
        full = self.process.memory_full_info()
        held = {"rss": full.rss, "pss": getattr(full, "pss", full.uss), "peak": full.rss}
        status = Path(f"/proc/{self.process.pid}/status")
        if status.exists():
            held["peak"] = 1024 * int(status.read_text().split("VmHWM:")[1].split()[0])
        return {name: size / 2**20 for name, size in held.items()}

    def __str__(self) -> str:
        """The words that were written last."""
        return ESCAPES.sub(b" ", bytes(self.output[-8000:])).decode(errors="replace")[-2000:]


def app(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "tui.app", *map(str, arguments)]


# --- runs that never ran --------------------------------------------------------------------------

TICK_S = 0.1  # a window of each rank
STEPS = 10  # in a window
PER_EPOCH = 500  # steps; an evaluation after each, every 5 s
TOTAL = 1_000_000
SAMPLES = 16  # of a rank in a step
GIB = 2**30
FIRST_PID = 4_000_000  # above every real one


class Simulation:
    """A run of GPUs at 100 steps a second, said and written as ranks and supervisor would."""

    def __init__(self, runs: Path, ranks: int, history: float) -> None:
        gpus = [
            Device(kind="cuda", index=at, uuid=f"GPU-{at}", name="simulated", memory=80 * GIB)
            for at in range(ranks)
        ]
        changes = {"train.epochs": TOTAL // PER_EPOCH, "train.batch_size": SAMPLES * ranks}
        config = RunConfig().with_changes(changes)
        folder = create_run(runs, config, plan=make_plan(config, gpus), word="bench")
        self.ranks, self.tick, self.began = range(ranks), 0, time.time() - history
        self._chosen = random.Random(0)
        self.writer = RecordWriter(folder)
        facts = Facts(
            time=self.began,
            train_samples=PER_EPOCH * SAMPLES * ranks,
            eval_samples=10_000,
            steps_per_epoch=PER_EPOCH,
            total_steps=TOTAL,
            parameters=1_000_000,
            backend="nccl",
        )
        self.writer.set_state(
            status="running",
            started=self.began,
            supervisor_pid=os.getpid(),
            supervisor_started=psutil.Process().create_time(),
            facts=facts,
        )
        for at, gpu in enumerate(gpus):
            pid = FIRST_PID + at
            hello = Hello(
                rank=at, world_size=ranks, pid=pid, device=gpu.label, device_uuid=gpu.uuid
            )
            self.writer.add(hello)
            self.writer.add(Phase(time=self.began, rank=at, phase="training"))
        self.writer.add(facts)
        self.go_on(time.time())

    def go_on(self, until: float) -> None:
        """Everything from the last time until now, in one commit."""
        while (now := self.began + (self.tick + 1) * TICK_S) <= until:
            self.tick += 1
            step = self.tick * STEPS
            for rank in self.ranks:
                self.writer.add(self._window(now, rank, step))
            if self.tick % round(1 / TICK_S) == 0:
                self._sample(now)
            if step % PER_EPOCH == 0:
                self._evaluate(now, step)
        self.writer.commit()

    def end(self) -> Path:
        self.writer.commit()
        self.writer.set_state(status="completed", ended=time.time())
        with Record(self.writer.dir) as record:
            self.writer.set_state(summary=record.summary())
        self.writer.close()
        return self.writer.dir

    def _window(self, now: float, rank: int, step: int) -> Window:
        loss = 0.2 + 2.1 * math.exp(-step / 20_000) + self._chosen.gauss(0, 0.05)
        busy = TICK_S * self._chosen.uniform(0.9, 1.0)
        return Window(
            time=now,
            rank=rank,
            epoch=(step - 1) // PER_EPOCH,
            step=step,
            steps=STEPS,
            samples=STEPS * SAMPLES,
            loss_sum=STEPS * SAMPLES * loss,
            loss_min=0.8 * loss,
            loss_max=1.3 * loss,
            lr=0.1 * (1 - step / TOTAL),
            seconds=busy,
            data=0.1 * busy,
            forward=0.25 * busy,
            backward=0.4 * busy,
            comm=self._chosen.uniform(0.1, 0.2) * busy,
            optimizer=0.05 * busy,
            warmup=step <= STEPS,
        )

    def _sample(self, now: float) -> None:
        some = self._chosen.uniform
        for at in self.ranks:
            pid, used = FIRST_PID + at, 40 * GIB + some(0, GIB)
            self.writer.add(
                GpuSample(
                    time=now,
                    gpu=at,
                    uuid=f"GPU-{at}",
                    name="simulated",
                    utilisation=some(85, 100),
                    memory_used=used,
                    memory_total=80.0 * GIB,
                    power=some(500, 600),
                    temperature=some(60, 65),
                    sm_clock=some(1800, 1900),
                    memory_clock=2600.0,
                    energy=550 * (now - self.began),
                    processes={pid: round(used)},
                )
            )
            self.writer.add(
                RankSample(time=now, rank=at, cpu=some(90, 110), rss=some(3e9, 3.1e9), processes=3)
            )
        self.writer.add(
            HostSample(
                time=now,
                cpu=some(40, 60),
                memory_used=some(100, 101) * GIB,
                memory_total=512.0 * GIB,
                load=some(8, 12),
            )
        )

    def _evaluate(self, now: float, step: int) -> None:
        for rank in self.ranks:
            self.writer.add(Phase(time=now, rank=rank, phase="evaluating", step=step))
        epoch, right = step // PER_EPOCH, 1 - 0.9 * math.exp(-step / 20_000)
        metrics = {
            "loss": Metric(10_000 * (1.1 - right), 10_000),
            "top1": Metric(10_000 * right, 10_000),
        }
        self.writer.add(
            Evaluation(
                time=now, epoch=epoch, step=step, samples=10_000, seconds=0.1, metrics=metrics
            )
        )
        path = "checkpoints/last.pt"
        self.writer.add(
            Saved(time=now, epoch=epoch, step=step, path=path, seconds=0.1, bytes=GIB, best=True)
        )
        for rank in self.ranks:
            self.writer.add(Phase(time=now, rank=rank, phase="training", step=step))


def simulate(runs: Path, ranks: int, history: float) -> None:
    """Be the supervisor of a simulated run until told to end it; says its id once it goes."""
    told, parent = threading.Event(), os.getppid()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    run = Simulation(runs, ranks, history)
    print(run.writer.dir.name, flush=True)
    while not told.wait(COMMIT_S) and os.getppid() == parent:
        run.go_on(time.time())
    run.end()


@contextmanager
def simulated(runs: Path, ranks: int, history: float) -> Iterator[str]:
    """A live run in a process of its own, by its id; it has ended afterwards."""
    command = [sys.executable, "-m", "benchmarks.tui", "--simulate", str(runs)]
    command += [str(ranks), str(history)]
    environment = {**settled_environment(), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        run_id = process.stdout.readline().strip()
        if not run_id:
            raise SystemExit("the simulated run did not begin")
        yield run_id
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


def ended_runs(runs: Path, count: int) -> str:
    """A folder of runs that have ended, a minute apart, all but the first copied; the newest id."""
    made = Simulation(runs, ranks=2, history=30.0).end()
    with Record(made) as record:
        record.set_meta(notes="made for a benchmark", tags=["bench"])
        state = record.state
    for at in range(count):
        created = state.created - 60.0 * (count - at)
        run_id = new_run_id("bench", created)
        changed = msgspec.structs.replace(
            state,
            run_id=run_id,
            created=created,
            started=created + 1,
            ended=created + 31,
            summary={**(state.summary or {}), "run_id": run_id},
        )
        folder = shutil.copytree(made, runs / run_id)
        (folder / "run.json").write_bytes(msgspec.json.encode(changed))
    shutil.rmtree(made)
    return run_id


# --- what is measured -----------------------------------------------------------------------------


class Claim(NamedTuple):
    what: str
    found: float
    most: float
    unit: str


Found = tuple[list[Table], list[Claim]]


def _short(run_id: str) -> bytes:
    """What every list shows of an id that no other run has."""
    return run_id.split("-", 2)[2].encode()


def first_paint(runs: Path, settings: Path, options: argparse.Namespace) -> Found:
    """Until the table shows its newest run, by turns with an app that shows a word."""
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
    headers = ("what", "ms", "range", "more than bare", "95 %", "ratio")
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
    """What the app has imported by the table alone, and once a run and a launch were opened."""
    title, rows = "tui: modules that the app has imported", []
    for what, opens in (("the table", False), ("the table, a run, a launch", True)):
        told = settings / "modules.json"
        command = [sys.executable, "-c", LISTED, str(told), "--runs-dir", str(runs)]
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
        names = json.loads(told.read_text())
        told.unlink()
        rows.append((what, len(names), *("yes" if name in names else "no" for name in HEAVY)))
    return Table(title, ("after", "modules", *HEAVY), rows)


def live(runs: Path, settings: Path, options: argparse.Namespace) -> Found:
    """CPU of the app while a run trains, once it has ended, on the table, and of a bare app."""
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
        f"tui: what it takes for {options.seconds:g} s after {options.settle:g} s; the live run: "
        f"{options.ranks} ranks at {STEPS / TICK_S:g} steps a second, {options.history:g} s old"
    )
    headers = ("what is shown", "% of a core", "repaints a second", "kB a second", "MB", "MB (PSS)")
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
        since, cpu, began = len(terminal.output), terminal.cpu(), time.perf_counter()
        terminal.drain(options.seconds)
        taken, wall = terminal.cpu() - cpu, time.perf_counter() - began
        written = terminal.output[since:]
        return {
            "core": 100 * taken / wall,
            "repaints": written.count(PAINTED) / wall,
            "bytes": len(written) / wall,
            **terminal.memory(),
        }


def keys(runs: Path, settings: Path, options: argparse.Namespace) -> Found:
    """From a key to the first output after it, while a run trains."""
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
    """The least value that so large a part of all does not exceed."""
    return sorted(values)[math.ceil(part * len(values)) - 1]


def opening(runs: Path, settings: Path, options: argparse.Namespace) -> Found:
    """Until the first dots of curves of a very long record are on the screen; memory by then."""
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
    """As every run has that its supervisor saw to the end."""
    with Record(folder) as record:
        state = msgspec.structs.replace(record.state, summary=record.summary())
    (folder / "run.json").write_bytes(msgspec.json.encode(state))


MEASURES = {"paint": first_paint, "live": live, "keys": keys, "open": opening}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=MEASURES, default=list(MEASURES))
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--runs", type=int, default=300, help="in the table")
    parser.add_argument("--ranks", type=int, default=8, help="of the live run")
    parser.add_argument("--history", type=float, default=600.0, help="seconds it has trained for")
    parser.add_argument("--seconds", type=float, default=20.0, help="for which CPU is counted")
    parser.add_argument("--settle", type=float, default=5.0, help="seconds before that")
    parser.add_argument("--keys", type=int, default=60)
    parser.add_argument("--rows", type=int, default=10_000_000, help="of the record that is opened")
    parser.add_argument("--quick", action="store_true", help="a moment: does it work at all?")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--simulate", nargs=3, metavar="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.simulate:
        runs, ranks, history = options.simulate
        simulate(Path(runs), int(ranks), float(history))
        return
    options.hold = HOLD_S
    if options.quick:
        options.rounds, options.runs, options.history, options.rows = 1, 5, 20.0, 20_000
        options.seconds, options.settle, options.keys, options.hold = 3.0, 1.0, 6, 1.0
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
