"""Files that are not trusted."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

from distrain.runners.system.files import read_regular


def test_reading_a_small_file_takes_little_memory(tmp_path: Path) -> None:
    """A buffer of the most that is allowed took most of the time of listing runs."""
    path = tmp_path / "run.json"
    path.write_bytes(b"x" * 1000)
    tracemalloc.start()
    try:
        assert read_regular(path) == b"x" * 1000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20
