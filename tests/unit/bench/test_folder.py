"""The folder of a new bench."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrain.runners.bench import folder
from distrain.runners.errors import RunsFolderError
from tests.support.benches import make_bench


def test_a_bench_whose_id_is_taken_leaves_the_one_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "new_run_id", lambda *_: "20261121-044117-bench-x7k2")
    first = make_bench(tmp_path)
    with pytest.raises(RunsFolderError, match="File exists"):
        make_bench(tmp_path)
    assert first.status == "completed"
