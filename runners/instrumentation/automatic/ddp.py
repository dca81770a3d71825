"""Communication as DistributedDataParallel times it: its first steps, then one in a hundred."""

from __future__ import annotations

import functools
import time
import weakref
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from distrain.runners.instrumentation.hook_results import Communication
from distrain.runners.instrumentation.rank_session import RankSession

READ_EVERY_S = 1.0
_NANOSECOND = 1e-9
_modules: weakref.WeakSet[DistributedDataParallel] = weakref.WeakSet()


def install() -> None:
    initialise = DistributedDataParallel.__init__

    @functools.wraps(initialise)
    def observe(wrapper: Any, /, *arguments: Any, **options: Any) -> None:  # also module=…
        initialise(wrapper, *arguments, **options)
        _modules.add(wrapper)

    DistributedDataParallel.__init__ = observe  # type: ignore[assignment, method-assign]


def attach(session: RankSession) -> None:
    """Let a session read what DDP has timed."""
    session.automatic.communication = _Timing().read


class _Timing:
    """Reads what DDP has timed, once a second."""

    def __init__(self) -> None:
        self._last_read = 0.0
        self._found: Communication | None = None

    def read(self) -> Communication | None:
        """Return the means of the steps that DDP has timed; None before the first one."""
        now = time.perf_counter()
        if _modules and now - self._last_read >= READ_EVERY_S:
            timed = [found for module in _modules if (found := _read(module))]
            if timed:
                self._last_read = now
                self._found = max(timed)
        return self._found


def _read(module: DistributedDataParallel) -> Communication | None:
    data = module._get_ddp_logging_data()
    # Means of the steps that were timed: one alone may be very different from the others.
    sending = data.get("avg_backward_comm_time", 0) * _NANOSECOND
    computing = data.get("avg_backward_compute_time", 0) * _NANOSECOND
    overlap = data.get("avg_backward_compute_comm_overlap_time", 0) * _NANOSECOND
    waited = sending - overlap
    if sending <= 0 or waited < 0 or computing <= 0:
        return None
    return Communication(waited, waited / (waited + computing), overlap)
