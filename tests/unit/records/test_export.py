"""Exports contain what the record contains, in formats that other programs read."""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import DistrainError
from distrain.runners.protocol.events import (
    Evaluation,
    GpuSample,
    Hello,
    HostSample,
    Logged,
    LoggedStats,
    Metric,
    Notice,
    Window,
    decode,
)
from distrain.runners.records.export import TENSORBOARD_DRAFT, Format, export
from distrain.runners.records.folder import create_run
from distrain.runners.records.reader import Record
from distrain.runners.records.writer import RecordWriter
from tests.support.records import RunBuilder, make_window

STEPS = 40


WINDOWS = [
    make_window(rank, step, time=1000.0 + step + rank / 10)
    for step in range(1, STEPS + 1)
    for rank in (0, 1)
]
WINDOWS[6] = make_window(0, 4, loss_sum=None, loss_min=None, loss_max=None)
EVALUATION = Evaluation(
    time=1020.5, epoch=1, step=20, samples=8, seconds=1.0, metrics={"top1": Metric(6.0, 8)}
)


@pytest.fixture
def record(tmp_path: Path) -> Record:
    folder = create_run(tmp_path, RunConfig(), word="ddp")
    writer = RecordWriter(folder)
    writer.add(Hello(rank=0, pid=5))
    for window in WINDOWS:
        writer.add(window)
    writer.add(Notice(time=1010.5, text='a "quoted"\nline'))
    writer.add(EVALUATION)
    writer.add(GpuSample(time=1015.5, gpu=0, uuid="GPU-1", name="H", power=300.0))
    writer.add(HostSample(time=1015.5, cpu=5.0, memory_used=1.0, memory_total=2.0, load=0.1))
    writer.close()
    return Record(folder)


def test_csv_has_a_row_for_every_window(record: Record) -> None:
    text = io.StringIO()
    export(record, "csv", text)
    rows = list(csv.DictReader(io.StringIO(text.getvalue())))
    assert len(rows) == len(WINDOWS)
    assert set(rows[0]) == set(Window.__struct_fields__)
    assert sum(int(row["samples"]) for row in rows) == 4 * len(WINDOWS)
    assert [row["step"] for row in rows if row["loss_sum"] == ""] == ["4"]


def test_jsonl_has_everything_in_order_of_time(record: Record, tmp_path: Path) -> None:
    export(record, "jsonl", tmp_path / "out.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    times = [line["time"] for line in lines if "time" in line]
    assert times == sorted(times)
    kinds = [line["type"] for line in lines]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "hello": 1,
        "window": len(WINDOWS),
        "notice": 1,
        "evaluation": 1,
        "gpu": 1,
        "host": 1,
    }
    said = [decode(json.dumps(line).encode()) for line in lines if line["type"] == "window"]
    assert said == WINDOWS


def test_without_a_file_data_goes_to_stdout(
    record: Record, capsys: pytest.CaptureFixture[str]
) -> None:
    export(record)
    assert len(capsys.readouterr().out.splitlines()) == len(WINDOWS) + 1


def test_tensorboard_gets_the_curves_with_their_times(record: Record, tmp_path: Path) -> None:
    export(record, "tensorboard", tmp_path / "tb")
    scalars = read_tensorboard(tmp_path / "tb")
    assert set(scalars) == {
        *(f"{name}/{who}" for name in ("loss", "samples_per_s", "lr") for who in WHO),
        "gpu0/power",
        "eval/top1",
    }
    assert scalars["loss/rank1"] == [(step, 1000.1 + step, 2.0) for step in range(1, STEPS + 1)]
    assert [step for step, _, _ in scalars["loss/rank0"]] == [
        step for step in range(1, STEPS + 1) if step != 4
    ]
    assert scalars["samples_per_s/all"][-1] == (STEPS, 1000.0 + STEPS, 16.0)
    assert scalars["eval/top1"] == [(20, 1020.5, 0.75)]


WHO = ("all", "rank0", "rank1")


def read_tensorboard(folder: Path) -> dict[str, list[tuple[int, float, float]]]:
    """Return (step, wall time, value) by tag, read from the event files."""
    from tensorboardX.proto.event_pb2 import Event

    found: dict[str, list[tuple[int, float, float]]] = {}
    (path,) = folder.glob("*tfevents*")
    data = path.read_bytes()
    while data:
        size = int.from_bytes(data[:8], "little")
        event = Event.FromString(data[12 : 12 + size])
        for value in event.summary.value:
            row = (event.step, event.wall_time, value.simple_value)
            found.setdefault(value.tag, []).append(row)
        data = data[16 + size :]
    return found


