"""Benches of scripts: stopped after as many steps as wanted, whatever the scripts do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distrain.runners import bench
from distrain.runners.bench import Bench
from distrain.runners.records.reader import Record
from tests.integration.bench.test_bench import command

# A step takes at least a fixed time. How many there were is written by the script itself.
TRAIN = """
import argparse
import atexit
import time

import distrain

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=0.02)
parser.add_argument("--steps", type=int, default=10**9)
parser.add_argument("--batch", type=int)
parser.add_argument("--careful", action="store_true")
arguments = parser.parse_args()
config = {"global_batch": 2 * arguments.batch, "model": "none"} if arguments.batch else None
run = distrain.init(config=config)
counted = 0
atexit.register(lambda: (run.dir / f"counted-{run.rank}").write_text(str(counted)))
for counted in range(1, arguments.steps + 1):
    time.sleep(arguments.seconds)
    distrain.step(samples=arguments.batch) if arguments.batch else distrain.step()
    if arguments.careful and distrain.should_stop():
        break
print("all steps done")
"""


@pytest.fixture(autouse=True)
def programs(user_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (user_folder / "train.py").write_text(TRAIN)
    (user_folder / "silent.py").write_text("print('nothing to report')\n")
    (user_folder / "broken.py").write_text("raise ValueError('no such layer')\n")
    return user_folder


def test_scripts_are_measured_for_as_many_steps_as_wanted(started_benches: list[Bench]) -> None:
    """Two that go on, of which one asks whether to stop; and one each that ends early, reports
    nothing, crashes.
    """
    texts = [
        *("train.py", "train.py --seconds 0.06 --careful", "train.py --steps 45"),
        *("silent.py", "broken.py"),
    ]
    configs = bench.candidates(texts, {"devices": "cpu:1", "launcher": "inline"})
    started_benches.append(bench.start(bench.make(configs, {"repeats": 2, "steps": 50})))
    (measured,) = started_benches
    found = measured.wait()
    fast, slow, short, silent, broken = found.candidates
    assert measured.status == "completed", measured.reason
    assert found.unit == "steps/s"
    assert slow.ratio is not None
    assert slow.ratio.value < 1
    assert "no step of the script was observed; call distrain.step()" in silent.problem
    assert "ValueError: no such layer" in broken.problem
    for each in measured.state.measurements:
        folder = measured.records_dir / each.run_id
        record = Record(folder)
        log = (folder / "logs" / "rank-0.log").read_text()
        counted = int((folder / "counted-0").read_text())
        (rank,) = record.ranks()
        interrupted = each.candidate == fast.name  # between two steps, or before one is reported
        assert rank.step in (counted, counted - interrupted)
        assert each.steps <= counted
        if each.candidate == short.name:
            assert each.ended_early
            assert counted == 45
            assert record.status == "completed"
        else:
            assert each.steps >= 50
            assert not each.ended_early
            assert record.status == "stopped"
            assert ("KeyboardInterrupt" in log) == interrupted
    assert any(f"{short.name} ended by itself in " in text for text in found.warnings)
    assert "data" in found.unchecked


def test_what_scripts_declare_must_be_equal(user_folder: Path) -> None:
    """The samples of both ranks count; the bench ends once their batches prove to be unequal."""
    texts = ("train.py --batch 8", "train.py --batch 16")
    rules = ("--devices=cpu:2", "--seconds=0.5", "--repeats=5", "--name=two", "--json")
    done = command("bench", *texts, *rules)
    assert done.returncode == 1
    assert "what the scripts declare is compared once each has run" in done.stderr
    assert "global_batch is 16 in train.py --batch 8, 32 in train.py --batch 16" in done.stderr
    found = json.loads(done.stdout)
    assert found["unit"] == "samples/s"
    assert found["equal"]["model"] == "none"
    assert "model" not in found["unchecked"]
    for each, batch in zip(found["candidates"], (16, 32), strict=True):
        (rate,) = each["rates"]
        assert each["rate"] is None, "one round has no interval"
        assert 0 < rate <= batch / 0.02
    shown = command("show", "two").stdout
    assert "do not declare it: data, train_samples, precision and seed" in shown
    refused = command("bench", "train.py", "--batch", "8")
    assert refused.returncode == 2
    assert "quote a script together with its arguments" in refused.stderr
