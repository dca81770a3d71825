"""Each benchmark runs and fills its tables. Speed is not tested."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support import ROOT


def tables(tmp_path: Path, name: str, *arguments: str) -> dict[str, list[dict[str, Any]]]:
    """Run `python -m benchmarks.NAME` and return its tables."""
    out = tmp_path / "out.json"
    subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *arguments, "--json", str(out)],
        cwd=ROOT,
        check=True,
        timeout=240,
    )
    written = json.loads(out.read_text())
    assert written["machine"]["cores"] >= 1
    return dict(written["tables"])


def test_overhead_compares_both_loops(tmp_path: Path) -> None:
    case = "tiny mlp, single"
    steps, parts = tables(tmp_path, "overhead", "--quick", "--cases", case).values()
    assert [row["case"] for row in steps] == [case]
    assert float(steps[0]["ratio"]) > 0
    assert float(next(row[case] for row in parts if row["what"].startswith("sum"))) > 0


def test_script_compares_turns_with_and_without_calls(tmp_path: Path) -> None:
    (table,) = tables(tmp_path, "script", "--seconds", "2", "--cases", "tiny").values()
    assert [row["script"] for row in table] == ["A/A", "automatic", "track and log"]
    assert float(table[0]["ratio"]) > 0


def test_peers_compares_processes(tmp_path: Path) -> None:
    (table,) = tables(tmp_path, "peers", "--rounds", "1", "--seconds", "1").values()
    assert [row["command"] for row in table] == ["python again", "distrain run"]
    assert float(table[1]["speed"]) > 0


def test_startup_compares_first_steps_and_reads_memory(tmp_path: Path) -> None:
    times, memory = tables(tmp_path, "startup", "--quick").values()
    started = ["first step of a preset", "first step of a script", "import distrain"]
    assert [row["what"] for row in times] == started
    assert all(float(row["MB (PSS)"]) > 0 for row in memory)


def test_ingest_finds_every_window_in_the_record(tmp_path: Path) -> None:
    [[row]] = tables(tmp_path, "ingest", "--quick").values()
    assert (row["lost"], row["wrong sums"], row["status"]) == (0, 0, "completed")


def test_open_reads_every_record_it_made(tmp_path: Path) -> None:
    [rows] = tables(tmp_path, "open", "--sizes", "8000", "16000", "--repeats", "1").values()
    assert [row["step rows"] for row in rows] == ["8,000", "16,000"]


def test_open_logged_reads_every_name(tmp_path: Path) -> None:
    asked = ("--sizes", "2000", "4000", "--repeats", "1")
    [rows] = tables(tmp_path, "open_logged", *asked).values()
    assert [row["rows per name"] for row in rows] == ["20", "40"] * 3


def test_stragglers_counts_the_named_ranks(tmp_path: Path) -> None:
    asked = ("--runs", "1", "--more", "0", "--steps", "40")
    late, clean = tables(tmp_path, "stragglers", *asked).values()
    assert [row["runs"] for row in late] == [1, 0, 0]
    assert [row["runs"] for row in clean] == [1, 0, 0]


def test_tui_fills_every_table_and_loads_no_torch(tmp_path: Path) -> None:
    found = tables(tmp_path, "tui", "--quick")
    paint, modules, taken, cluster, keys, burst, opening, memory, claims = found.values()
    assert (len(paint), len(opening)) == (2, 4)
    assert all(float(row["ms"]) > 0 for row in (*paint, *opening[:3]))
    assert {row["torch"] for row in modules} == {"no"}
    assert (len(taken), len(cluster)) == (4, 1)
    assert keys[-1]["key"] == "all"
    assert [row["distrain"] for row in burst] == [50]
    assert all(float(row["MB"]) > 0 for row in memory)
    assert len(claims) == 8


def test_soak_finds_everything_in_the_record_and_nothing_left(tmp_path: Path) -> None:
    held, reporters, lost, left = tables(tmp_path, "soak", "--quick").values()
    assert {"rank 0", "supervisor"} <= {row["process"] for row in held}
    assert [row["rank"] for row in reporters] == [0, 1]
    assert {row["equal"] for row in lost} == {"yes"}
    assert {row["holds"] for row in left} == {"yes"}


def test_listing_compares_folders(tmp_path: Path) -> None:
    [rows] = tables(tmp_path, "listing", "--runs", "3", "--rounds", "1").values()
    assert [row["runs"] for row in rows] == ["0", "3"]
