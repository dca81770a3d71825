"""Hooks into torch, once a script has imported it."""

from __future__ import annotations

from typing import Any

from distrain.runners.instrumentation import problems
from distrain.runners.instrumentation.automatic import (
    backward,
    data_loaders,
    ddp,
    gradient_scaler,
    hooked,
    optimizers,
    rank_facts,
    saved_files,
)
from distrain.runners.instrumentation.rank_session import RankSession
from distrain.runners.instrumentation.sources import LOADER

NO_STEP = "no optimizer of torch has stepped in the thread that is observed"
NO_LOADER = "no batch of a DataLoader came before a step"
REASONS = {
    "steps": NO_STEP,
    "samples": NO_LOADER,
    "lr": NO_STEP,
    "data": NO_LOADER,
    "forward": "no batch of a DataLoader marks its begin; use distrain.phase()",
    "backward": "no call of backward() came before a step",
    "comm": "only DistributedDataParallel times it, on some steps",
    "optimizer": NO_STEP,
}


def install(_torch: Any) -> None:
    """Observe training with torch, which is imported."""
    try:
        for module in (optimizers, gradient_scaler, data_loaders, backward, ddp, saved_files):
            module.install()
        attach(hooked.session)
    except Exception:  # an unknown version of torch
        problems.print_first()


def attach(session: RankSession) -> None:
    """Let a session know what the hooks observe."""
    session.sources.reasons |= REASONS
    session.sources.loader = LOADER
    optimizers.attach(session)
    data_loaders.attach(session)
    ddp.attach(session)
    rank_facts.attach(session)


def hide_from_compiler(dynamo: Any) -> None:
    """Let torch.compile run the hooks as they are, where it would compile or warn of them."""
    try:
        dynamo.trace_rules.add("distrain.runners.instrumentation")
    except Exception:
        problems.print_first()
