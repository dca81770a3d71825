"""The hosts for other tests: each has its own name, files and processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.namespaces import Host, network
from tests.support.runs import wait_until

SERVER = """
import socket, sys
with socket.create_server((sys.argv[1], 0)) as server:
    print(server.getsockname()[1], flush=True)
    link = server.accept()[0]
    while received := link.recv(9):
        link.sendall(received)
"""
CLIENT = """
import os, socket, sys, time
link = socket.create_connection((sys.argv[1], sys.argv[2]))
for line in ("one", "two"):
    link.sendall(line.encode())
    print(link.recv(9).decode(), flush=True)
    while not os.path.exists("go"):
        time.sleep(0.05)
"""


def test_a_host_has_a_name_that_does_not_resolve(hosts: list[Host]) -> None:
    assert [host.run("hostname").stdout.strip() for host in hosts] == ["h0", "h1"]
    for name in ("h0", "h1"):
        assert hosts[0].run("getent", "hosts", name).returncode == 2


def test_a_host_does_not_see_the_files_of_another(hosts: list[Host]) -> None:
    for host in hosts:
        host.run("sh", "-c", "echo mine > $TMPDIR/file; echo mine > /dev/shm/file")
    first, second = hosts
    assert (first.folder / "tmp" / "file").read_text() == "mine\n"
    assert first.run("ls", str(second.folder)).stdout == ""
    assert not Path("/dev/shm/file").exists()
    assert first.run("sh", "-c", "echo $HOME; pwd").stdout.split() == [str(first.folder)] * 2


def test_connections_stall_while_a_link_is_cut_and_continue_afterwards(hosts: list[Host]) -> None:
    first, second = hosts
    with first.start("server", sys.executable, "-c", SERVER, first.address):
        port = wait_until(lambda: first.log_text("server").strip())
        with second.start("client", sys.executable, "-c", CLIENT, first.address, port) as client:
            wait_until(lambda: second.log_text("client") == "one\n")
            first.cut()
            (second.folder / "go").touch()
            with pytest.raises(subprocess.TimeoutExpired):
                client.wait(2)
            first.restore()
            wait_until(lambda: second.log_text("client") == "one\ntwo\n")


def test_processes_of_a_host_are_listed_and_end_with_it(hosts: list[Host]) -> None:
    first, second = hosts
    first.run("sh", "-c", "setsid sleep 600 > /dev/null 2>&1 &")
    (sleeps,) = wait_until(lambda: [each for each in first.processes() if each.name() == "sleep"])
    assert not second.processes()
    first.crash()
    wait_until(lambda: not psutil.pid_exists(sleeps.pid))
    assert second.run("true").returncode == 0


def test_a_network_leaves_nothing_behind(namespaces_available: None, tmp_path: Path) -> None:
    def mounts_and_links() -> tuple[str, set[str]]:
        return Path("/proc/mounts").read_text(), set(psutil.net_if_addrs())

    before = mounts_and_links()
    with network(tmp_path / "hosts", 3) as hosts:
        hosts[2].run("sh", "-c", "setsid sleep 600 > /dev/null 2>&1 &")
        processes = [process for host in hosts for process in host.processes()]
        processes += [psutil.Process(host.holder) for host in hosts]
        assert len(processes) == 4
        assert mounts_and_links() == before
    wait_until(lambda: not any(psutil.pid_exists(process.pid) for process in processes))
