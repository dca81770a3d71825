"""A made-up comparison in which every field is set."""

from __future__ import annotations

from math import exp
from typing import Any

import msgspec

from distrain.runners.analysis.comparison.model import (
    Candidate,
    CandidateCurve,
    Comparison,
    Difference,
)
from distrain.runners.analysis.interval import Interval
from distrain.runners.analysis.statistics import median_interval

HOSTILE = "<script>window.broken = 1</script><b>&\"'"
STEPS = [float(step) for step in range(1, 201)]


def candidate(name: str, speed: float, **changes: Any) -> Candidate:
    """Return a candidate with rates around `speed`, one of them an outlier, and all curves."""
    rates = [speed * (1 + 0.01 * ((7 * i) % 5 - 2)) for i in range(9)] + [speed * 0.6]
    time = [step / speed * 128 for step in STEPS]
    complete = Candidate(
        name=name,
        strategy="ddp",
        launcher="torchrun",
        precision="fp32",
        world_size=2,
        devices=["cuda:0", "cuda:1"],
        folders=[f"/runs/{number}" for number in range(10)],
        rates=rates,
        outliers=[9],
        rate=median_interval(rates),
        phases={"data": 0.1, "forward": 0.2, "backward": 0.4, "comm": 0.2, "other": 0.1},
        overlap=0.15,
        host_memory=3.0e9,
        device_memory=20.0e9,
        cpu=190.0,
        gpu=92.0,
        joules_per_sample=400 / speed,
        metrics={"top1": 0.98, "loss": 0.12},
        curves={
            "loss": CandidateCurve(
                step=STEPS, time=time, values=[2.3 * exp(-step / 40) for step in STEPS]
            ),
            "eval top1": CandidateCurve(
                step=STEPS[19::20],
                time=time[19::20],
                values=[0.98 - 0.5 * exp(-step / 40) for step in STEPS[19::20]],
            ),
            "gpu": CandidateCurve(time=time[::10], values=[90.0 + step % 7 for step in range(20)]),
            "power": CandidateCurve(
                time=time[::10], values=[None, *(600.0 + step for step in range(19))]
            ),
        },
    )
    return msgspec.structs.replace(complete, **changes)


def comparison(**changes: Any) -> Comparison:
    """Return three candidates on GPUs with unequal batches; one of them failed."""
    complete = Comparison(
        title="single, ddp and broken",
        kind="bench",
        baseline="single",
        candidates=[
            candidate("single", 5000, strategy="single", overlap=None),
            candidate("ddp", 9000, ratio=Interval(1.8, 1.7, 1.9)),
            Candidate(
                name="broken",
                strategy="allreduce",
                launcher="spawn",
                precision="bf16",
                world_size=None,
                devices=[],
                folders=[],
                problem="rank 1: ValueError: no",
            ),
        ],
        results=[
            "fastest: ddp with 9,000 samples/s (median)",
            "ddp is 1.80× single (95 % CI 1.70–1.90)",
        ],
        equal={"model": "mlp"},
        differences=[
            Difference(key="train.batch_size", values=["128", "256", None], fair=False),
            Difference(key="strategy", values=["single", "ddp", "allreduce"], fair=True),
        ],
        warnings=["broken failed: rank 1: ValueError: no"],
        provenance={
            "host": "here",
            "torch": "2.13",
            "numpy": "2.4",
            "records": [{"id": "x", "notes": "n"}],
        },
    )
    return msgspec.structs.replace(complete, **changes)
