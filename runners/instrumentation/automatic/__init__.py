"""What is observed of a script that is not changed.

`install` lets each module of this package wait for the library that it observes: `torch_hooks` for
torch, `loggers` for those that log values. Nothing is touched that the script does not import, and
nothing is imported for it. `hooked` is the session for which this process is observed.
"""

from __future__ import annotations

import sys

from distrain.runners.instrumentation.automatic import hooked
from distrain.runners.instrumentation.rank_session import RankSession
from distrain.runners.instrumentation.sources import VALUES

TORCH_HOOKS = f"{__name__}.torch_hooks"
_is_installed = False
WITHOUT_TORCH = "not reported by the script, which does not import torch"
NO_VALUES = "nothing was logged by distrain.log(), TensorBoard, wandb, trackio or MLflow"


def install(session: RankSession) -> None:
    """Observe this process for a session, from now on or from the import of a library on."""
    global _is_installed
    session.sources.lose(WITHOUT_TORCH)
    session.sources.reasons[VALUES] = NO_VALUES
    hooked.begin(session)
    if torch_hooks := sys.modules.get(TORCH_HOOKS):  # of an earlier run of this process
        torch_hooks.attach(session)
    if not _is_installed:
        _is_installed = True
        from wrapt import register_post_import_hook

        from distrain.runners.instrumentation.automatic import loggers

        register_post_import_hook(f"{TORCH_HOOKS}:install", "torch")
        register_post_import_hook(f"{TORCH_HOOKS}:hide_from_compiler", "torch._dynamo")
        loggers.install()


def end() -> None:
    """Observe this process no longer."""
    hooked.end()
