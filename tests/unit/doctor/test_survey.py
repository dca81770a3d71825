"""The doctor's report; no operation, however it fails, can block it."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any, get_args

import psutil
import pytest
from msgspec import structs

from distrain.runners.config import field_types
from distrain.runners.doctor import capabilities, collectives, survey
from distrain.runners.doctor.capabilities import Capability, HostFacts, why_not_applicable
from distrain.runners.doctor.collectives import OPERATIONS, OperationResult, try_operations
from distrain.runners.horovod.presence import Presence
from distrain.runners.system.devices import Device
from tests.support.fake_nvml import fake_torch

CPU = ("cpu", "cpu")
GPU = Device(kind="cuda", index=0, uuid="GPU-1", name="NVIDIA Fake 80GB", memory=80 << 30)
ONLY_ON_CPU = "only on CPU processes, because it is built without CUDA"
BUILT_IN = {"gloo": True, "nccl": True, "mpi": False, "ucc": False}


def facts_with_gpus(count: int) -> HostFacts:
    return HostFacts(
        gpus=[GPU] * count, torch="2.13.0", cuda="12.8", backends=BUILT_IN, cuda_devices=count
    )


# --- a fake probe ------------------------------------------------------------------------------

FAKE_PROBE = """
import json, os, signal, sys, time
arguments = dict(zip(sys.argv[2:-1:2], sys.argv[3::2]))
rank = int(arguments["--rank"])
operations = sys.argv[sys.argv.index("--operations") + 1:]
failed = []
def send(**message):
    print(json.dumps(message), flush=True)
def ok(operation):
    send(operation=operation, ok=True, reason="")
def no(operation, reason):
    failed.append(operation)
    send(operation=operation, ok=False, reason=reason)
{start}
send(ready=True)
for operation in operations:
    match operation:
{cases}
        case _:
            ok(operation)
"""


@pytest.fixture
def fake_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replace the probe by a script with its protocol; the arguments are code that fails."""

    def use(cases: str = "", start: str = "") -> None:
        script = tmp_path / "fake_probe.py"
        cases = textwrap.indent(textwrap.dedent(cases).strip(), " " * 8)
        script.write_text(FAKE_PROBE.format(start=textwrap.dedent(start), cases=cases))
        monkeypatch.setattr(collectives, "PROGRAM", [sys.executable, str(script)])

    monkeypatch.setattr(collectives, "START_S", 5.0)
    monkeypatch.setattr(collectives, "OPERATION_S", 1.0)
    monkeypatch.setattr(collectives, "GRACE_S", 0.5)
    return use


def failures(results: dict[str, OperationResult]) -> dict[str, str]:
    assert tuple(results) == OPERATIONS
    return {name: result.answer for name, result in results.items() if result.answer != "yes"}


def test_a_hang_is_reported_and_the_other_operations_are_still_tried(fake_probe: Any) -> None:
    fake_probe("""
        case "broadcast":
            time.sleep(60)
        case "gather" if rank == 1:
            time.sleep(60)
    """)
    began = time.monotonic()
    results = try_operations("gloo", CPU)
    assert failures(results) == {"broadcast": "hangs", "gather": "hangs"}
    assert time.monotonic() - began < 15


def test_no_process_of_a_hanging_pair_is_left(fake_probe: Any) -> None:
    fake_probe("""
        case "barrier":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(60)
    """)
    before = psutil.Process().children(recursive=True)
    try_operations("gloo", CPU)
    assert psutil.Process().children(recursive=True) == before


def test_a_failure_of_one_rank_is_a_no_with_its_reason(fake_probe: Any) -> None:
    fake_probe("""
        case "scatter" if rank == 1:
            no(operation, "not for rank 1")
        case "scatter":
            time.sleep(60)
    """)
    results = try_operations("gloo", CPU)
    assert failures(results) == {"scatter": "no"}
    assert results["scatter"].reason == "not for rank 1"


def test_a_rank_that_exits_is_a_no_with_its_end(fake_probe: Any) -> None:
    fake_probe("""
        case "reduce" if rank == 0:
            print("broken beyond repair", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
        case "reduce":
            no(operation, "connection closed by peer")
        case "all_to_all" if rank == 1:
            sys.exit("gave up")
    """)
    results = try_operations("gloo", CPU)
    assert failures(results) == {"reduce": "no", "all_to_all": "no"}
    assert results["reduce"].reason == "rank 0 was killed by SIGSEGV: broken beyond repair"
    assert results["all_to_all"].reason == "rank 1 exited with code 1: gave up"


def test_a_second_failure_is_tried_again_with_a_new_pair(fake_probe: Any) -> None:
    fake_probe("""
        case "recv":
            no(operation, "not supported")
        case _ if failed:
            no(operation, "out of step")
    """)
    results = try_operations("gloo", CPU)
    assert failures(results) == {"recv": "no"}
    assert results["recv"].reason == "not supported"


def test_a_rank_may_be_far_ahead_of_the_other(fake_probe: Any) -> None:
    fake_probe(
        cases="""
        case "gather" if rank == 1:
            no(operation, "wrong")
        """,
        start="time.sleep(0.5 * rank)",
    )
    assert failures(try_operations("gloo", CPU)) == {"gather": "no"}


