"""Distributed PyTorch training: `from distrain import launch, load_preset`.

This package is the public API. Importing it loads neither torch nor textual. The code is in
`distrain.runners` (the engine), `distrain.models` (what is trained), `distrain.tui` (the terminal
app) and `distrain.presets` (built-in configurations).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distrain.runners.analysis.comparison.recorded_runs import compare as compare
    from distrain.runners.config.presets import load_preset as load_preset
    from distrain.runners.config.schema import RunConfig as RunConfig
    from distrain.runners.errors import ConfigError as ConfigError
    from distrain.runners.errors import DistrainError as DistrainError
    from distrain.runners.groups import launch_sweep as launch_sweep
    from distrain.runners.instrumentation.api import init as init
    from distrain.runners.instrumentation.api import log as log
    from distrain.runners.instrumentation.api import log_eval as log_eval
    from distrain.runners.instrumentation.api import phase as phase
    from distrain.runners.instrumentation.api import should_stop as should_stop
    from distrain.runners.instrumentation.api import step as step
    from distrain.runners.instrumentation.api import track as track
    from distrain.runners.protocol.reporter import Reporter as Reporter
    from distrain.runners.records.reader import Record as Record
    from distrain.runners.runs import Run as Run
    from distrain.runners.runs import all_runs as all_runs
    from distrain.runners.runs import find as find
    from distrain.runners.runs import launch as launch
    from distrain.runners.verification.cases import verify as verify

_HOMES = {
    "ConfigError": "errors",
    "DistrainError": "errors",
    "Record": "records.reader",
    "Reporter": "protocol.reporter",
    "Run": "runs",
    "RunConfig": "config.schema",
    "all_runs": "runs",
    "compare": "analysis.comparison.recorded_runs",
    "find": "runs",
    "init": "instrumentation.api",
    "launch": "runs",
    "launch_sweep": "groups",
    "load_preset": "config.presets",
    "log": "instrumentation.api",
    "log_eval": "instrumentation.api",
    "phase": "instrumentation.api",
    "should_stop": "instrumentation.api",
    "step": "instrumentation.api",
    "track": "instrumentation.api",
    "verify": "verification.cases",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    # Ranks, the supervisor and the command line each need a different part of the engine.
    if name in _HOMES:
        found = getattr(import_module(f"distrain.runners.{_HOMES[name]}"), name)
        globals()[name] = found  # a script calls some of them in every step
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