@pytest.fixture
def logged(tmp_path: Path) -> Record:
    """Return a script's record: `loss` of two ranks in two steps, `lr` of rank 0, once infinite."""
    run = RunBuilder(tmp_path, script={"path": "train.py"})
    for loss in (3.0, 2.0):
        run.logged(loss=loss)
    for value in (0.1, float("inf")):
        stats = {"lr": LoggedStats.of([value])}
        run.writer.add(Logged(time=run.now, rank=0, step=2, values=stats))
    return run.end().record


def test_csv_of_the_table_logged_has_a_row_for_every_point(logged: Record) -> None:
    text = io.StringIO()
    export(logged, "csv", text, "logged")
    rows = csv.DictReader(io.StringIO(text.getvalue()))
    columns = ("name", "rank", "step", "count", "mean", "max", "last")
    assert [tuple(row[name] for name in columns) for row in rows] == [
        ("loss", "0", "1", "1", "3.0", "3.0", "3.0"),
        ("loss", "0", "2", "1", "2.0", "2.0", "2.0"),
        ("loss", "1", "1", "1", "4.0", "4.0", "4.0"),
        ("loss", "1", "2", "1", "3.0", "3.0", "3.0"),
        ("lr", "0", "2", "1", "0.1", "0.1", "0.1"),
        ("lr", "0", "2", "1", "", "", ""),
    ]


def test_csv_of_a_script_that_logs_has_its_windows_too(tmp_path: Path) -> None:
    record = (
        RunBuilder(tmp_path, script={"path": "train.py"}).steps(3).logged(loss=1.0).end().record
    )
    text = io.StringIO()
    export(record, "csv", text)
    rows = csv.DictReader(io.StringIO(text.getvalue()))
    assert [(row["rank"], row["step"], row["samples"]) for row in rows] == [
        (rank, step, "64") for rank in "01" for step in "123"
    ]


def test_jsonl_of_a_script_names_what_it_logged(logged: Record) -> None:
    text = io.StringIO()
    export(logged, "jsonl", text)
    rows = [json.loads(line) for line in text.getvalue().splitlines()]
    found = {(row["name"], row["rank"], row["step"]) for row in rows if row["type"] == "logged"}
    assert found == {*(("loss", rank, step) for rank in (0, 1) for step in (1, 2)), ("lr", 0, 2)}


def test_tensorboard_gets_a_tag_for_each_name_and_where_several_logged_it_each_rank(
    logged: Record, tmp_path: Path
) -> None:
    export(logged, "tensorboard", tmp_path / "tb")
    scalars = read_tensorboard(tmp_path / "tb")
    values = {tag: [(step, value) for step, _, value in rows] for tag, rows in scalars.items()}
    assert values == {
        "loss/all": [(1, 3.5), (2, 2.5)],
        "loss/rank0": [(1, 3.0), (2, 2.0)],
        "loss/rank1": [(1, 4.0), (2, 3.0)],
        "lr": [(2, pytest.approx(0.1))],
    }


def test_each_curve_has_a_tag_of_its_own_whatever_a_script_logs(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path, script={"path": "train.py"}).steps(1).logged(lr=0.5)
    values = {"eval/top1": 0.25, "a b": 1.0, "a_b": 2.0, "/": 3.0, "lr/all": 4.0, "loss": 5.0}
    stats = {name: LoggedStats.of([value]) for name, value in values.items()}
    run.writer.add(Logged(time=run.now, rank=0, step=2, values=stats))
    record = run.evaluation(top1=0.75).end().record
    export(record, "tensorboard", tmp_path / "tb")
    scalars = read_tensorboard(tmp_path / "tb")
    last = {tag: [round(value, 6) for _, _, value in rows] for tag, rows in scalars.items()}
    observed = {f"lr/{who}": [0.1] for who in WHO} | {f"loss/{who}": [1.0] for who in WHO}
    logged = {"lr_2/all": [1.0], "lr_2/rank0": [0.5], "lr_2/rank1": [1.5]}
    alone = {"eval/top1_2": [0.25], "a_b": [1.0], "a_b_2": [2.0], "_": [3.0], "lr/all_2": [4.0]}
    rates = {f"samples_per_s/{who}": [1280.0 if who == "all" else 640.0] for who in WHO}
    assert last == {**observed, **rates, "eval/top1": [0.75], **logged, **alone, "loss": [5.0]}


