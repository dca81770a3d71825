"""GPUs in the app, as a process in a real terminal, with real training runs.

The app and all processes that it starts use the real pynvml binding with a fake NVML library.
The ranks compute on the CPU.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from distrain.runners.records.reader import Record
from tests.integration.app.conftest import LONG_RUN
from tests.support.fake_nvml import (
    LOST,
    MEBIBYTE,
    NO_PERMISSION,
    NOT_SUPPORTED,
    FakeNvml,
    computing_torch,
    gpu,
    mig_instances,
)
from tests.support.runs import wait_until
from tests.support.terminal import TIMEOUT_S, Terminal

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")

SIZES = [(120, 36), (80, 24)]
ONE, TWO, EIGHT = ("single",), ("ddp", "--set", "dist.backend=gloo"), ("dp", "--devices", "all")


@pytest.fixture
def machine(terminal: Terminal, fake_nvml: FakeNvml) -> FakeNvml:
    """Return the GPUs of the terminal's machine."""
    terminal.environment.pop("CUDA_VISIBLE_DEVICES", None)
    for name in ("LD_LIBRARY_PATH", "FAKE_NVML"):
        terminal.environment[name] = fake_nvml.environment[name]
    paths = [str(computing_torch(terminal.folder)), os.environ.get("PYTHONPATH", "")]
    terminal.environment["PYTHONPATH"] = ":".join(path for path in paths if path)
    return fake_nvml


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """Start a program that is not a run."""
    program = subprocess.Popen(["sleep", "600"])
    yield program
    program.kill()
    program.wait()


def test_the_app_can_be_left_while_the_driver_does_not_answer(
    terminal: Terminal, machine: FakeNvml
) -> None:
    (terminal.folder / "runs").mkdir()
    machine.state.unlink()
    os.mkfifo(machine.state)  # reading it does not return
    for signal_, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        terminal.open(shell=True)
        terminal.until("Presets", "Palette")
        terminal.press("C-q")
        terminal.until("waiting for reads and writes in progress; Ctrl-C quits at once")
        terminal.app().children()[0].send_signal(signal_)
        assert "Traceback" not in terminal.until(f"it left with {code}")
        terminal.close()


def train(terminal: Terminal, *words: str) -> list[int]:
    """Start a run that trains until the test ends; return the pids of its ranks."""
    said = terminal.distrain("run", *words, *LONG_RUN, "--set=report.sample_s=0.5", "--detach")
    record = Record(terminal.folder / "runs" / said.strip())
    deadline = time.monotonic() + TIMEOUT_S
    while not (ranks := record.ranks()) or any(rank.step == 0 for rank in ranks):
        assert record.live, record.state.reason
        assert time.monotonic() < deadline, ranks
        time.sleep(0.2)
    return [rank.pid for rank in ranks]


def look_at_gpus(terminal: Terminal, size: tuple[int, int], title: str = "GPUs") -> None:
    """Open the app on the run, maximize a pane and go backwards to the one with this title."""
    terminal.open("latest", size=size)
    terminal.until("running", "● 0")
    terminal.press("f")
    terminal.until_gone("running")
    while (shown := pane_title(terminal.text())) != title:
        terminal.press("BTab")
        terminal.until_it(lambda text, shown=shown: pane_title(text) not in (None, shown), "moves")


def pane_title(text: str) -> str | None:
    """Return the title of the first pane on the screen."""
    found = re.search("╭─ (.+?) ─", text)
    return found[1] if found else None


