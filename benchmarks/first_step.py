"""Report when a rank's first optimizer step ended, in the same way for every script."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from distrain.models.classification import Classification
from distrain.models.data import Data

FOLDER = "FIRST_STEP_FOLDER"


def classification(model: nn.Module, data: Data) -> Classification:
    """Return the built-in task, in a rank that reports the end of its first step."""
    tell_first_step()
    return Classification(model, data)


def tell_first_step() -> None:
    """Write the time of this process's first step to a file named after its rank."""
    path = Path(os.environ[FOLDER]) / os.environ.get("RANK", "0")

    def ended(*_: Any) -> None:
        handle.remove()
        draft = path.with_suffix(".new")
        draft.write_text(repr(time.time()))
        draft.replace(path)

    handle = register_optimizer_step_post_hook(ended)
