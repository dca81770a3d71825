"""Fixtures that several packages' tests use."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.fake_nvml import COMPILER, FakeNvml, compile_library
from tests.support.full_disk import Disk

# OpenMP's threads spin while they wait. Where tests share the cores that doubles the CPU time.
os.environ.setdefault("GOMP_SPINCOUNT", "0")

# Under nohup SIGHUP is ignored, and the programs that tests start would inherit that.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# A slow example may only mean that the machine is busy.
settings.register_profile("distrain", deadline=None)
settings.load_profile("distrain")


@pytest.fixture(scope="session", autouse=True)
def _own_device_queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Separate the device queue from that of other test processes and of the user's own runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DISTRAIN_CLAIMS_DIR", str(tmp_path_factory.mktemp("claims")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _own_trust(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Separate the hashes of what tests launch from those of the user's own runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if COMPILER is None:
        pytest.skip("the stand-in for NVML needs a C compiler")
    return compile_library(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def fake_nvml(nvml_library: Path, tmp_path: Path) -> FakeNvml:
    """Return a machine with one GPU; `has` changes its GPUs, `python` runs code on it."""
    return FakeNvml(nvml_library, tmp_path)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Return a disk that a test can fill; ask for it before the writer."""
    return Disk(monkeypatch)