def test_tensorboard_gets_nothing_of_an_export_that_failed_or_was_killed(
    record: Record, tmp_path: Path
) -> None:
    folder = tmp_path / "tb"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(DistrainError, match=f"cannot write to {folder}: File too large"):
            export(record, "tensorboard", folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(folder.iterdir())
    (folder / TENSORBOARD_DRAFT).write_bytes(b"half of it")  # as one that was killed leaves it
    export(record, "tensorboard", folder)
    assert [path.name.partition(".")[0] for path in folder.iterdir()] == ["events"]
    assert read_tensorboard(folder)


@pytest.mark.parametrize("is_link", [True, False], ids=["link", "pipe"])
def test_an_export_to_a_folder_of_others_writes_to_none_of_ones_own_files(
    record: Record, tmp_path: Path, is_link: bool
) -> None:
    folder, mine = tmp_path / "tb", tmp_path / "mine"
    folder.mkdir()
    mine.write_text("mine")
    draft = folder / TENSORBOARD_DRAFT
    draft.symlink_to(mine) if is_link else os.mkfifo(draft)
    with pytest.raises(DistrainError, match=f"cannot write to {folder}"):
        export(record, "tensorboard", folder)
    assert mine.read_text() == "mine"
    assert list(folder.iterdir()) == [draft]


def test_two_exports_do_not_write_to_one_tensorboard_folder(record: Record, tmp_path: Path) -> None:
    folder = tmp_path / "tb"
    folder.mkdir()
    with (folder / TENSORBOARD_DRAFT).open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        other.write(b"of the other export")
        other.flush()
        with pytest.raises(DistrainError, match="another export is writing to"):
            export(record, "tensorboard", folder)
    assert (folder / TENSORBOARD_DRAFT).read_bytes() == b"of the other export"


@pytest.mark.parametrize("to", ["csv", "jsonl"])
def test_an_export_that_fails_leaves_the_file_of_an_earlier_one(
    record: Record, tmp_path: Path, to: Format
) -> None:
    folder = tmp_path / "exports"
    folder.mkdir()
    out = folder / "run"
    out.write_text("the earlier one")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(DistrainError, match=f"cannot write to {out}: File too large"):
            export(record, to, out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert out.read_text() == "the earlier one"
    assert list(folder.iterdir()) == [out]


def test_an_impossible_export_is_one_sentence(record: Record, tmp_path: Path) -> None:
    with pytest.raises(DistrainError, match="cannot export to 'cvs'; did you mean csv"):
        export(record, "cvs", tmp_path / "out")  # type: ignore[arg-type]
    with pytest.raises(DistrainError, match="tensorboard is written to a folder"):
        export(record, "tensorboard")
    with pytest.raises(DistrainError, match="--table chooses the rows of csv"):
        export(record, "jsonl", tmp_path / "out", "logged")
    with pytest.raises(DistrainError, match=r"cannot write to .*nowhere"):
        export(record, "csv", tmp_path / "nowhere" / "out.csv")


def test_a_file_is_utf_8_whatever_the_locale_is(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path, "mine").logged(Verlust_é=1.0).end()
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = ["export", str(run.dir), "--to", "jsonl", "--out", str(tmp_path / "out.jsonl")]
    subprocess.run(
        [sys.executable, "-m", "distrain", *words], env=os.environ | ascii_only, check=True
    )
    assert "Verlust_é" in (tmp_path / "out.jsonl").read_text("utf-8")


def test_a_record_that_has_lost_its_measurements_is_not_exported_as_an_empty_one(
    tmp_path: Path,
) -> None:
    run = RunBuilder(tmp_path).steps(10).end()
    run.record.close()
    (run.record.dir / "metrics.db").unlink()
    out = tmp_path / "run.csv"
    with pytest.raises(DistrainError, match=r"nothing to export: the metrics\.db of .* is missing"):
        export(Record(run.record.dir), "csv", out)
    assert not out.exists()
