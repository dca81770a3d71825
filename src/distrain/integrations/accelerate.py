"""A tracker for Accelerate: `Accelerator(log_with=DistrainTracker())`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import distrain
from distrain.integrations import only_numbers

try:
    from accelerate.tracking import GeneralTracker
except ModuleNotFoundError as error:
    raise ImportError(
        f"distrain.integrations.accelerate needs the package accelerate: {error}"
    ) from None


class DistrainTracker(GeneralTracker):  # type: ignore[misc]
    """Reports what is passed to `accelerator.log`, and the settings given to `init_trackers`.

    Accelerate calls its trackers on rank 0 only. Other ranks may call `distrain.log`.
    """

    name = "distrain"
    requires_logging_directory = False

    def __init__(self) -> None:
        super().__init__()
        self._run = distrain.init(reuse=True)

    @property
    def tracker(self) -> Any:
        """The run, as `distrain.init` returns it."""
        return self._run

    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        distrain.init(config=values, reuse=True)

    def log(self, values: Mapping[str, Any], step: int | None = None, **_: Any) -> None:
        distrain.log(only_numbers(values), step)

    def finish(self) -> None:
        self._run.finish()
