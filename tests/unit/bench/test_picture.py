"""What a terminal shows while a bench runs."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from msgspec import structs

from distrain.runners.bench.folder import write_bench_state
from distrain.runners.cli.bench_presentation import BenchLines, BenchPicture
from tests.support.benches import make_bench
from tests.support.records import RunBuilder


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


def test_a_bench_names_its_run_that_stands_still(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, status="running")
    current = bench.state.current
    assert current is not None
    builder = RunBuilder(bench.records_dir)
    write_bench_state(
        bench.dir, structs.replace(bench.state, current=structs.replace(current, run_id=builder.id))
    )
    lines, picture = StringIO(), StringIO()
    printed, painted = BenchLines(bench, lines), BenchPicture(bench, picture)
    printed.update()
    builder.stalled()
    for _ in range(2):
        printed.update()
    painted.update()
    painted.close()
    for shown in (lines.getvalue(), picture.getvalue()):
        assert shown.count(f"run {builder.id}: no progress for ") == 1
