"""Files that a program writes with `torch.save`, or `save_file` of safetensors.

Only paths are noted. What is written to an open file, as by `torch.distributed.checkpoint`, is not.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import wrapt

from distrain.runners.instrumentation import problems
from distrain.runners.instrumentation.automatic import hooked, rank_facts


def install() -> None:
    import torch

    torch.save = torch.serialization.save = _noting(torch.save, "f")
    wrapt.register_post_import_hook(_wrap_safetensors, "safetensors.torch")


def _wrap_safetensors(module: Any) -> None:
    if hasattr(module, "save_file"):
        module.save_file = _noting(module.save_file, "filename")


def _noting(save: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return a function that notes the path it is given as its second argument, by this name."""

    @functools.wraps(save)
    def call(*args: Any, **options: Any) -> Any:
        returned = save(*args, **options)
        if hooked.thread != hooked.NO_THREAD:
            try:
                _note(args[1] if len(args) > 1 else options[name])
            except Exception:
                problems.print_first()
        return returned

    return call


def _note(file: Any) -> None:
    if isinstance(file, str | os.PathLike):
        path = os.path.realpath(os.fsdecode(file))
        if os.path.isfile(path):  # not a device such as /dev/null
            rank_facts.collector.add_saved(path)
