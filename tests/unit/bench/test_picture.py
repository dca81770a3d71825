"""What a terminal shows while a bench runs."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest

from distrain.runners.cli.bench_presentation import BenchPicture
from tests.support.benches import make_bench


@pytest.mark.parametrize("is_live", [True, False])
def test_the_picture_of_a_bench_disappears_at_its_end_because_the_results_follow(
    tmp_path: Path, is_live: bool
) -> None:
    bench = make_bench(tmp_path, status="running" if is_live else "completed")
    output = StringIO()
    picture = BenchPicture(bench, output)
    assert picture.update() == is_live
    picture.close()
    assert ("candidate" in output.getvalue()) == is_live
