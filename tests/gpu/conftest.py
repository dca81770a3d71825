"""Tests that need an NVIDIA GPU and a torch that can use it; skipped otherwise."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def device() -> torch.device:
    if not torch.cuda.is_available():
        pytest.skip("no GPU that torch can use")
    return torch.device("cuda", 0)
