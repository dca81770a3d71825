"""How Horovod comes to be here, as far as it goes without a compiler: pip is a script of ours."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
import tarfile
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from runners.errors import InstallError
from runners.horovod import building, install, source, toolchain
from runners.horovod.building import build, cached, share_of
from runners.horovod.commands import Commands, StoppedError, blamed
from runners.horovod.install import Installation
from runners.horovod.presence import Presence
from runners.horovod.source import EDITS, Edit, apply, unpack
from runners.horovod.toolchain import Toolchain, look

CPU = Toolchain(torch="2.13.0")
# It does what pip is asked for with what lies beside it, and as a build says what make would.
PIP = """
import pathlib, shutil, sys, time
beside, arguments = pathlib.Path(__file__).parent, sys.argv[1:]
def after(option):
    return pathlib.Path(arguments[arguments.index(option) + 1])
if arguments[0] == "download":
    assert {sha!r} in after("--requirement").read_text()
    shutil.copy(beside / "horovod-0.28.1.tar.gz", after("--dest"))
elif arguments[0] == "wheel":
    print("[ 42%] Building CXX object", flush=True)
    {building}
    after("--wheel-dir").mkdir()
    (after("--wheel-dir") / "horovod-0.28.1.whl").write_text((beside / "horovod").name)
