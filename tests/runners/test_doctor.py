"""What the doctor says, and that no operation, however it goes wrong, can hold it up."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any, get_args

import psutil
import pytest
from fake_nvml import fake_torch
from msgspec import structs
from rich.console import Console

from runners import capabilities, config, doctor, operations
from runners.capabilities import Facts, not_applicable
from runners.devices import Device
from runners.horovod.presence import Presence
from runners.operations import OPERATIONS, Cell, probe_operations

CPU = ("cpu", "cpu")
GPU = Device(kind="cuda", index=0, uuid="GPU-1", name="NVIDIA Fake 80GB", memory=80 << 30)
BUILT_IN = {"gloo": True, "nccl": True, "mpi": False, "ucc": False}


def on_gpus(count: int) -> Facts:
    gpus = [GPU] * count
    return Facts(gpus=gpus, torch="2.13.0", cuda="12.8", backends=BUILT_IN, cuda_devices=count)


# --- a stand-in for the probe ------------------------------------------------------------------

STAND_IN = """
import json, os, signal, sys, time
arguments = dict(zip(sys.argv[2:-1:2], sys.argv[3::2]))
rank = int(arguments["--rank"])
asked = sys.argv[sys.argv.index("--operations") + 1:]
failed = []
def say(**message):
    print(json.dumps(message), flush=True)
def ok(operation):
    say(operation=operation, ok=True, reason="")
def no(operation, reason):
    failed.append(operation)
    say(operation=operation, ok=False, reason=reason)
{start}
say(ready=True)
for operation in asked:
    match operation:
{cases}
        case _:
            ok(operation)
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have pairs run a script that speaks the probe's protocol and goes wrong as told."""

    def use(cases: str = "", start: str = "") -> None:
        script = tmp_path / "stand_in.py"
        cases = textwrap.indent(textwrap.dedent(cases).strip(), " " * 8)
        script.write_text(STAND_IN.format(start=textwrap.dedent(start), cases=cases))
        monkeypatch.setattr(operations, "PROGRAM", [sys.executable, str(script)])

    monkeypatch.setattr(operations, "START_S", 5.0)
    monkeypatch.setattr(operations, "OPERATION_S", 1.0)
    monkeypatch.setattr(operations, "GRACE_S", 0.5)
    return use


def answers_other_than_yes(cells: dict[str, Cell]) -> dict[str, str]:
    assert tuple(cells) == OPERATIONS
    return {name: cell.answer for name, cell in cells.items() if cell.answer != "yes"}


def test_a_hang_is_named_and_the_others_are_still_tried(stand_in: Any) -> None:
    stand_in("""
        case "broadcast":
            time.sleep(60)
        case "gather" if rank == 1:
            time.sleep(60)
    """)
    began = time.monotonic()
    cells = probe_operations("gloo", CPU)
    assert answers_other_than_yes(cells) == {"broadcast": "hangs", "gather": "hangs"}
    assert time.monotonic() - began < 15


def test_nothing_of_a_hanging_pair_is_left(stand_in: Any) -> None:
    stand_in("""
        case "barrier":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(60)
    """)
    before = psutil.Process().children(recursive=True)
    probe_operations("gloo", CPU)
    assert psutil.Process().children(recursive=True) == before


def test_a_failure_of_one_rank_is_a_no_with_its_reason(stand_in: Any) -> None:
    stand_in("""
        case "scatter" if rank == 1:
            no(operation, "not for rank 1")
        case "scatter":
            time.sleep(60)
    """)
    cells = probe_operations("gloo", CPU)
    assert answers_other_than_yes(cells) == {"scatter": "no"}
    assert cells["scatter"].reason == "not for rank 1"


def test_a_death_is_a_no_and_says_how(stand_in: Any) -> None:
    stand_in("""
        case "reduce" if rank == 0:
            print("broken beyond repair", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
        case "reduce":
            no(operation, "connection closed by peer")
        case "all_to_all" if rank == 1:
            sys.exit("gave up")
    """)
    cells = probe_operations("gloo", CPU)
    assert answers_other_than_yes(cells) == {"reduce": "no", "all_to_all": "no"}
    assert cells["reduce"].reason == "rank 0 was killed by SIGSEGV: broken beyond repair"
    assert cells["all_to_all"].reason == "rank 1 left with 1: gave up"


