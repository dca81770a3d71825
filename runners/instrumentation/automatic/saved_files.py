"""Files that a program writes with `torch.save`, or `save_file` of safetensors.

Only paths are noted. What is written to an open file, as by `torch.distributed.checkpoint`, is not.
"""

from __future__ import annotations

import os
from typing import Any

import wrapt

from distrain.runners.instrumentation.automatic import hooked, rank_facts


def install() -> None:
    import torch

    torch.save = torch.serialization.save = hooked.followed_by(_note_torch, torch.save)
    wrapt.register_post_import_hook(_wrap_safetensors, "safetensors.torch")


def _wrap_safetensors(module: Any) -> None:
    if hasattr(module, "save_file"):
        module.save_file = hooked.followed_by(_note_safetensors, module.save_file)


def _note_torch(obj: Any, f: Any, *_: Any, **__: Any) -> None:
    _note(f)


def _note_safetensors(tensors: Any, filename: Any, *_: Any, **__: Any) -> None:
    _note(filename)


def _note(file: Any) -> None:
    if isinstance(file, str | os.PathLike):
        path = os.path.realpath(os.fsdecode(file))
        if os.path.isfile(path):  # not a device such as /dev/null
            rank_facts.collector.add_saved(path)
