"""Things that a run says, made up: the fields that a test does not name are of no matter to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any

from runners.config import RunConfig
from runners.devices import Device
from runners.events import Facts, Window
from runners.plan import make_plan
from runners.record import Record, RecordWriter, create_run


def a_window(rank: int = 0, step: int = 1, steps: int = 1, **changes: Any) -> Window:
    """So many steps of 4 samples each, with a loss of 2, in half a second; ten make an epoch."""
    fields: dict[str, Any] = {
        "time": 1000.0 + step,
        "epoch": step // 10,
        "samples": 4 * steps,
        "loss_sum": 8.0 * steps,
        "loss_min": 2.0,
        "loss_max": 2.0,
        "lr": 0.1,
        "seconds": 0.5,
    }
    return Window(rank=rank, step=step, steps=steps, **(fields | changes))


def a_run(
    runs_dir: Path,
    steps: Callable[[int, int], dict[str, Any]],
    *,
    world: int = 2,
    count: int = 40,
    samples: Iterable[Any] = (),
    facts: Facts | None = None,
    **changes: Any,
) -> Record:
    """A completed run of so many windows of one step on each rank, whose fields `steps` gives by
    rank and step, and of what else was sampled.
    """
    config = RunConfig().with_changes({"devices": f"cpu:{world}", **changes})
    plan = make_plan(config, [Device(kind="cpu", index=index) for index in range(world)])
    writer = RecordWriter(create_run(runs_dir, config, plan=plan, word="made"))
    for step, rank in product(range(1, count + 1), range(world)):
        writer.add(a_window(rank, step, **steps(rank, step)))
    for sample in samples:
        writer.add(sample)
    host = {"threads": 8, "memory": 8 * 2**30}
    writer.set_state(status="completed", reason="all done", facts=facts, provenance={"host": host})
    writer.close()
    return Record(writer.dir)
