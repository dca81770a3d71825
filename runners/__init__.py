"""How training is run and what is known of it: `from runners import launch, load_preset`.

Owns configs, launching, supervision, records and their reader. Does not know what is trained
(`models`) nor how it is shown (`tui`). Importing it loads neither torch nor textual.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runners.comparison.of_runs import compare as compare
    from runners.config import RunConfig as RunConfig
    from runners.errors import ConfigError as ConfigError
    from runners.errors import DistrainError as DistrainError
    from runners.presets import load_preset as load_preset
    from runners.record import Record as Record
    from runners.reporter import Reporter as Reporter
    from runners.runs import Run as Run
    from runners.runs import all_runs as all_runs
    from runners.runs import find as find
    from runners.runs import launch as launch
    from runners.verification.cases import verify as verify

_HOMES = {
    "ConfigError": "errors",
    "DistrainError": "errors",
    "Record": "record",
    "Reporter": "reporter",
    "Run": "runs",
    "RunConfig": "config",
    "all_runs": "runs",
    "compare": "comparison.of_runs",
    "find": "runs",
    "launch": "runs",
    "load_preset": "presets",
    "verify": "verification.cases",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    # Ranks, the supervisor and the command line each need a different part of this package.
    if name in _HOMES:
        return getattr(import_module(f"runners.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
