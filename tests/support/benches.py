"""Benches for tests: short definitions to run, and folders of benches that never ran."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import psutil
from msgspec import structs

from distrain.runners import bench
from distrain.runners.bench import Bench, make
from distrain.runners.bench.definition import Definition
from distrain.runners.bench.folder import RUNS, create_bench, read_bench_state, write_bench_state
from distrain.runners.bench.state import LIVE, BenchStatus, CurrentRun, Measurement
from distrain.runners.config.planning import plan_here
from distrain.runners.config.presets import load_preset
from distrain.runners.config.schema import RunConfig
from distrain.runners.system.devices import Device
from tests.support.records import RunBuilder

QUICK = {"train.threads": 1, "devices": "cpu:1", "strategy": "single", "launcher": "inline"}
TOOK_S = 14.0
RATES = {"single": 5000.0, "ddp": 8200.0}


def config(**changes: Any) -> RunConfig:
    """Return a config of one process that starts fast, with keys changed (`__` for the dot)."""
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    return RunConfig().with_changes({**QUICK, **dotted})


def definition(configs: dict[str, RunConfig], **rules: Any) -> Definition:
    return bench.make(configs, {"repeats": 2, "seconds": 0.3, **rules})


def processes_of(a_bench: Bench) -> list[psutil.Process]:
    """Return the live processes of the bench and of its runs."""
    found = []
    for process in psutil.process_iter():
        try:
            is_run = str(a_bench.dir) in (process.environ().get("DISTRAIN_RUN") or "")
            if is_run or any(str(a_bench.dir) in word for word in process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return [process for process in found if process.status() != psutil.STATUS_ZOMBIE]


def make_bench(
    runs_dir: Path,
    rates: Mapping[str, float] = RATES,
    *,
    rounds: int = 8,
    begun: int = 0,
    name: str = "",
    ago: float = 300.0,
    status: BenchStatus = "completed",
    configs: Mapping[str, RunConfig] = {},
    records: bool = False,
    **state: Any,
) -> Bench:
    """Write a bench that started `ago` seconds before now, and return it.

    `rates` are the candidates with about their samples/s; each is the preset of its name, or as in
    `configs`. `begun` is how many runs of the current round have ended; a live bench has one more
    in progress. With `records` its runs have records.
    """
    now, queue, cwd = time.time(), state.pop("queue", False), state.pop("cwd", os.getcwd())
    chosen = {each: configs.get(each) or load_preset(each) for each in rates}
    rules = {"unequal": True, **state.pop("rules", {})}
    definition = make(chosen, rules, None)
    cores = [Device(kind="cpu", index=index) for index in range(2)]
    plans = {
        each: plan_here(config, cores[: 1 if config.launcher == "inline" else 2])
        for each, config in chosen.items()
    }
    folder = create_bench(
        runs_dir, definition, plans, name=name, cwd=cwd, command=["distrain", "bench"], queue=queue
    )
    order = list(rates)
    done = [(number, each) for number in range(1, rounds + 1) for each in order]
    done += [(rounds + 1, each) for each in order[:begun]]
    measured = [_measured(folder, *one, rates, records) for one in done]
    fields: dict[str, Any] = {
        "status": status,
        "created": now - ago,
        "started": [now - ago],
        "rounds": rounds,
        "measurements": measured,
        "host": socket.gethostname(),
    }
    if status in LIVE:
        run = RunBuilder(folder / RUNS, order[begun], ago=6).steps(5) if records else None
        fields |= {
            "pid": os.getpid(),
            "pid_started": psutil.Process().create_time(),
            "current": CurrentRun(
                round=rounds + 1,
                order=order,
                candidate=order[begun],
                began=now - 6,
                run_id=run.id if run else "a-run",
            ),
        }
    else:
        fields["ended"] = now - ago + TOOK_S * len(done)
    write_bench_state(folder, structs.replace(read_bench_state(folder), **fields | state))
    return Bench(folder)


def change(bench: Bench, **state: Any) -> None:
    """Write what the process of the bench would write next."""
    write_bench_state(bench.dir, structs.replace(read_bench_state(bench.dir), **state))


def _measured(
    folder: Path, number: int, name: str, rates: Mapping[str, float], records: bool
) -> Measurement:
    chance = Random(f"{name} {number}")
    rate = rates[name] * Random(number).uniform(0.97, 1.03) * chance.uniform(0.98, 1.02)
    if number == 5 and name == next(iter(rates)):
        rate *= 0.6  # another program used the machine
    waits = 0.0 if name == "single" else 0.25
    run_id = f"run-{name}-{number}"
    if records:
        run_id = RunBuilder(folder / RUNS, name, ago=60 - number).steps(10).end("stopped").id
    return Measurement(
        candidate=name,
        round=number,
        run_id=run_id,
        rate=rate,
        seconds=5.0,
        warmup_s=0.8,
        steady=True,
        duration_s=TOOK_S,
        phases={
            "data": 0.1,
            "forward": 0.3 - waits / 2,
            "backward": 0.4 - waits / 2,
            "comm": waits,
            "optimizer": 0.1,
            "other": 0.1,
        },
    )
