"""The environment of ranks, for each launcher and inside other jobs."""

from __future__ import annotations

import io
import os
import signal
import socket
import sys
import tempfile
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import msgspec
import pytest
from torch.distributed import TCPStore
from torch.distributed.elastic.multiprocessing import api
from torch.distributed.elastic.rendezvous import RendezvousTimeoutError
from torch.torch_version import TorchVersion

from distrain.runners.config.planning import plan_here
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import DistrainError
from distrain.runners.launchers import env, horovodrun, local_store, node, rank_start, spawn
from distrain.runners.launchers.command import PREVIOUS_RUN, launcher_environment
from distrain.runners.launchers.joined_host import join_run
from distrain.runners.launchers.node import NodeAgent, _record_folder
from distrain.runners.launchers.node_telemetry import MAX_BYTES, forwarding_logs
from distrain.runners.launchers.torchrun import END_SIGNALS, run_elastic_agent
from distrain.runners.protocol.client import ServerAddresses
from distrain.runners.protocol.events import Event, NodeFinished, Printed, Welcome
from distrain.runners.records.trash import move_to_trash
from distrain.runners.supervision.stall_probe import LAST_S
from distrain.runners.system import scratch
from distrain.runners.system.rank_identity import (
    RANK_VARIABLES,
    AgentIdentity,
    set_rank_variables,
)
from tests.support.records import RunBuilder

INHERITED_VARIABLES = [
    *RANK_VARIABLES,
    *(name for names in RANK_VARIABLES.values() for name in names),
]


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [
        *INHERITED_VARIABLES,
        *(name for name in os.environ if name.startswith("HOROVOD_")),
    ]:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", INHERITED_VARIABLES)