def test_a_failure_after_a_failure_is_asked_again_of_a_fresh_pair(stand_in: Any) -> None:
    stand_in("""
        case "recv":
            no(operation, "not supported")
        case _ if failed:
            no(operation, "out of step")
    """)
    cells = probe_operations("gloo", CPU)
    assert answers_other_than_yes(cells) == {"recv": "no"}
    assert cells["recv"].reason == "not supported"


def test_a_rank_may_be_far_ahead_of_the_other(stand_in: Any) -> None:
    stand_in(
        cases="""
        case "gather" if rank == 1:
            no(operation, "wrong")
        """,
        start="time.sleep(0.5 * rank)",
    )
    assert answers_other_than_yes(probe_operations("gloo", CPU)) == {"gather": "no"}


@pytest.mark.parametrize(
    ("start", "answer", "reason"),
    [
        ("time.sleep(60)", "hangs", "within"),
        ("sys.exit('no such interface')", "no", "no such interface"),
    ],
)
def test_a_group_that_is_not_made_answers_for_every_operation(
    stand_in: Any, monkeypatch: pytest.MonkeyPatch, start: str, answer: str, reason: str
) -> None:
    monkeypatch.setattr(operations, "START_S", 1.0)
    stand_in(start=start)
    cells = probe_operations("gloo", CPU)
    assert {cell.answer for cell in cells.values()} == {answer}
    assert all(reason in cell.reason for cell in cells.values())
    assert tuple(cells) == OPERATIONS


# --- the real probe ----------------------------------------------------------------------------


def test_operations_that_do_nothing_are_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "idle.py"
    script.write_text(
        "from runners import probe\n"
        "def nothing(*tensors, **options): pass\n"
        "probe.dist.all_reduce = probe.dist.barrier = nothing\n"
        "probe.main()\n"
    )
    monkeypatch.setattr(operations, "PROGRAM", [sys.executable, str(script)])
    cells = probe_operations("gloo", CPU)
    assert answers_other_than_yes(cells) == {"all_reduce": "no", "barrier": "no"}
    assert cells["all_reduce"].reason == cells["barrier"].reason == "a wrong result"


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    return doctor.diagnose()


def test_gloo_gives_right_results_on_cpu(report: dict[str, Any]) -> None:
    [gloo] = [group for group in report["operations"] if group["backend"] == "gloo"][:1]
    assert gloo["device"] == "cpu"
    assert {name: cell["answer"] for name, cell in gloo["cells"].items()} == dict.fromkeys(
        OPERATIONS, "yes"
    )


def test_the_report_is_plain_data_with_every_cell(report: dict[str, Any]) -> None:
    assert json.loads(json.dumps(report)) == report
    columns = [(group["backend"], group["device"]) for group in report["operations"]]
    backends = ("gloo", "nccl", "mpi", "ucc")
    assert columns == [(backend, device) for backend in backends for device in ("cpu", "cuda")]
    for group in report["operations"]:
        assert tuple(group["cells"]) == OPERATIONS
        assert all(cell["answer"] == "yes" or cell["reason"] for cell in group["cells"].values())
    assert report["strategies"]["ddp"]["usable"]
    assert report["versions"]["python"]
    assert report["versions"]["torch"]


def test_every_choice_of_a_config_has_its_row() -> None:
    assert tuple(capabilities.STRATEGIES) == config.STRATEGIES
    assert tuple(capabilities.LAUNCHERS) == get_args(config.Launcher)
    assert tuple(capabilities.BACKENDS) == get_args(config.Backend)[1:]


def test_the_tables_fit_eighty_columns(report: dict[str, Any]) -> None:
    output = io.StringIO()
    doctor.render(report, Console(file=output, width=80))
    lines = output.getvalue().splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 80
    [row] = [line.split() for line in lines if line.strip().startswith("reduce_scatter")]
    assert row[:2] == ["reduce_scatter", "yes"]
    assert "…" not in output.getvalue()


def test_a_hang_and_a_failure_are_explained_below_the_table(report: dict[str, Any]) -> None:
    worse = json.loads(json.dumps(report))
    cells = worse["operations"][0]["cells"]
    cells["send"] = {"answer": "hangs", "reason": "no result within 15 s"}
    cells["recv"] = {"answer": "hangs", "reason": "no result within 15 s"}
    cells["gather"] = {"answer": "no", "reason": "a wrong result"}
    output = io.StringIO()
    doctor.render(worse, Console(file=output, width=80))
    assert "send, recv: hangs, no result within 15 s" in output.getvalue()
    assert "gather: no, a wrong result" in output.getvalue()


