"""Bench: candidates measured in interleaved rounds of real runs.

    from distrain.runners import bench

    candidates = bench.candidates(["single", "ddp"], {})
    print(bench.start(bench.make(candidates, {})).wait().results)

Owns what is measured, in which order and for how long; `analysis.comparison` owns what the
measurements mean. A bench is a folder among the runs. A process of its own measures it and outlives
the program that started it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distrain.runners.bench.candidate_texts import candidates as candidates
    from distrain.runners.bench.definition import Definition as Definition
    from distrain.runners.bench.definition import Target as Target
    from distrain.runners.bench.definition import make as make
    from distrain.runners.bench.definition import plans as plans
    from distrain.runners.bench.handle import Bench as Bench
    from distrain.runners.bench.handle import all_benches as all_benches
    from distrain.runners.bench.handle import find as find
    from distrain.runners.bench.handle import start as start
    from distrain.runners.bench.state import BenchState as BenchState

_MODULES = {
    "Bench": "handle",
    "BenchState": "state",
    "Definition": "definition",
    "Target": "definition",
    "all_benches": "handle",
    "candidates": "candidate_texts",
    "find": "handle",
    "make": "definition",
    "plans": "definition",
    "start": "handle",
}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    # The modules of this package import each other, so the package imports none of them at once.
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
