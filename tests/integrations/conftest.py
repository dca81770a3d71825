"""Tests with the real libraries: skipped without them, unless DISTRAIN_INTEGRATIONS=required."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from distrain import Record
from distrain.runners.records.timeseries.series import LOGGED
from tests.integration.cli.conftest import distrain, runs_dir
from tests.integration.cli.conftest import environment as plain_environment
from tests.integration.scripts.conftest import plain, write
from tests.integration.scripts.test_stopping import launch

__all__ = ["distrain", "launch", "plain", "plain_environment", "runs_dir", "write"]

LIBRARIES = (
    "accelerate",
    "lightning",
    "mlflow",
    "tensorboard",
    "tensorboardX",
    "torchmetrics",
    "trackio",
    "transformers",
    "wandb",
)

History = Callable[[], Any]


@pytest.fixture(scope="session", autouse=True)
def _libraries() -> None:
    if missing := [name for name in LIBRARIES if importlib.util.find_spec(name) is None]:
        why = f"not installed: {', '.join(missing)}; run make test-integrations"
        if os.environ.get("DISTRAIN_INTEGRATIONS") == "required":
            pytest.fail(why)
        pytest.skip(why)


@pytest.fixture
def environment(plain_environment: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """Return an environment in which no library uses the network or the user's own files."""
    return plain_environment | {
        "HOME": str(tmp_path),
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_TRACKING_URI": f"file://{tmp_path}/mlruns",
        "OMP_NUM_THREADS": "1",
        "TRACKIO_DIR": str(tmp_path / "trackio"),
        "WANDB_MODE": "offline",
        "WANDB_ERROR_REPORTING": "false",
    }


@pytest.fixture
def history(tmp_path: Path) -> History:
    """Return a function that reads what a program has written to history.json about itself."""
    return lambda: json.loads((tmp_path / "history.json").read_text())


def curve(record: Record, name: str, rank: int = 0) -> tuple[int, float, int]:
    """Return how many values were recorded, their sum and the step of the last one."""
    key = record.logged()[name][rank]
    total = record.totals(LOGGED)[key]
    return total["finite"], total["total"], [*record.curve(LOGGED, key)["step"]][-1]