def test_variables_of_a_surrounding_job_are_not_passed_on(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(name, "1")
    config = RunConfig().with_changes({"devices": "cpu:2"})
    environment = launcher_environment(
        config, plan_here(config), tmp_path, ServerAddresses("unix:/socket")
    )
    assert name not in environment


def test_torchrun_leaves_ranks_that_a_stop_waits_for_to_the_supervisor(tmp_path: Path) -> None:
    changes = {"launcher": "torchrun", "script": {"path": "train.py"}}
    run = RunBuilder(tmp_path, word="made", **changes)
    config = run.record.config
    environment = launcher_environment(
        config, plan_here(config), run.dir, ServerAddresses("unix:/socket")
    )
    waits = int(environment["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"])
    assert waits > config.report.stop_timeout_s + LAST_S


@pytest.mark.parametrize(
    ("first", "second", "third", "found"),
    [
        ("mine.pt", "", "", 0),  # both ended before anything was saved
        ("mine.pt", "run.json.damaged-1", "token", 0),
        ("mine.pt", "args.json", "tensorboard/events.out.tfevents.1", 0),
        ("mine.pt", "checkpoints/mine.pt", "", 1),
        ("mine.pt", "mine.pt", "model/weights.pt", 2),
        ("mine", "", "", 0),  # of a kind that is not known
        ("mine", "mine", "", 1),
    ],
)
def test_a_script_continues_from_the_last_run_in_which_it_has_saved(
    first: str, second: str, third: str, found: int, tmp_path: Path
) -> None:
    runs = [RunBuilder(tmp_path, script={"path": "train.py"}) for _ in range(4)]
    for run, parent in pairwise(reversed(runs)):
        run.writer.set_state(parent=parent.id)
    assert _previous_of(runs[3]) == str(runs[2].dir)  # it may save elsewhere
    for run, saved in zip(runs, (first, second, third), strict=False):
        if saved:
            (run.dir / saved).parent.mkdir(exist_ok=True)
            (run.dir / saved).touch()
    assert _previous_of(runs[3]) == str(runs[found].dir)
    assert _previous_of(runs[0]) is None
    move_to_trash(runs[1].dir)
    assert _previous_of(runs[3]) == str(runs[0 if found == 1 else found].dir)


def _previous_of(run: RunBuilder) -> str | None:
    config, addresses = run.record.config, ServerAddresses("unix:/socket")
    return launcher_environment(config, plan_here(config), run.dir, addresses).get(PREVIOUS_RUN)


def test_spawned_ranks_leave_their_errors_where_nobody_else_can(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """torch unpickles them."""
    folders = []

    def start_processes(*_: object, **__: object) -> Mock:
        folders.append(tempfile.gettempdir())
        return Mock()

    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(os, "environ", {scratch.VARIABLE: str(tmp_path)})
    monkeypatch.setattr(sys, "argv", ["spawn", "2"])
    monkeypatch.setattr(spawn, "SupervisorLink", nullcontext)
    monkeypatch.setattr("torch.multiprocessing.start_processes", start_processes)
    assert spawn.main() == 0
    assert folders == [str(tmp_path)]


@pytest.mark.parametrize("which", range(3), ids=["Horovod", "Open MPI", "MPICH"])
def test_a_rank_takes_its_numbers_from_its_launcher(
    which: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}
    for name in numbers:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv(RANK_VARIABLES[name][which], numbers[name])
    set_rank_variables()
    assert {name: os.environ.pop(name) for name in numbers} == numbers


@pytest.mark.parametrize(("timeout_s", "waits", "looks"), [(300, 300, 15), (5, 5, 1), (0.5, 1, 1)])
def test_horovod_waits_for_the_timeout_of_a_collective(
    timeout_s: float, waits: int, looks: int, tmp_path: Path
) -> None:
    config = RunConfig().with_changes({"dist.timeout_s": timeout_s})
    found = horovodrun.horovod_variables(config, tmp_path)
    assert found["HOROVOD_GLOO_TIMEOUT_SECONDS"] == str(waits)
    assert found["HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"] == str(waits)
    assert found["HOROVOD_STALL_CHECK_TIME_SECONDS"] == str(looks)


def test_horovod_variables_of_the_user_are_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOROVOD_CYCLE_TIME", "7")
    monkeypatch.setenv("HOROVOD_GLOO_IFACE", "ib0")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    assert horovodrun.horovod_variables(RunConfig(), tmp_path)["HOROVOD_CYCLE_TIME"] == "7"
    assert horovodrun.rank_variables(1, 2, 0, 0, "127.0.0.1", "1234")["HOROVOD_GLOO_IFACE"] == "ib0"


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOROVOD_GLOO_TIMEOUT_SECONDS", "")
    assert (
        horovodrun.horovod_variables(RunConfig(), tmp_path)["HOROVOD_GLOO_TIMEOUT_SECONDS"] == "300"
    )


def test_horovod_ranks_use_gloo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_CONTROLLER", "mpi")
    assert (
        horovodrun.rank_variables(1, 2, 0, 0, "127.0.0.1", "1234")["HOROVOD_CONTROLLER"] == "gloo"
    )


def test_horovod_variables_override_those_of_another_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_CROSS_SIZE", "5")
    found = horovodrun.rank_variables(1, 2, 0, 1, "127.0.0.1", "1234")
    assert (found["HOROVOD_RANK"], found["HOROVOD_SIZE"], found["HOROVOD_CROSS_SIZE"]) == (
        "1",
        "2",
        "1",
    )


def test_a_temporary_folder_that_cannot_be_written_is_the_reason_why_a_host_cannot_take_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = RunConfig().with_changes({"devices": "cpu:2"})
    monkeypatch.delenv("DISTRAIN_RUN", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", "/absent")  # short: a long one is not used for sockets
    with (
        pytest.raises(DistrainError, match=r"temporary folder: No such file .* TMPDIR"),
        _record_folder("run", config, plan_here(config)),
    ):
        pass


@pytest.mark.parametrize("kind", ["file", "link", "pipe"])
def test_ranks_that_meet_at_a_file_join_no_run_of_another_user(kind: str, tmp_path: Path) -> None:
    note, theirs = tmp_path / "meeting.distrain", tmp_path / "theirs"
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp:127.0.0.1:{server.getsockname()[1]}\ntoken"
        with env.publish_address(f"file://{tmp_path}/meeting", address):
            assert env.read_published(f"file://{tmp_path}/meeting", 5.0) == address
            assert (tmp_path / "meeting").stat().st_mode & 0o777 == 0o600
        theirs.write_text(address)
        if kind == "file":
            if os.getuid() != 0:
                pytest.skip("only root can give a file to another user")
            os.chown(theirs, 4711, 4711)
            theirs.rename(note)
        elif kind == "link":
            note.symlink_to(theirs)
        else:
            os.mkfifo(note)
        with pytest.raises(DistrainError, match="did not publish"):
            env.read_published(f"file://{tmp_path}/meeting", 0.1)
        with (
            pytest.raises(DistrainError, match="was not left by a run of yours"),
            env.publish_address(f"file://{tmp_path}/meeting", address),
        ):
            pass
        assert os.path.lexists(note), "theirs was removed"


def test_a_character_that_is_split_over_two_reads_is_complete(tmp_path: Path) -> None:
    text, sent = "x" + "█é" * MAX_BYTES, list[Event]()
    (tmp_path / "rank-3.log").write_text(text)
    with forwarding_logs(sent.append, tmp_path):
        pass
    parts = [each for each in sent if isinstance(each, Printed)]
    assert len(parts) > 1
    assert {each.rank for each in parts} == {3}
    assert "".join(each.text for each in parts) == text


def test_the_first_agent_of_horovod_ends_after_the_ranks_of_all_hosts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its end is that of the run, and unlike torchrun's agents it has not waited for the others."""
    config = RunConfig.from_dict(
        {
            "devices": "cpu:1",
            "launcher": "horovodrun",
            "dist": {"nodes": 2},
            "script": {"path": __file__},
        }
    )
    agent = NodeAgent(AgentIdentity(0), is_child=True)

    class Link:
        address = "here"

        def send(self, event: Event) -> None:
            if isinstance(event, NodeFinished):
                agent._on_event(NodeFinished())  # as the supervisor's answer
                assert not agent._answers.empty()

    monkeypatch.setattr(os, "environ", {**os.environ, "DISTRAIN_RUN": str(tmp_path)})
    monkeypatch.setattr(node, "_rank_environment", lambda *_: {})
    monkeypatch.setattr(node, "_choose_interface", lambda *_: "")
    monkeypatch.setattr(rank_start, "run_ranks", lambda *_: 0)
    plan = msgspec.json.encode(plan_here(config)).decode()
    welcome = Welcome(run_id="run", node=0, config=config.to_toml(), plan=plan, rendezvous="here:1")
    assert agent._train(Link(), welcome) == 0  # type: ignore[arg-type]
    assert agent._answers.empty()


def test_a_host_that_does_not_reach_the_other_ranks_cannot_take_part(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As where a firewall allows only the port that the first host has printed."""
    config = RunConfig.from_dict({"devices": "cpu:1", "dist": {"nodes": 2}})

    def connect(address: str) -> None:
        raise TimeoutError(f"{address} timed out")

    monkeypatch.setattr(os, "environ", {**os.environ, "DISTRAIN_RUN": str(tmp_path)})
    monkeypatch.setattr(node, "_rank_environment", lambda *_: {})
    monkeypatch.setattr(node, "sampling", lambda *_: nullcontext())
    monkeypatch.setattr(node, "connect", connect)
    plan = msgspec.json.encode(plan_here(config)).decode()
    welcome = Welcome(run_id="run", node=1, config=config.to_toml(), plan=plan, rendezvous="here:1")
    agent = NodeAgent(AgentIdentity(1))
    with pytest.raises(DistrainError, match=r"cannot reach here:1, .* tcp:here:1 timed out"):
        agent._train(SimpleNamespace(send=print), welcome)  # type: ignore[arg-type]
    assert not agent._is_working


def test_a_host_that_joins_prints_what_the_encoding_of_its_locale_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    printed = io.BytesIO()

    class Host:
        def work(self) -> int:
            raise DistrainError("ranks 0–1 were gone")

    monkeypatch.setenv("DISTRAIN_SOCKET", "tcp:here:1")
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding="ascii"))
    assert join_run(Host()) == 1  # type: ignore[arg-type]
    assert printed.getvalue().endswith(b"failed\tranks 0?1 were gone\n")


@pytest.fixture
def torch_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore what `run_elastic_agent` replaces in its process."""
    monkeypatch.setattr(socket, "getfqdn", socket.getfqdn)


@pytest.fixture
def older_torch(monkeypatch: pytest.MonkeyPatch, torch_restored: None) -> None:
    """Make torch an older version; what is replaced in its elastic agent is restored."""
    monkeypatch.setattr("torch.__version__", TorchVersion("2.6.0"))
    monkeypatch.setattr(api, "_terminate_process_handler", api._terminate_process_handler)
    monkeypatch.setattr(api.PContext, "close", api.PContext.close)


@pytest.mark.usefixtures("torch_restored")
def test_hosts_that_do_not_start_their_ranks_in_time_are_reported_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As where torch is on a disk that does not answer."""
    late = Mock(side_effect=RendezvousTimeoutError)
    monkeypatch.setattr("torch.distributed.run.run", late)
    link = Mock(address="127.0.0.1")
    code = run_elastic_agent(
        link, ["rank"], 1, nodes=2, meeting_place="127.0.0.1:1", join_timeout_s=15.0
    )
    assert code == 1
    expected = "not all hosts have started their ranks within 15 s (dist.join_timeout_s)\n"
    assert capsys.readouterr().err == expected


@pytest.mark.usefixtures("older_torch")
def test_the_elastic_agent_leaves_signals_to_the_handlers_of_its_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handled = []

    def run(_: object) -> None:
        """Do with signals what the agent of torch 2.6, which has no option for that, does."""
        for number in END_SIGNALS:
            signal.signal(number, api._terminate_process_handler)
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(api.SignalException):
            signal.raise_signal(signal.SIGQUIT)

    monkeypatch.setattr("torch.distributed.run.run", run)
    before = {number: signal.getsignal(number) for number in END_SIGNALS}
    try:
        signal.signal(signal.SIGTERM, lambda number, _: handled.append(number))
        run_elastic_agent(Mock(), ["rank"], 1)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert handled == [signal.SIGTERM]


@pytest.mark.usefixtures("older_torch")
def test_the_elastic_agent_waits_for_interrupted_ranks_with_older_versions_of_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ranks = Mock(_tail_logs=[])

    def run(_: object) -> None:
        """End ranks as the agent of torch 2.6 does."""
        api.PContext.close(ranks, signal.SIGINT)
        api.PContext.close(ranks, signal.SIGTERM)

    monkeypatch.setattr("torch.distributed.run.run", run)
    monkeypatch.setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "150")
    run_elastic_agent(Mock(), ["rank"], 1)
    assert [call.kwargs["timeout"] for call in ranks._close.call_args_list] == [150, 30]


@pytest.mark.parametrize(("version", "is_new"), [("2.7.1+cpu", False), ("2.8.0", True)])
def test_the_store_of_one_host_has_a_backend_that_takes_its_socket_over(
    version: str, is_new: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.__version__", TorchVersion(version))
    store = local_store.open_local_store()
    TCPStore("127.0.0.1", store.port).set("name", "value")  # as a rank
    assert (store.get("name"), store.libuvBackend) == (b"value", is_new)