def rows(terminal: Terminal, *wanted: str) -> str:
    """Return the screen with gaps and histories as one space, once it shows all these rows."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        text = terminal.text()
        found = re.sub("[ ▁-▏]+", " ", text)
        if set(wanted) <= {row.strip() for row in re.split("[│\n]", found)}:
            return text
        assert time.monotonic() < deadline, f"never {wanted} in:\n{text}"
        time.sleep(0.2)


@pytest.mark.parametrize(
    ("words", "marks"), [(ONE, "●"), (TWO, "●■"), (EIGHT, "●" * 8)], ids=["1", "2", "8"]
)
def test_each_gpu_has_a_line_with_its_figures_and_its_rank(
    words: tuple[str, ...], marks: str, terminal: Terminal, machine: FakeNvml
) -> None:
    machine.has(len(marks))
    ranks = train(terminal, *words)
    machine.has(
        [
            gpu(index, power=1000 * (300 + index), processes=f"{ranks[index % len(ranks)]}:1024")
            for index in range(len(marks))
        ]
    )
    for size in SIZES:
        look_at_gpus(terminal, size)
        rows(
            terminal,
            *(
                f"{index} {mark} {50 + index} % 1.0/80 GiB {300 + index} W {60 + index} °C 1410 MHz"
                for index, mark in enumerate(marks)
            ),
        )
        wait_until(lambda: len(re.findall("[▁-█]{4,}", terminal.text())) >= len(marks))
        terminal.close()


def test_other_processes_on_a_gpu_are_named(
    terminal: Terminal, machine: FakeNvml, stranger: subprocess.Popen[bytes]
) -> None:
    [rank] = train(terminal, *ONE)
    machine.has([gpu(0, processes=f"{rank}:1024 {stranger.pid}:{900 * MEBIBYTE}")])
    for size in SIZES:
        terminal.open("latest", size=size)
        terminal.until("● 0")
        terminal.press("BTab")
        rows(terminal, f"others: sleep {stranger.pid} 900 MiB")
        assert f" {rank} " not in terminal.text()
        terminal.close()


def test_figures_that_a_gpu_does_not_report_are_missing_not_zero(
    terminal: Terminal, machine: FakeNvml
) -> None:
    nothing = dict.fromkeys(
        ("utilisation", "memory_used", "memory_total", "power", "temperature", "sm_clock"),
        NOT_SUPPORTED,
    )
    some = {"utilisation": NOT_SUPPORTED, "power": NO_PERMISSION, "sm_clock": NOT_SUPPORTED}
    idle = {"processes": ""}
    machine.has([gpu(0, **idle), gpu(1, **some, **idle), gpu(2, **nothing, **idle)])
    train(terminal, "dp", "--devices", "all")
    for size in SIZES:
        look_at_gpus(terminal, size)
        rows(
            terminal,
            "0 ● 50 % 1.0/80 GiB 250 W 60 °C 1410 MHz",
            "1 N/A 1.0/80 GiB N/A 61 °C N/A",
            "2 N/A N/A N/A N/A N/A",
        )
        terminal.close()


def test_a_mig_instance_shows_its_memory(terminal: Terminal, machine: FakeNvml) -> None:
    machine.has([gpu(0, mig=1, instances=mig_instances(0, 2))])
    train(terminal, *ONE)
    for size in SIZES:
        look_at_gpus(terminal, size)
        rows(terminal, "NVIDIA Fake 80GB MIG 1g.10gb", "0 ● N/A 0.0/9.5 GiB N/A N/A N/A")
        terminal.close()


def test_a_lost_gpu_is_reported_and_the_others_continue(
    terminal: Terminal, machine: FakeNvml
) -> None:
    machine.has([gpu(index, processes="") for index in range(2)])
    train(terminal, *TWO)
    look_at_gpus(terminal, (120, 36))
    rows(
        terminal,
        "0 ● 50 % 1.0/80 GiB 250 W 60 °C 1410 MHz",
        "1 ■ 51 % 1.0/80 GiB 251 W 61 °C 1410 MHz",
    )
    lost = "1 ■ lost: no longer reports values"
    for utilisation in (77, 33):
        machine.has([gpu(0, utilisation=utilisation, processes=""), gpu(1, lost=LOST)])
        rows(terminal, f"0 ● {utilisation} % 1.0/80 GiB 250 W 60 °C 1410 MHz", lost)
    terminal.close()
    # A run that is launched later reports it as well.
    look_at_gpus(terminal, (80, 24))
    rows(terminal, "0 ● 33 % 1.0/80 GiB 250 W 60 °C 1410 MHz", lost)


def test_without_a_driver_the_pane_shows_the_host_and_the_ranks(
    terminal: Terminal, machine: FakeNvml
) -> None:
    terminal.environment |= machine.without_driver
    presets = terminal.folder / "config" / "presets"
    presets.mkdir(parents=True)
    (presets / "gpus.toml").write_text('devices = "all"\n')
    (presets.parent / "settings.toml").write_text('preset = "gpus"\n')
    # A run that requires a GPU is refused with the reason,
    for size in SIZES:
        terminal.open(size=size)
        terminal.until("no GPU can be used", "no NVIDIA driver")
        terminal.close()
    # and a run that does not trains on the CPU.
    train(terminal, "ddp")
    for size in SIZES:
        look_at_gpus(terminal, size, "Host")
        text = terminal.until("CPU", "memory", "load", "● rank 0", "■ rank 1", "of a core")
        assert "GPU" not in text
        terminal.close()


def test_a_run_can_queue_for_a_gpu_that_another_program_uses(
    terminal: Terminal, machine: FakeNvml, stranger: subprocess.Popen[bytes]
) -> None:
    machine.has([gpu(0, processes=f"{stranger.pid}:1024")])
    settings = terminal.folder / "config" / "settings.toml"
    settings.write_text('preset = "single"\ntour_shown = true\n')
    terminal.open(size=(80, 24))
    terminal.until("$ distrain run single", "cuda:0")
    terminal.press("F5")
    terminal.until("are busy", f"process {stranger.pid} (sleep of", "Queue", "anyway")
    terminal.press("C-e")
    terminal.until("queued", f"GPU 0: in use by process {stranger.pid} (sleep of")
    machine.has([gpu(0, processes="")])
    terminal.until("completed", "100 %")
    terminal.press("BTab")
    rows(terminal, "NVIDIA Fake 80GB")