@pytest.mark.parametrize(
    ("start", "answer", "reason"),
    [
        ("time.sleep(60)", "hangs", "within"),
        ("sys.exit('no such interface')", "no", "no such interface"),
    ],
)
def test_a_group_that_cannot_be_created_is_the_result_of_every_operation(
    fake_probe: Any, monkeypatch: pytest.MonkeyPatch, start: str, answer: str, reason: str
) -> None:
    monkeypatch.setattr(collectives, "START_S", 1.0)
    fake_probe(start=start)
    results = try_operations("gloo", CPU)
    assert {result.answer for result in results.values()} == {answer}
    assert all(reason in result.reason for result in results.values())
    assert tuple(results) == OPERATIONS


# --- the real probe ----------------------------------------------------------------------------


def test_operations_that_do_nothing_are_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "idle.py"
    script.write_text(
        "from distrain.runners.doctor import probe\n"
        "def nothing(*tensors, **options): pass\n"
        "probe.dist.all_reduce = probe.dist.barrier = nothing\n"
        "probe.main()\n"
    )
    monkeypatch.setattr(collectives, "PROGRAM", [sys.executable, str(script)])
    results = try_operations("gloo", CPU)
    assert failures(results) == {"all_reduce": "no", "barrier": "no"}
    assert results["all_reduce"].reason == results["barrier"].reason == "wrong result"


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    return survey.run_survey()


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


def test_every_choice_of_a_config_has_a_check() -> None:
    assert tuple(capabilities.STRATEGIES) == field_types.STRATEGIES
    assert tuple(capabilities.LAUNCHERS) == get_args(field_types.Launcher)
    assert tuple(capabilities.BACKENDS) == get_args(field_types.Backend)[1:]


# --- capabilities ------------------------------------------------------------------------------


def test_a_torch_that_cannot_be_loaded_is_a_line_of_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(fake_torch(tmp_path)))
    report = survey.run_survey()
    for table in ("strategies", "launchers", "backends"):
        for capability in report[table].values():
            assert not capability["usable"]
            assert "torch was imported" in capability["why"]
    answers = {cell["answer"] for group in report["operations"] for cell in group["cells"].values()}
    assert answers == {"n/a"}


def test_a_backend_that_fails_when_tried_is_not_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = dict.fromkeys(OPERATIONS, OperationResult("no", "no route to host"))
    monkeypatch.setattr(survey, "try_operations", lambda *_: failed)
    monkeypatch.setattr(
        survey, "gather_facts", lambda: HostFacts(torch="2.13.0", backends=BUILT_IN, no_gpu="none")
    )
    report = survey.run_survey()
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
def test_what_cannot_be_tried_has_a_reason(backend: str, kind: str, gpus: int, reason: str) -> None:
    why = why_not_applicable(backend, kind, facts_with_gpus(gpus))
    assert reason in why if reason else why == ""


@pytest.mark.parametrize(
    ("gpus", "devices"), [(1, ("cuda:0", "cuda:0")), (2, ("cuda:0", "cuda:1"))]
)
def test_two_ranks_share_the_only_gpu(gpus: int, devices: tuple[str, str]) -> None:
    assert capabilities.pair_devices("cuda", facts_with_gpus(gpus)) == devices


def test_dp_reports_that_nothing_is_parallel() -> None:
    for gpus in (0, 1):
        assert "nothing is parallel" in capabilities.STRATEGIES["dp"](facts_with_gpus(gpus)).why
    assert capabilities.STRATEGIES["dp"](facts_with_gpus(2)).why == ""


def test_horovod_and_its_launcher_report_what_is_missing() -> None:
    facts = HostFacts(torch="2.13.0", horovod=Presence("it is not installed", "build it"))
    for check in (capabilities.STRATEGIES["horovod"], capabilities.LAUNCHERS["horovodrun"]):
        assert check(facts) == Capability(False, "it is not installed", "build it")


@pytest.mark.parametrize(
    ("built", "gpus", "why"),
    [
        (Presence(gloo=True), 0, "over gloo"),
        (Presence(gloo=True, mpi=True), 0, "over gloo or mpi"),
        (Presence(gloo=True, nccl=True, cuda=True), 2, "over nccl or gloo"),
        (
            Presence(gloo=True),
            2,
            "over gloo; only on CPU processes, because it is built without CUDA",
        ),
    ],
)
def test_horovod_reports_its_transports(built: Presence, gpus: int, why: str) -> None:
    facts = structs.replace(facts_with_gpus(gpus), horovod=built)
    capability = capabilities.STRATEGIES["horovod"](facts)
    assert (capability.usable, capability.why) == (True, why)


def test_what_is_not_usable_has_a_fix() -> None:
    for facts in (HostFacts(problem="it is broken"), HostFacts(torch="2.13.0", no_gpu="no driver")):
        for table in (capabilities.STRATEGIES, capabilities.LAUNCHERS, capabilities.BACKENDS):
            for check in table.values():
                capability = check(facts)
                assert capability.usable or (capability.why and capability.fix)


def test_the_survey_itself_loads_no_torch() -> None:
    code = (
        "import sys, distrain.runners.doctor.survey\n"
        "print('torch' in sys.modules or 'rich' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False"
