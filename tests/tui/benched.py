"""Benches that never ran: folders written as their process would."""

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

from runners.bench import Bench, make
from runners.bench import state as states
from runners.bench.state import Measurement, Now
from runners.config import RunConfig
from runners.devices import Device
from runners.plan import make_plan
from runners.presets import load_preset

from .conftest import Made

TOOK_S = 14.0
RATES = {"single": 5000.0, "ddp": 8200.0}


def a_bench(
    runs_dir: Path,
    rates: Mapping[str, float] = RATES,
    *,
    rounds: int = 8,
    begun: int = 0,
    name: str = "",
    ago: float = 300.0,
    status: states.Status = "completed",
    configs: Mapping[str, RunConfig] = {},
    records: bool = False,
    **state: Any,
) -> Bench:
    """A bench of contestants by about their samples/s, so many seconds ago. Each is as the preset
    of its name, or as its config says. `begun` are the runs of the round under way that have
    ended; a live one has another under way. With `records` its runs have them.
    """
    now, queue, cwd = time.time(), state.pop("queue", False), state.pop("cwd", os.getcwd())
    chosen = {each: configs.get(each) or load_preset(each) for each in rates}
    rules = {"unequal": True, **state.pop("rules", {})}
    definition = make(chosen, rules, None)
    cores = [Device(kind="cpu", index=index) for index in range(2)]
    plans = {
        each: make_plan(config, cores[: 1 if config.launcher == "inline" else 2])
        for each, config in chosen.items()
    }
    folder = states.create(
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
    if status in states.LIVE:
        run = Made(folder / states.RUNS, order[begun], ago=6).steps(5) if records else None
        fields |= {
            "pid": os.getpid(),
            "pid_started": psutil.Process().create_time(),
            "now": Now(
                round=rounds + 1,
                order=order,
                contestant=order[begun],
                began=now - 6,
                run_id=run.id if run else "a-run",
            ),
        }
    else:
        fields["ended"] = now - ago + TOOK_S * len(done)
    states.write(folder, structs.replace(states.read(folder), **fields | state))
    return Bench(folder)


def change(bench: Bench, **state: Any) -> None:
    """What its process would write next."""
    states.write(bench.dir, structs.replace(states.read(bench.dir), **state))


def _measured(
    folder: Path, number: int, name: str, rates: Mapping[str, float], records: bool
) -> Measurement:
    chance = Random(f"{name} {number}")
    rate = rates[name] * Random(number).uniform(0.97, 1.03) * chance.uniform(0.98, 1.02)
    if number == 5 and name == next(iter(rates)):
        rate *= 0.6  # something else had the machine
    waits = 0.0 if name == "single" else 0.25
    run_id = f"run-{name}-{number}"
    if records:
        run_id = Made(folder / states.RUNS, name, ago=60 - number).steps(10).end("stopped").id
    return Measurement(
        contestant=name,
        round=number,
        run_id=run_id,
        rate=rate,
        seconds=5.0,
        warmup_s=0.8,
        steady=True,
        took=TOOK_S,
        phases={
            "data": 0.1,
            "forward": 0.3 - waits / 2,
            "backward": 0.4 - waits / 2,
            "comm": waits,
            "optimizer": 0.1,
            "other": 0.1,
        },
    )