"""


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache and a place for builds that are a test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    return tmp_path


def tree(folder: Path) -> Path:
    """Files that hold what the edits expect, and little else."""
    root = folder / f"horovod-{source.VERSION}"
    for edit in EDITS:
        file = root / edit.file
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as text:
            text.write(f"before\n{edit.before}\nafter\n")
    return root


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive of that tree, which is taken for Horovod's."""
    path = tmp_path / "horovod-0.28.1.tar.gz"
    with tarfile.open(path, "w:gz") as packed:
        packed.add(tree(tmp_path / "tree"), arcname=f"horovod-{source.VERSION}")
    monkeypatch.setattr(source, "SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    return path


@pytest.fixture
def pip(archive: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have a script of ours stand in for pip; `building` is what it does as the compiler."""

    def use(building_: str = "pass") -> None:
        script = archive.with_name("pip.py")
        script.write_text(PIP.format(sha=source.SHA256, building=building_))
        for module in (building, install):
            monkeypatch.setattr(module, "PIP", [sys.executable, str(script)])

    return use


def commands(folder: Path, heard: Callable[[str], None] = lambda line: None) -> Commands:
    return Commands(folder / "build.log", heard)


def nothing(stage: str) -> None:
    """Nobody looks on."""


# --- the source --------------------------------------------------------------------------------


def test_every_edit_is_made(archive: Path, tmp_path: Path) -> None:
    folder = unpack(archive, tmp_path / "unpacked")
    for edit in EDITS:
        text = (folder / edit.file).read_text()
        assert text.count(edit.after) == 1, edit
        assert edit.before not in text.replace(edit.after, ""), edit


@pytest.mark.parametrize("times", [0, 2])
def test_a_file_that_is_not_as_expected_is_not_edited(tmp_path: Path, times: int) -> None:
    edit = Edit("CMakeLists.txt", "set(A 1)\n", "set(A 2)\n")
    (tmp_path / edit.file).write_text(edit.before * times)
    with pytest.raises(InstallError, match=r"CMakeLists.txt .*'set\(A 1\)' exactly once"):
        apply(edit, tmp_path)


def test_another_archive_is_refused_unopened(archive: Path, tmp_path: Path) -> None:
    archive.write_bytes(archive.read_bytes() + b"more")
    with pytest.raises(InstallError, match="its sha256 is"):
        unpack(archive, tmp_path / "unpacked")
    assert not (tmp_path / "unpacked").exists()


# --- what there is to build with ---------------------------------------------------------------


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Toolchain]:
    """A machine that has these programs, and a torch built with this CUDA."""
    for name in [name for name in os.environ if name.startswith(("HOROVOD", "CUDA"))]:
        monkeypatch.delenv(name)

    def has(*programs: str, cuda: str | None = None) -> Toolchain:
        folder = tmp_path / "toolkit" / "bin"
        folder.mkdir(parents=True, exist_ok=True)
        for name in programs:
            (folder / name).write_text("#!/bin/sh\n")
            (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))
        monkeypatch.setattr(toolchain, "torch_build", lambda: {"version": "2.13.0", "cuda": cuda})
        return look()

    return has


@pytest.mark.parametrize("there", [("make",), ("g++",)])
def test_without_a_compiler_one_sentence_tells_how_to_get_it(
    bare: Callable[..., Toolchain], there: tuple[str, ...]
) -> None:
    with pytest.raises(InstallError, match=r"was not found.*apt-get install build-essential"):
        bare(*there)


def test_without_the_headers_of_python_as_well(
    bare: Callable[..., Toolchain], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain.sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(InstallError, match=r"has no Python.h.*apt-get install python3-dev"):
        bare("g++", "make")


def test_a_torch_for_cpu_gets_a_horovod_for_cpu_though_there_is_an_nvcc(
    bare: Callable[..., Toolchain], tmp_path: Path
) -> None:
    found = bare("g++", "make", "nvcc")
    environment = found.environment(tmp_path)
    assert found.extras == ["cpu"]
    assert environment["HOROVOD_WITHOUT_CUDA"] == environment["HOROVOD_WITHOUT_MPI"] == "1"
    assert "HOROVOD_GPU_OPERATIONS" not in environment


def test_a_torch_for_cuda_gets_nccl_where_its_header_is(
    bare: Callable[..., Toolchain], tmp_path: Path
) -> None:
    header = tmp_path / "toolkit" / "include" / "nccl.h"
    header.parent.mkdir(parents=True)
    header.touch()
    found = bare("g++", "make", "nvcc", "mpicxx", cuda="0.1")
    environment = found.environment(tmp_path)
    assert found.extras == ["cuda0.1", "nccl", "mpi"]
    assert environment["HOROVOD_GPU_OPERATIONS"] == "NCCL"
    assert environment["HOROVOD_CUDA_HOME"] == str(tmp_path / "toolkit")
    assert not environment.keys() & {"HOROVOD_WITHOUT_CUDA", "HOROVOD_WITHOUT_MPI"}


def test_what_a_person_has_set_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOROVOD_WITHOUT_GLOO", "1")
    monkeypatch.setenv("HOROVOD_GPU_ALLREDUCE", "MPI")
    monkeypatch.setenv("MAKEFLAGS", "-j3")
    with_cuda = Toolchain(torch="2", cuda="12.8", cuda_home="/cuda", nccl="/cuda/include")
    environment = with_cuda.environment(tmp_path)
    assert environment["HOROVOD_WITHOUT_GLOO"] == "1"
    assert environment["MAKEFLAGS"] == "-j3"
    assert "HOROVOD_GPU_OPERATIONS" not in environment  # Horovod refuses both


def test_an_mpi_that_is_asked_for_is_looked_for_by_the_build(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOROVOD_WITH_MPI", "1")
    assert "HOROVOD_WITHOUT_MPI" not in CPU.environment(tmp_path)


@pytest.mark.parametrize(
    "other",
    [
        Toolchain(torch="2.13.1"),
        Toolchain(torch="2.13.0", cuda="12.8", cuda_home="/cuda"),
        Toolchain(torch="2.13.0", mpi="/usr/bin/mpicxx.openmpi"),
    ],
)
def test_a_wheel_is_for_one_torch_and_what_else_there_is(other: Toolchain) -> None:
    assert other.key != CPU.key == Toolchain(torch="2.13.0").key


def test_a_wheel_is_for_one_set_of_edits_and_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {CPU.key}
    with monkeypatch.context() as patch:
        patch.setattr(source, "EDITS", EDITS[1:])
        keys.add(CPU.key)
    with monkeypatch.context() as patch:
        patch.setenv("HOROVOD_CPU_OPERATIONS", "MPI")
        keys.add(CPU.key)
    with monkeypatch.context() as patch:
        patch.setenv("HOROVOD_CYCLE_TIME", "5")  # of a run, not of a build
        keys.add(CPU.key)
    assert len(keys) == 3


# --- building ----------------------------------------------------------------------------------


def test_a_build_puts_its_wheel_into_the_cache_and_leaves_nothing_else(
    pip: Callable[..., None], places: Path
) -> None:
    pip()
    stages: list[str] = []
    wheel = build(CPU, commands(places), stages.append)
    assert stages == ["downloading", "unpacking", "building"]
    assert wheel == cached(CPU)
    assert [path.name for path in wheel.parent.iterdir()] == ["horovod-0.28.1.whl"]
    assert list((places / "scratch").iterdir()) == []
    assert cached(Toolchain(torch="2.13.1")) is None


def test_a_build_that_fails_names_the_reason_and_its_log_and_leaves_nothing_else(
    pip: Callable[..., None], places: Path
) -> None:
    pip("sys.exit('a.cc:3:1: error: no such thing\\nmake: *** [all] Error 1')")
    with pytest.raises(InstallError) as caught:
        build(CPU, commands(places), nothing)
    log = places / "build.log"
    reason = "the build of Horovod failed: a.cc:3:1: error: no such thing"
    assert str(caught.value) == f"{reason}; all of it is in {log}"
    assert "[ 42%] Building" in log.read_text()
    assert cached(CPU) is None
    assert list((places / "scratch").iterdir()) == []


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["x", "ERROR: No matching distribution", "y"], "No matching distribution"),
        (["CMake Error at CMakeLists.txt:40 (project):", "No compiler", "z"],
         "CMake Error at CMakeLists.txt:40 (project): No compiler"),
        (["g++ -Werror a.cc", "Killed"], "Killed"),
        ([], "it said nothing"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found_among_what_was_said(lines: list[str], reason: str) -> None:
    assert blamed(lines) == reason


@pytest.mark.parametrize(
    ("line", "share"), [("[  7%] Building", 0.07), ("[100%] Linking", 1.0), ("see [50%]", None)]
)
def test_make_tells_how_far_it_is(line: str, share: float | None) -> None:
    assert share_of(line) == share


# --- all of it ---------------------------------------------------------------------------------


def test_stopping_ends_every_process_and_leaves_nothing(
    pip: Callable[..., None], places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler is a child of a child."""
    sleeps = "import time; print('[ 50%] Building', flush=True); time.sleep(600)"
    pip(f"import subprocess; subprocess.run([sys.executable, '-c', {sleeps!r}])")
    monkeypatch.setattr(install, "presence", lambda afresh: Presence("it is not there"))
    monkeypatch.setattr(install, "look", lambda: CPU)
    half_way = threading.Event()
    installation = Installation(lambda now: half_way.set() if now.share == 0.5 else None)
    outcome: list[BaseException] = []

    def run() -> None:
        try:
            installation.run()
        except StoppedError as error:
            outcome.append(error)

    others = set(psutil.Process().children(recursive=True))  # of earlier tests, as a tracker is
    thread = threading.Thread(target=run)
    thread.start()
    assert half_way.wait(60)
    begun = set(psutil.Process().children(recursive=True)) - others
    assert len(begun) >= 2
    installation.stop()
    thread.join(60)
    assert len(outcome) == 1
    assert psutil.wait_procs(begun, timeout=10)[1] == []
    assert cached(CPU) is None
    assert list((places / "scratch").iterdir()) == []


def test_a_second_one_waits_for_the_first_and_can_be_stopped_meanwhile(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "presence", lambda afresh: Presence("it is not there"))
    folder = places / "cache" / "distrain" / "horovod"
    folder.mkdir(parents=True)
    with (folder / "lock").open("w") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        stages: list[str] = []
        installation = Installation(lambda now: stages.append(now.stage))
        timer = threading.Timer(0.5, installation.stop)
        timer.start()
        with pytest.raises(StoppedError):
            installation.run()
        timer.join()
    assert stages == ["looking", "waiting for another build"]


def test_a_wheel_of_the_cache_that_does_not_work_is_built_anew(
    pip: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    pip()
    answers = iter([Presence("none"), Presence("none"), Presence("broken"), Presence(gloo=True)])
    monkeypatch.setattr(install, "presence", lambda afresh: next(answers))
    monkeypatch.setattr(install, "look", lambda: CPU)
    old = build(CPU, commands(Path(tempfile.mkdtemp())), nothing)
    shutil.rmtree(old.parent)
    old.parent.mkdir()
    old.with_name("old.whl").touch()
    stages: list[str] = []
    said = Installation(lambda now: stages.append(now.stage)).run()
    assert "built in" in said
    assert stages.count("building") > 0
    assert [path.name for path in old.parent.iterdir()] == [old.name]
