"""Steps that a gradient scaler skips, because gradients have overflowed in fp16.

They count as steps, and are reported as skipped too, as in distrain's own loop.
"""

from __future__ import annotations

import functools
from threading import get_ident
from typing import Any

from torch.amp.grad_scaler import GradScaler

from distrain.runners.instrumentation import problems
from distrain.runners.instrumentation.automatic import hooked, optimizers


def install() -> None:
    step = GradScaler.step

    @functools.wraps(step)
    def observe(scaler: GradScaler, /, optimizer: Any, *args: Any, **options: Any) -> Any:
        before = optimizers.count_finished()
        result = step(scaler, optimizer, *args, **options)
        if get_ident() == hooked.thread and scaler.is_enabled():
            try:
                _note(scaler, optimizer, has_stepped=optimizers.count_finished() > before)
            except Exception:
                problems.print_first()
        return result

    GradScaler.step = observe  # type: ignore[assignment, method-assign]


def _note(scaler: Any, optimizer: Any, *, has_stepped: bool) -> None:
    if not has_stepped:
        if not optimizers.is_seen(optimizer):  # it may step by another one, whose steps count
            return
        optimizers.count_step(optimizer)
        if optimizers.is_counted(optimizer):
            hooked.session.automatic.skipped.append(True)
    elif getattr(optimizer, "_step_supports_amp_scaling", False) and optimizers.is_counted(
        optimizer
    ):  # a fused one decides by itself, on its device
        flags = [*scaler._found_inf_per_device(optimizer).values()]
        # Copies, because the scaler adds the flags of other optimizers to the first one.
        hooked.session.automatic.skipped += [flag.clone() for flag in flags[:1]]
