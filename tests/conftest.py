"""Fixtures that several packages' tests use."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

from fake_nvml import COMPILER, FakeNvml, compile_library

# A busy machine is no fault of an example.
settings.register_profile("distrain", deadline=None)
settings.load_profile("distrain")


@pytest.fixture(scope="session", autouse=True)
def _claims_of_our_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Runs of other tests, at the same time, and of whoever runs the tests are in nobody's way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DISTRAIN_CLAIMS_DIR", str(tmp_path_factory.mktemp("claims")))
        yield


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if COMPILER is None:
        pytest.skip("the stand-in for NVML needs a C compiler")
    return compile_library(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def fake_nvml(nvml_library: Path, tmp_path: Path) -> FakeNvml:
    """A machine with one GPU; `has` changes that, `python` runs code on it."""
    return FakeNvml(nvml_library, tmp_path)