# --- verdicts ----------------------------------------------------------------------------------


def test_a_torch_that_cannot_be_loaded_is_a_line_of_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(fake_torch(tmp_path)))
    report = doctor.diagnose()
    for table in ("strategies", "launchers", "backends"):
        for verdict in report[table].values():
            assert not verdict["usable"]
            assert "torch was imported" in verdict["why"]
    answers = {cell["answer"] for group in report["operations"] for cell in group["cells"].values()}
    assert answers == {"n/a"}


def test_a_backend_that_fails_when_tried_is_not_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = dict.fromkeys(OPERATIONS, Cell("no", "no route to host"))
    monkeypatch.setattr(doctor, "probe_operations", lambda *_: broken)
    monkeypatch.setattr(
        doctor, "_facts", lambda: Facts(torch="2.13.0", backends=BUILT_IN, no_gpu="none")
    )
    report = doctor.diagnose()
    assert not report["backends"]["gloo"]["usable"]
    assert "no route to host" in report["backends"]["gloo"]["why"]
    assert "GLOO_SOCKET_IFNAME" in report["backends"]["gloo"]["mend"]
    assert not report["strategies"]["ddp"]["usable"]
    assert report["strategies"]["single"]["usable"]


@pytest.mark.parametrize(
    ("backend", "kind", "gpus", "reason"),
    [
        ("gloo", "cpu", 0, ""),
        ("gloo", "cuda", 0, "no GPU"),
        ("gloo", "cuda", 1, ""),
        ("nccl", "cpu", 2, "between GPUs only"),
        ("nccl", "cuda", 0, "no GPU"),
        ("nccl", "cuda", 1, "fewer than two GPUs"),
        ("nccl", "cuda", 2, ""),
        ("mpi", "cpu", 2, "built without mpi"),
        ("ucc", "cuda", 2, "built without ucc"),
    ],
)
def test_what_cannot_be_tried_says_why(backend: str, kind: str, gpus: int, reason: str) -> None:
    said = not_applicable(backend, kind, on_gpus(gpus))
    assert reason in said if reason else said == ""


@pytest.mark.parametrize(
    ("gpus", "devices"), [(1, ("cuda:0", "cuda:0")), (2, ("cuda:0", "cuda:1"))]
)
def test_two_ranks_share_a_gpu_where_there_is_one(gpus: int, devices: tuple[str, str]) -> None:
    assert capabilities.pair_devices("cuda", on_gpus(gpus)) == devices


def test_dp_says_where_nothing_is_parallel() -> None:
    for gpus in (0, 1):
        assert "nothing is parallel" in capabilities.STRATEGIES["dp"](on_gpus(gpus)).why
    assert capabilities.STRATEGIES["dp"](on_gpus(2)).why == ""


def test_horovod_and_its_launcher_say_what_is_in_their_way() -> None:
    facts = Facts(torch="2.13.0", horovod=Presence("it is not there", "build it"))
    for check in (capabilities.STRATEGIES["horovod"], capabilities.LAUNCHERS["horovodrun"]):
        assert check(facts) == capabilities.Verdict(False, "it is not there", "build it")


@pytest.mark.parametrize(
    ("built", "gpus", "said"),
    [
        (Presence(gloo=True), 0, "over gloo"),
        (Presence(gloo=True, mpi=True), 0, "over gloo or mpi"),
        (Presence(gloo=True, nccl=True, cuda=True), 2, "over nccl or gloo"),
        (Presence(gloo=True), 2, "over gloo; on CPU processes only, it is built without CUDA"),
    ],
)
def test_horovod_says_over_what_it_runs(built: Presence, gpus: int, said: str) -> None:
    verdict = capabilities.STRATEGIES["horovod"](structs.replace(on_gpus(gpus), horovod=built))
    assert (verdict.usable, verdict.why) == (True, said)


def test_what_is_not_usable_has_a_mend() -> None:
    for facts in (Facts(problem="it is broken"), Facts(torch="2.13.0", no_gpu="no driver")):
        for table in (capabilities.STRATEGIES, capabilities.LAUNCHERS, capabilities.BACKENDS):
            for check in table.values():
                verdict = check(facts)
                assert verdict.usable or (verdict.why and verdict.mend)


def test_the_doctor_itself_loads_no_torch() -> None:
    code = "import sys, runners.doctor; print('torch' in sys.modules or 'rich' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False"
